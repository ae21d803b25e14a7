"""Deletion and insertion curves: the target's score as the most relevant features are hidden, or alone revealed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.ranking import equal_shares, removal_counts
from clearhead.perturbation.run import perturbed_scores

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
    orders = {name: [rank_order(explanation, features)] for name, explanation in explanations.items()}
    orders[RANDOM] = random_orders(features.count)
    target = next(iter(explanations.values())).target
    shares = equal_shares(steps)
    counts = removal_counts(shares, features.count)
    # One call for all orders: their masks share batches, and equal ones are computed once.
    every = list(chain.from_iterable(orders.values()))
    scores_OK = score_orders(model, batch, target, every, counts, features=features, reveal=reveal)
    sections = np.split(scores_OK, np.cumsum(list(map(len, orders.values())))[:-1])
    return {name: average_orders(rows, counts, shares) for name, rows in zip(orders, sections, strict=True)}


def rank_order(explanation: Explanation, features: Features) -> list[int]:
    """Return the features' indices, most relevant first, ties by position."""
    order: list[int] = np.argsort(-feature_relevance(explanation, features), kind="stable").tolist()
    return order


def feature_relevance(explanation: Explanation, features: Features) -> Array:
    """Return the relevance of each feature: the sum over its tokens."""
    if explanation.grid is None:
        sums: Array = np.bincount(features.labels.numpy(), explanation.relevance, minlength=features.count + 1)
        return sums[1:]
    if features.kind != "patch":
        raise BadOption(f"Invalid unit={features.kind!r}: the curves of an image hide patches.")
    return explanation.relevance[~explanation.special]


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
    units = None if features is None else [features]
    (scores,) = perturbed_scores(model, inputs, [masks], [target], units, replacement=replacement)
    return scores.reshape(len(orders), len(counts)).cpu().numpy()


def removal_masks(order: Sequence[int], counts: Sequence[int], *, reveal: bool = False) -> Tensor:
    """Return which features are present (counts × features) when the first `count` of an order are hidden.

    With `reveal` the first `count` are present and all others hidden.
    """
    rank_U = torch.empty(len(order), dtype=torch.long)
    rank_U[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
    first_KU = rank_U[None, :] < torch.tensor(counts)[:, None]
    return first_KU if reveal else ~first_KU


def average_orders(scores_OK: Array, counts: Sequence[int], shares: Sequence[float]) -> RemovalCurve:
    """Return the mean over orders at each step and, for several orders, their range."""
    mean = tuple(scores_OK.mean(0).tolist())
    if len(scores_OK) == 1:
        return RemovalCurve(tuple(counts), tuple(shares), mean)
    low = tuple(scores_OK.min(0).tolist())
    high = tuple(scores_OK.max(0).tolist())
    return RemovalCurve(tuple(counts), tuple(shares), mean, low, high, orders=len(scores_OK))
