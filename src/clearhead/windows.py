"""Texts longer than the model takes: overlapping windows, explained one by one and stitched together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from clearhead.batching import progress
from clearhead.errors import Argument, BadInput, UnsupportedModel
from clearhead.execution import plain_inference
from clearhead.explanation import Explanation
from clearhead.inputs import Encoded, Inputs, Item, collate
from clearhead.method import Spelling
from clearhead.model import Model, longest
from clearhead.outputs import logits_of
from clearhead.target import Target, TargetLike

ExplainBatch = Callable[[Model, Inputs, Sequence[TargetLike], Sequence[Spelling]], list[list[Explanation]]]


def needs_windows(model: Model, one: Any, long: str) -> bool:
    """Whether this text was asked to be cut into windows and is too long for one."""
    limit = longest(model)
    if long != "windows" or model.takes_images or limit is None or model.processor is None:
        return False
    return token_count(model, one) > limit


def token_count(model: Model, one: Any) -> int:
    """How many tokens a text or pair has, whatever the model takes."""
    segments = one if isinstance(one, tuple) else (one,)
    return len(model.processor(*segments, truncation=False, verbose=False)["input_ids"])


def explain_windows(
    model: Model,
    text: Any,
    target: TargetLike,
    spellings: Sequence[Spelling],
    size: int,
    explain_batch: ExplainBatch,
) -> list[Explanation]:
    """Explains half-overlapping windows for one common target; a token in two windows gets their mean.

    Without a target, the class with the highest logit averaged over the windows is explained in all of them.
    """
    windows = windows_of(model, text)
    step = size if model.can_pad else 1
    parts = [windows[start : start + step] for start in range(0, len(windows), step)]
    predicted = target is None or (isinstance(target, Target) and target.index is None)
    rows: list[list[Explanation]] = []
    with progress(len(windows) * (1 + predicted), "windows") as advance:
        if predicted:
            target = Target(_prediction(model, parts, advance))
        for part in parts:
            rows += explain_batch(model, collate(model, part), [target] * len(part), spellings)
            advance(len(part))
    return [_stitched(text, [row[place] for row in rows]) for place in range(len(spellings))]


def windows_of(model: Model, text: Any) -> list[Encoded]:
    """The half-overlapping windows of a text; what has none is refused."""
    if not isinstance(text, str):
        cut = Argument("long", "truncate")
        raise BadInput("A pair of texts cannot be cut into windows: use ", cut, ", or explain shorter texts.")
    if model.problem == "span":
        raise UnsupportedModel("Windows are not defined for answer spans: give the passage that holds the answer.")
    limit = longest(model)
    assert limit is not None
    tokenizer = model.processor
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModel("Windows need a fast tokenizer, which knows where tokens lie in the text.")
    inside = limit - tokenizer.num_special_tokens_to_add()
    cut = tokenizer(
        text,
        truncation=True,
        max_length=limit,
        stride=inside // 2,
        return_overflowing_tokens=True,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    names = [name for name in cut if name in ("input_ids", "attention_mask", "token_type_ids")]
    return [_window(tokenizer, text, cut, names, place) for place in range(len(cut["input_ids"]))]


def _window(tokenizer: Any, text: str, cut: Any, names: list[str], place: int) -> Encoded:
    ids = cut["input_ids"][place]
    item = Item(
        tuple(tokenizer.convert_ids_to_tokens(ids)),
        tuple(bool(flag) for flag in cut["special_tokens_mask"][place]),
        text,
        tuple((start, end) for start, end in cut["offset_mapping"][place]),
    )
    return Encoded(item, {name: list(cut[name][place]) for name in names})


def _prediction(model: Model, parts: Sequence[Sequence[Encoded]], advance: Callable[[int], None]) -> int:
    logits = []
    for part in parts:
        logits.append(window_logits(model, part))
        advance(len(part))
    return int(torch.cat(logits).mean(0).argmax())


def window_logits(model: Model, windows: Sequence[Encoded]) -> torch.Tensor:
    """What the model says of each window."""
    tensors = collate(model, windows).tensors
    with plain_inference(model.network, model.device):
        return logits_of(model, model.network(**tensors))


def _stitched(text: str, parts: list[Explanation]) -> Explanation:
    """One explanation of the whole text; special tokens of the first window stand for all."""
    first = parts[0]
    sums: dict[tuple[int, ...], list[tuple[str, float, Any]]] = {}
    for part in parts:
        for place in np.flatnonzero(~part.special):
            column = None if part.layers is None else part.layers[:, place]
            offset = (part.offsets or ())[place]
            sums.setdefault(offset, []).append((part.tokens[place], part.relevance[place], column))
    order = sorted(sums)
    probabilities = [part.probability for part in parts if part.probability is not None]
    layers = [np.mean([entry[2] for entry in sums[offset]], 0) for offset in order if first.layers is not None]
    return replace(
        first,
        tokens=tuple(sums[offset][0][0] for offset in order),
        relevance=np.array([np.mean([entry[1] for entry in sums[offset]]) for offset in order]),
        special=np.zeros(len(order), dtype=bool),
        text=text,
        offsets=tuple(order),
        layers=np.stack(layers, 1) if layers else None,
        probability=float(np.mean(probabilities)) if probabilities else None,
        diagnostics={**_worst(parts), "windows": len(parts)},
    )


def _worst(parts: list[Explanation]) -> dict[str, Any]:
    """Gaps are the largest of any window; everything else is the first window's."""
    merged = dict(parts[0].diagnostics)
    for key in merged:
        if key.endswith("_gap") or key == "dropped":
            merged[key] = max(part.diagnostics[key] for part in parts)
    return merged
