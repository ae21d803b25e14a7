"""How far the methods of one call agree on an input."""

from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec
from clearhead.explanation import Explanation
from clearhead.perturbation.ranking import centred_ranks
from clearhead.trust.relevances import list_relevances


def measure_agreement(specs: Sequence[MethodSpec], explanations: Sequence[Explanation]) -> list[float | None]:
    """Return for each method its mean rank correlation with the other methods, over the words or patches of one input.

    None without other methods, and for a single word. Noise that others are compared with counts for no other method.
    """
    # Before the words are found, which takes longer than the rest.
    if len(specs) < 2:
        return [None]
    relevances = list(map(list_relevances, explanations))
    # A single word has no order.
    if len(relevances[0]) < 2:
        return [None] * len(specs)
    return list(map(_mean_where, correlate_ranks(relevances), _find_others(specs)))


def _find_others(specs: Sequence[MethodSpec]) -> Array:
    """Return for each method which methods it is compared with (methods × methods)."""
    counted_M = [not spec.method.is_control for spec in specs]
    others_MM = np.tile(counted_M, (len(specs), 1))
    np.fill_diagonal(others_MM, False)
    return others_MM


def correlate_ranks(relevances: Sequence[Array]) -> Array:
    """Return Spearman's correlation of every two methods (methods × methods); 0 where one is constant."""
    scaled_MU = _stack_ranks(relevances)
    correlation_MM: Array = scaled_MU @ scaled_MU.T
    return correlation_MM


def _stack_ranks(relevances: Sequence[Array]) -> Array:
    return np.stack(list(map(_scale_ranks, relevances)))


def _scale_ranks(relevance_U: Array) -> Array:
    """Return ranks with mean zero and norm one."""
    rank_U = centred_ranks(relevance_U)
    # A constant has ranks of zero, whatever they are divided by.
    scaled_U: Array = rank_U / (np.linalg.norm(rank_U) or 1)
    return scaled_U


def _mean_where(values: Array, chosen: Array) -> float | None:
    return float(values[chosen].mean()) if chosen.any() else None
