"""From the scores of groups of units, hidden and shown, to a verdict on the explanation."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import permutations

import numpy as np

from clearhead.arrays import Array
from clearhead.check import FAILS, HOLDS, WEAK

LEVEL = 0.05
# Probabilities and logits differ by less than this because of rounding alone, as batches have different widths.
TOLERANCE = 1e-5
SMALLEST_PROBABILITY = 1e-12
# All orders of up to 7 groups are listed; of more groups a random sample is drawn.
MAX_ORDERS = 5040


@dataclass(frozen=True, eq=False)
class Trial:
    """Scores of groups of units, the strongest first: with nothing else shown, and with them hidden.

    If the explanation ordered the units at random, each order of the groups' scores would be as likely as any other:
    that makes the rank of the observed trend among all orders an exact test, whatever the distribution of the scores.
    `unit` is the size of scores that have none of their own, such as prices: their rounding errors are relative to it.
    """

    shown_G: Array
    hidden_G: Array
    are_probabilities: bool = True
    seed: int = 0
    unit: float = 1.0

    @property
    def _tolerance(self) -> float:
        return TOLERANCE * self.unit

    @cached_property
    def _effects_G(self) -> Array:
        """How much each group does: its score alone, less the score without it; of probabilities the log-odds."""
        if self.are_probabilities:
            return _log_odds(self.shown_G) - _log_odds(self.hidden_G)
        return self.shown_G - self.hidden_G

    @cached_property
    def trend(self) -> float:
        """How far the effects fall from the strongest group to the weakest; 0 on average over all orders."""
        return float(self._effects_G @ self._weights_G)

    @property
    def _weights_G(self) -> Array:
        # Cubed: explanations say most about the strongest and the weakest, the middle is often noise.
        return np.linspace(1, -1, len(self.shown_G)) ** 3

    @cached_property
    def _trends(self) -> Array:
        """The trends of other orders of the same effects."""
        trends: Array = self._reorder_effects() @ self._weights_G
        return trends

    def _reorder_effects(self) -> Array:
        return self._effects_G[list_orders(len(self.shown_G), self.seed)]

    @cached_property
    def p_value(self) -> float:
        """The chance that a random order of the units has as clear a trend."""
        return rank_p_value(self._trends >= self.trend - self._tolerance)

    @property
    def percentile(self) -> float:
        """The share of random orders whose trend is less clear."""
        return float((self._trends < self.trend - self._tolerance).mean())

    @property
    def verdict(self) -> str:
        is_significant = self.p_value <= LEVEL
        if is_significant and self._is_needed:
            return HOLDS
        if self.trend <= self._tolerance or not (is_significant or self._is_needed):
            return FAILS
        return WEAK

    @property
    def _is_needed(self) -> bool:
        """Whether the score falls more without the strongest units than without others."""
        return bool(self.hidden_G[1:].mean() - self.hidden_G[0] > self._tolerance)


def rank_p_value(as_good: Array) -> float:
    """Return the exact p-value of a result, from which of some random ones are as good."""
    # The result itself is one of those that chance may bring.
    return float(1 + as_good.sum()) / (1 + len(as_good))


def _log_odds(probability_G: Array) -> Array:
    # Close to 0 and 1 probabilities hide differences that odds still show.
    clipped_G = np.clip(probability_G, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    odds_G: Array = np.log(clipped_G) - np.log1p(-clipped_G)
    return odds_G


def list_orders(groups: int, seed: int) -> Array:
    """Return all orders of some groups but the first, which is their own, or as many random ones as are affordable."""
    if math.factorial(groups) <= MAX_ORDERS:
        return _list_all_orders(groups)
    return _draw_orders(groups, seed)


@cache
def _list_all_orders(groups: int) -> Array:
    return np.array(list(permutations(range(groups)))[1:])


def _draw_orders(groups: int, seed: int) -> Array:
    orders_PG = np.tile(np.arange(groups), (MAX_ORDERS, 1))
    np.random.default_rng(seed).permuted(orders_PG, axis=1, out=orders_PG)
    return orders_PG
