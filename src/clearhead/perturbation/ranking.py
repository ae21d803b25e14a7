"""Rank features by relevance and decide at which share of a deletion or insertion curve each is removed.

The first share that includes a token or pixel is its stage. A stage is one feature of the perturbation engine, so a
text of ten tokens and an image of fifty thousand pixels need equally few mask columns.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.model.images import resize_map
from clearhead.model.model import Model
from clearhead.perturbation.token_replacement import token_id

ROUNDING_SLACK = 1e-9


def removal_counts(shares: Sequence[float], total: int) -> list[int]:
    """Return ⌈share · total⌉ for each share."""
    # Without the slack a whole number that rounding put just above itself would be rounded up to the next.
    return [min(total, math.ceil(share * total - ROUNDING_SLACK)) for share in shares]


def sort_descending(values: Array) -> Array:
    """Return the indices of the values, highest first, ties by position."""
    # Stable: NumPy's default sort orders ties differently from one CPU to the next.
    return np.argsort(-values, kind="stable")


def rank_features(relevance: Array, *, lowest: bool = False) -> Array:
    """Return the rank of each feature: 0 for the most relevant (or the least), ties by position."""
    if lowest:
        relevance = -relevance
    order = sort_descending(relevance)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def spearman(first: Array, second: Array) -> float:
    """Return Pearson's correlation of ranks, ties sharing their mean rank; 0 where one input is constant."""
    first_ranks = centred_ranks(first)
    second_ranks = centred_ranks(second)
    scale = float(np.sqrt((first_ranks**2).sum() * (second_ranks**2).sum()))
    if not scale:
        return 0.0
    return float((first_ranks * second_ranks).sum()) / scale


def centred_ranks(values: Array) -> Array:
    """Return ranks, shared by equal values, less their mean."""
    _, inverse, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = _shared_ranks(sizes)[inverse]
    return ranks - (len(values) - 1) / 2


def _shared_ranks(sizes: Array) -> Array:
    """Return the mean rank of each group of equal values, in rising order."""
    # Equal values occupy the ranks end − size … end − 1.
    ends: Array = np.cumsum(sizes)
    return ends - (sizes + 1) / 2


def removal_stages(relevance: Array, shares: Sequence[float], *, lowest: bool = False) -> Array:
    """Return for each feature the index of the first share that includes it, or len(shares)."""
    return _stages_by_rank(shares, len(relevance))[rank_features(relevance, lowest=lowest)]


def _stages_by_rank(shares: Sequence[float], total: int) -> Array:
    # Right of equal limits: at a limit of n the ranks 0 … n − 1 are gone, rank n is not.
    return np.searchsorted(removal_counts(shares, total), np.arange(total), side="right")


def removal_stages_of_maps(relevance_NX: Tensor, shares: Sequence[float], *, lowest: bool = False) -> Tensor:
    """Return the `removal_stages` of many maps (N,X), computed on their device."""
    key_NX = relevance_NX if lowest else -relevance_NX
    # A GPU sorts a NaN by its sign, and puts one with a minus first; NumPy and the CPU put every NaN last.
    key_NX = key_NX.masked_fill(key_NX.isnan(), math.nan)
    # A stable sort by torch orders as NumPy's does, and can be done on a GPU.
    order_NX = torch.argsort(key_NX, dim=1, stable=True)
    stage_X = torch.from_numpy(_stages_by_rank(shares, relevance_NX.shape[1])).to(order_NX.device)
    return torch.empty_like(order_NX).scatter_(1, order_NX, stage_X.expand_as(order_NX))


def pixel_map(explanation: Explanation, height: int, width: int) -> Array:
    """Return the relevance of every pixel of the network's input."""
    # Methods that attribute pixels are not reduced to patches first.
    if explanation.pixels is not None:
        return resize_map(explanation.pixels, height, width)
    return resize_map(_patch_map(explanation), height, width)


def _patch_map(explanation: Explanation) -> Array:
    assert explanation.grid is not None
    return explanation.relevance[~explanation.special].reshape(explanation.grid)


def masked_from_attention(model: Model) -> str | None:
    """Return the replacement of the hiding game: [MASK] without attention, or whichever of the two the model has.

    None, the default replacement, for images.
    """
    if model.takes_images:
        return None
    if not model.takes_mask:
        return "mask"
    if token_id(model, "mask") is None:
        return "attention"
    return "mask-attention"


def equal_shares(steps: int) -> list[float]:
    """Return 0, 1/steps … 1."""
    return [step / steps for step in range(steps + 1)]


def trapezoid(values: Array, shares: Sequence[float]) -> float:
    """Return the area under the values over the shares."""
    heights = (values[1:] + values[:-1]) / 2
    return float((heights * np.diff(shares)).sum())
