"""Tokens of a traced input that can be hidden, and their grouping into words."""

from collections.abc import Mapping, Sequence

import torch

from clearhead.engine.trace import Trace
from clearhead.errors import BadInput
from clearhead.model.batches import Item
from clearhead.perturbation.features import Features, group_features, restrict_features


def number_hideable_tokens(trace: Trace) -> dict[int, int]:
    """Map each token that can be hidden to its column in a perturbation mask."""
    return {index: column for column, index in enumerate(_list_hideable_tokens(trace))}


def _list_hideable_tokens(trace: Trace) -> list[int]:
    return [index for index, is_special in enumerate(_find_special_tokens(trace)) if not is_special]


def _find_special_tokens(trace: Trace) -> Sequence[bool]:
    # Images: the classification token (and others, such as DeiT's distillation token) come before the patches, tokens
    # of boxes behind them.
    if trace.is_image:
        tokens = trace.mask_BT.shape[1]
        patches = range(trace.leading, tokens - trace.patch_grid.trailing)
        return [index not in patches for index in range(tokens)]
    item = _get_input(trace)
    if item.answer is None:
        return item.special
    # Only the prompt can be hidden, not what the model has written itself.
    return [is_special or index >= item.answer.start for index, is_special in enumerate(item.special)]


def _get_input(trace: Trace) -> Item:
    # The page explains one input at a time.
    return trace.inputs.items[0]


def group_tokens(trace: Trace, unit: str) -> list[list[int]]:
    """Return the token indices of every word, token or patch, in reading order."""
    indices = _list_hideable_tokens(trace)
    if _has_words(trace, unit):
        return _group_words(trace, indices)
    return [[index] for index in indices]


def make_features(trace: Trace, unit: str) -> Features:
    """Return the words, tokens or patches of `group_tokens` as features of the perturbation engine, in its order."""
    # The grid that was seen: not every configuration names the size of its patches.
    grid = trace.grid if trace.is_image else None
    (features,) = group_features(trace.model, trace.inputs, _choose_grouping(trace, unit), grid=grid)
    if _get_input(trace).answer is None:
        return features
    return restrict_features(features, ~torch.tensor(_find_special_tokens(trace)))


def _choose_grouping(trace: Trace, unit: str) -> str | None:
    # None: every token or patch by itself.
    return "word" if _has_words(trace, unit) else None


def _has_words(trace: Trace, unit: str) -> bool:
    # Without offsets (no fast tokenizer) it is not known which tokens form a word.
    return unit == "word" and not trace.is_image and _get_input(trace).offsets is not None


def _group_words(trace: Trace, indices: Sequence[int]) -> list[list[int]]:
    features = make_features(trace, "word")
    words: dict[int, list[int]] = {}
    for index in indices:
        words.setdefault(int(features.labels[index]), []).append(index)
    return list(words.values())


def mask_hidden_tokens(trace: Trace, hidden: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return a mask per list of hidden tokens (True = present); raise BadInput for tokens that cannot be hidden."""
    columns = number_hideable_tokens(trace)
    masks = torch.ones(len(hidden), len(columns), dtype=torch.bool)
    for mask, indices in zip(masks, hidden, strict=True):
        mask[[_find_column(columns, index) for index in indices]] = False
    return masks


def _find_column(columns: Mapping[int, int], index: int) -> int:
    if index not in columns:
        raise BadInput(
            f"Invalid token {index}: tokens {min(columns)} … {max(columns)} can be hidden, except special ones."
        )
    return columns[index]
