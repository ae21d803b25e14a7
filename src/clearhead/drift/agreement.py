"""How far two explanations of the same input agree, on the units that both have."""

import math
from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadInput
from clearhead.model.images import resize_map
from clearhead.model_diff import PATCH, WORD, Agreement, Reasons
from clearhead.perturbation.ranking import sort_descending, spearman

MAX_TOP = 5
TOP_SHARE = 1 / 3
"""The strongest units that are compared: a third of all, but five at most."""


def compare_reasons(first: Reasons, second: Reasons) -> Agreement:
    """Return how far two models have the same reasons for one input."""
    first_U, second_U = align_shares(first, second, first.shares, second.shares)
    return Agreement(
        correlate_shares(first_U, second_U), _overlap_top(first_U, second_U), _measure_shift(first_U, second_U)
    )


def align_shares(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> tuple[Array, Array]:
    """Return the shares (or others by unit, such as those at a block) of the units that both models have."""
    _require_same_kind(first, second)
    if first.kind == PATCH:
        return _align_patches(first, second, first_U, second_U)
    if first.kind == WORD and first.spans != second.spans:
        common = sorted(set(first.spans) & set(second.spans))
        return _select(first, first_U, common), _select(second, second_U, common)
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


def _select(reasons: Reasons, share_U: Array, spans: Sequence[tuple[int, int, int]]) -> Array:
    numbers = {span: number for number, span in enumerate(reasons.spans)}
    chosen_U = share_U[[numbers[span] for span in spans]]
    return _scale(chosen_U)


def _align_patches(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> tuple[Array, Array]:
    """Return two maps at the resolution of the coarser one."""
    if first.grid == second.grid or first.grid is None or second.grid is None:
        return first_U, second_U
    rows, columns = min(first.grid, second.grid, key=math.prod)
    first_map = resize_map(first_U.reshape(first.grid), rows, columns)
    second_map = resize_map(second_U.reshape(second.grid), rows, columns)
    return _scale(first_map.flatten()), _scale(second_map.flatten())


def _scale(share_U: Array) -> Array:
    """Scale shares so that their absolute values add up to one again."""
    total = np.abs(share_U).sum()
    if not total:
        return share_U
    scaled_U: Array = share_U / total
    return scaled_U


def correlate_shares(first_U: Array, second_U: Array) -> float:
    """Return Spearman's correlation; 1 for equal shares, which may be constant."""
    if np.array_equal(first_U, second_U) or len(first_U) == 1:
        return 1.0
    return spearman(first_U, second_U)


def _overlap_top(first_U: Array, second_U: Array) -> float:
    """Return which part of the strongest units of one are among those of the other, and have the same sign."""
    count = min(MAX_TOP, math.ceil(TOP_SHARE * len(first_U)))
    if not count:
        return 1.0
    return len(_find_top(first_U, count) & _find_top(second_U, count)) / count


def _find_top(share_U: Array, count: int) -> set[tuple[int, float]]:
    top = sort_descending(np.abs(share_U))[:count]
    return {(int(unit), float(np.sign(share_U[unit]))) for unit in top}


def _measure_shift(first_U: Array, second_U: Array) -> float:
    return float(np.abs(first_U - second_U).sum() / 2)


def correlate_blocks(pairs: Sequence[tuple[Reasons, Reasons]]) -> tuple[float, ...]:
    """Return the mean rank correlation at each block of the first model; empty if a model has no shares by block.

    Where models have different numbers of blocks, those at the same relative depth are compared.
    """
    correlations = [_correlate_example(first, second) for first, second in pairs]
    if not all(correlations):
        return ()
    return tuple(map(float, np.mean(correlations, axis=0)))


def _correlate_example(first: Reasons, second: Reasons) -> list[float]:
    if first.blocks is None or second.blocks is None:
        return []
    correlations = []
    for number, first_U in enumerate(first.blocks):
        second_U = second.blocks[_match_depth(number, len(first.blocks), len(second.blocks))]
        correlations.append(correlate_shares(*align_shares(first, second, first_U, second_U)))
    return correlations


def _match_depth(number: int, blocks: int, other_blocks: int) -> int:
    """Return the block that ends at the same part of the depth, or the first one."""
    return max(0, round((number + 1) * other_blocks / blocks) - 1)
