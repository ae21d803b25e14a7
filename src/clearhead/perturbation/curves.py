"""Deletion and insertion curves: the target's score as the most relevant features are hidden, or alone revealed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import REDUCTIONS, Explanation
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.ranking import equal_shares, removal_counts, sort_descending
from clearhead.perturbation.run import invert_order, perturbed_scores

STEPS = 10
RANDOM = "random order"
RANDOM_ORDERS = 5


@dataclass(frozen=True)
class RemovalCurve:
    """The target's score at each step of hiding or revealing features, averaged over `orders` orders of them.

    `counts` are the features hidden (or revealed) at each step, `shares` the steps from 0 to 1. `low` and `high` are
    the lowest and highest score over the orders, None for a single order.
    """

    counts: tuple[int, ...]
    shares: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    orders: int = 1


def removal_curves(
    model: Model,
    source: Any,
    explanations: Mapping[str, Explanation],
    *,
    unit: str | None = None,
    steps: int = STEPS,
    reveal: bool = False,
) -> dict[str, RemovalCurve]:
    """Return a curve per explanation of one input, and one of random orders under the name "random order".

    The most relevant features are hidden first or, with `reveal`, shown first while all others are hidden. At each of
    the equal steps ⌈share · features⌉ are. `unit` is "sub-word" (default) or "word"; images have patches.
    """
    batch = as_inputs(model, [source])
    (features,) = group_features(model, batch, unit)
    orders = _orders_by_name(explanations, features)
    # Curves of different targets could not be compared: the first explanation's target is scored for all.
    target = next(iter(explanations.values())).target
    shares = equal_shares(steps)
    counts = removal_counts(shares, features.count)
    # One call for all orders: their masks share batches, and equal ones are computed once.
    every_order = list(chain.from_iterable(orders.values()))
    scores_OK = score_orders(model, batch, target, every_order, counts, features=features, reveal=reveal)
    return _average_by_name(orders, scores_OK, counts, shares)


def _orders_by_name(explanations: Mapping[str, Explanation], features: Features) -> dict[str, list[list[int]]]:
    """Return one order of the features per explanation, and the random orders."""
    orders = {}
    for name, explanation in explanations.items():
        orders[name] = [rank_order(explanation, features)]
    # Last, so that an explanation of this name does not hide them.
    orders[RANDOM] = random_orders(features.count)
    return orders


def _average_by_name(
    orders: Mapping[str, Sequence[Sequence[int]]], scores_OK: Array, counts: Sequence[int], shares: Sequence[float]
) -> dict[str, RemovalCurve]:
    """Return a curve per name, from the rows of scores in the order of the names."""
    curves = {}
    start = 0
    for name, own_orders in orders.items():
        stop = start + len(own_orders)
        curves[name] = average_orders(scores_OK[start:stop], counts, shares)
        start = stop
    return curves


def rank_order(explanation: Explanation, features: Features) -> list[int]:
    """Return the features' indices, most relevant first, ties by position."""
    order: list[int] = sort_descending(feature_relevance(explanation, features)).tolist()
    return order


def feature_relevance(explanation: Explanation, features: Features) -> Array:
    """Return the relevance of each feature: the sum over its tokens, of words what `words` shows."""
    if explanation.grid is not None:
        return _patch_relevance(explanation, features.kind)
    if features.kind == "word" and explanation.word_reduction != "sum":
        return np.array(list(_reduce_words(explanation, features)))
    return _sum_tokens(explanation.relevance, features)


def _reduce_words(explanation: Explanation, features: Features) -> Iterator[float]:
    reduce = REDUCTIONS[explanation.word_reduction]
    for tokens_T in _select_tokens(features):
        yield reduce(explanation.relevance[tokens_T])


def _select_tokens(features: Features) -> Iterator[Array]:
    """Yield which tokens each feature has."""
    for number in range(1, features.count + 1):
        yield features.labels.numpy() == number


def _patch_relevance(explanation: Explanation, unit: str) -> Array:
    # Relevance of an image is per patch: other features have no sum of it.
    if unit != "patch":
        raise BadOption(f"Invalid unit={unit!r}: the curves of an image hide patches.")
    return explanation.relevance[~explanation.special]


def _sum_tokens(relevance_T: Array, features: Features) -> Array:
    sums: Array = np.bincount(features.labels.numpy(), relevance_T, minlength=features.count + 1)
    # Label 0 stands for special tokens, which belong to no feature.
    return sums[1:]


def random_orders(count: int, orders: int = RANDOM_ORDERS) -> list[list[int]]:
    """Return random orders of so many features, seeded with 0, 1 …"""
    return [np.random.default_rng(seed).permutation(count).tolist() for seed in range(orders)]


def score_orders(
    model: Model,
    inputs: Inputs,
    target: Target,
    orders: Sequence[Sequence[int]],
    counts: Sequence[int],
    *,
    features: Features | None = None,
    reveal: bool = False,
    replacement: str | None = None,
) -> Array:
    """Return the target's score with the first features of each order hidden or revealed (orders × counts).

    An order lists all features of the one input by index; without `features` these are sub-words or patches.
    """
    masks = torch.cat([removal_masks(order, counts, reveal=reveal) for order in orders])
    units = None
    if features is not None:
        units = [features]
    (scores,) = perturbed_scores(model, inputs, [masks], [target], units, replacement=replacement)
    return scores.reshape(len(orders), len(counts)).cpu().numpy()


def removal_masks(order: Sequence[int], counts: Sequence[int], *, reveal: bool = False) -> Tensor:
    """Return which features are present (counts × features) when the first `count` of an order are hidden.

    With `reveal` the first `count` are present and all others hidden.
    """
    first_KU = _first_features(order, counts)
    if reveal:
        return first_KU
    return ~first_KU


def _first_features(order: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Return which features are among the first `count` of an order, for each count (K,U)."""
    rank_U = invert_order(torch.tensor(order, dtype=torch.long), len(order))
    return rank_U < torch.tensor(counts)[:, None]


def average_orders(scores_OK: Array, counts: Sequence[int], shares: Sequence[float]) -> RemovalCurve:
    """Return the mean over orders at each step and, for several orders, their range."""
    curve = RemovalCurve(tuple(counts), tuple(shares), _as_numbers(scores_OK.mean(0)))
    # The range of a single order would be the curve itself.
    if len(scores_OK) == 1:
        return curve
    low = _as_numbers(scores_OK.min(0))
    high = _as_numbers(scores_OK.max(0))
    return replace(curve, low=low, high=high, orders=len(scores_OK))


def _as_numbers(score_K: Array) -> tuple[float, ...]:
    return tuple(score_K.tolist())
