"""Tokens or pixels taken away, or shown, in the order of their relevance: what the faithfulness metrics share.

The shares at which a token goes are its stages; a stage is one unit of the perturbation engine, so that the masks are
the same few rows for a text of ten tokens and a picture of fifty thousand pixels.
"""

import math
from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.model.images import resize_map
from clearhead.model.model import Model
from clearhead.perturbation.replacement import token_id

SLACK = 1e-9


def removal_counts(shares: Sequence[float], total: int) -> list[int]:
    """⌈share · total⌉ for each share."""
    return [min(total, math.ceil(share * total - SLACK)) for share in shares]


def rank_features(relevance: Array, *, lowest: bool = False) -> Array:
    """0 for the most relevant (or the least), ties by position."""
    order = np.argsort(relevance if lowest else -relevance, kind="stable")
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order))
    return found


def removal_stages(relevance: Array, shares: Sequence[float], *, lowest: bool = False) -> Array:
    """For each token the number of the first share that includes it, or len(shares)."""
    limits = removal_counts(shares, len(relevance))
    return np.searchsorted(limits, rank_features(relevance, lowest=lowest), side="right")


def pixel_map(explanation: Explanation, height: int, width: int) -> Array:
    """Relevance of every pixel the network sees."""
    assert explanation.grid is not None
    plain = explanation.relevance[~explanation.special].reshape(explanation.grid)
    return resize_map(plain if explanation.pixels is None else explanation.pixels, height, width)


def masked_from_attention(model: Model) -> str | None:
    """[MASK] and no attention, as in the hiding game, or the one of them that there is; black for images."""
    if model.takes_images:
        return None
    if not model.takes_mask:
        return "mask"
    return "attention" if token_id(model, "mask") is None else "mask-attention"


def equal_shares(steps: int) -> list[float]:
    """0, 1/steps … 1."""
    return [step / steps for step in range(steps + 1)]


def trapezoid(values: Array, shares: Sequence[float]) -> float:
    """Area under the values over the shares."""
    return float(((values[1:] + values[:-1]) / 2 * np.diff(shares)).sum())
