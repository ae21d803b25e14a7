"""How far two explanations of the same input agree, on the units that both have."""

import math
from collections.abc import Iterator, Sequence
from itertools import starmap

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadInput
from clearhead.model.images import resize_map
from clearhead.model_diff import Agreement, Reasons, Span
from clearhead.perturbation.ranking import sort_descending, spearman

MAX_TOP = 5
TOP_SHARE = 1 / 3
"""The strongest units that are compared: a third of all, but five at most."""


def compare_reasons(first: Reasons, second: Reasons) -> Agreement:
    """Return how far two models have the same reasons for one input."""
    shares = align_shares(first, second, first.shares, second.shares)
    return Agreement(correlate_shares(*shares), _overlap_top(*shares), _measure_shift(*shares))


def align_shares(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> tuple[Array, Array]:
    """Return the shares (or others by unit, such as those at a block) of the units that both models have."""
    _require_same_kind(first, second)
    if first.grid != second.grid:
        return _align_patches(first, second, first_U, second_U)
    if first.spans != second.spans:
        return _align_words(first, second, first_U, second_U)
    _require_same_length(first, second)
    return first_U, second_U


def _require_same_kind(first: Reasons, second: Reasons) -> None:
    if first.kind != second.kind:
        raise BadInput(
            f"Example '{first.id}' is explained by its {first.kind}s in one model and by its {second.kind}s in the "
            "other: give texts, not tensors, and load both models with their tokenizers."
        )


def _require_same_length(first: Reasons, second: Reasons) -> None:
    if len(first.shares) != len(second.shares):
        raise BadInput(
            f"Example '{first.id}' has {len(first.shares)} tokens in one model and {len(second.shares)} in the other, "
            "and no text whose words could be compared: use tokenizers that know the places of their tokens."
        )


def _align_words(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> tuple[Array, Array]:
    common = set(first.spans) & set(second.spans)
    return _select(first, first_U, common), _select(second, second_U, common)


def _select(reasons: Reasons, share_U: Array, spans: set[Span]) -> Array:
    is_common_U = np.array([span in spans for span in reasons.spans], dtype=bool)
    return _scale(share_U[is_common_U])


def _align_patches(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> tuple[Array, Array]:
    """Return two maps at the resolution of the coarser one."""
    shape = min(_grid(first), _grid(second), key=math.prod)
    return _resize(first, first_U, shape), _resize(second, second_U, shape)


def _grid(reasons: Reasons) -> tuple[int, int]:
    # Reasons of the same kind have all a grid, or none.
    assert reasons.grid is not None
    return reasons.grid


def _resize(reasons: Reasons, share_U: Array, shape: tuple[int, int]) -> Array:
    return _scale(resize_map(share_U.reshape(_grid(reasons)), *shape).flatten())


def _scale(share_U: Array) -> Array:
    """Scale shares so that their absolute values add up to one again."""
    scaled_U: Array = share_U / (np.abs(share_U).sum() or 1)
    return scaled_U


def correlate_shares(first_U: Array, second_U: Array) -> float:
    """Return Spearman's correlation; 1 for equal shares, which may be constant, and for a single unit."""
    if len(first_U) == 1 or np.array_equal(first_U, second_U):
        return 1.0
    return spearman(first_U, second_U)


def _overlap_top(first_U: Array, second_U: Array) -> float:
    """Return which part of the strongest units of one are among those of the other, and have the same sign."""
    count = min(MAX_TOP, math.ceil(TOP_SHARE * len(first_U)))
    common = _find_top(first_U, count) & _find_top(second_U, count)
    # Without common units there is nothing to disagree about.
    return len(common) / count if count else 1.0


def _find_top(share_U: Array, count: int) -> set[tuple[int, float]]:
    top = sort_descending(np.abs(share_U))[:count]
    return set(zip(top.tolist(), np.sign(share_U[top]).tolist(), strict=True))


def _measure_shift(first_U: Array, second_U: Array) -> float:
    # Half, because what one unit gains others lose: a shift of 1 means that nothing is where it was.
    return float(np.abs(first_U - second_U).sum() / 2)


def correlate_blocks(pairs: Sequence[tuple[Reasons, Reasons]]) -> tuple[float, ...]:
    """Return the mean rank correlation at each block of the first model; empty if a model has no shares by block.

    Where models have different numbers of blocks, those at the same relative depth are compared.
    """
    correlations = list(starmap(_correlate_example, pairs))
    if not all(correlations):
        return ()
    return tuple(np.mean(correlations, axis=0).tolist())


def _correlate_example(first: Reasons, second: Reasons) -> list[float]:
    if first.blocks is None or second.blocks is None:
        return []
    return [
        correlate_shares(*align_shares(first, second, first_U, second_U))
        for first_U, second_U in _match_blocks(first.blocks, second.blocks)
    ]


def _match_blocks(first_LU: Array, second_LU: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the shares at each block of the first model, and at the block of the second that ends at the same depth."""
    # Blocks are matched by where they end: the last of both models is always compared.
    ratio = len(second_LU) / len(first_LU)
    for number, first_U in enumerate(first_LU):
        yield first_U, second_LU[max(0, round((number + 1) * ratio) - 1)]
