"""From the scores of hidden and shown units to a verdict on the explanation."""

from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.check import FAILS, HOLDS, WEAK

LEVEL = 0.05
# Scores differ by less than this because of rounding alone, as batches have different widths.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Trial:
    """Scores with only some units shown, and with some units hidden: of the strongest first, then of random sets."""

    shown_S: Array
    hidden_S: Array

    @property
    def p_value(self) -> float:
        """The chance that a random set is as good as the strongest units, by the rank among random sets.

        Exact: if the strongest units were a random set themselves, each rank would be as likely as any other.
        """
        as_good = self.shown_S[1:] >= self.shown_S[0] - TOLERANCE
        return float(1 + as_good.sum()) / len(self.shown_S)

    @property
    def percentile(self) -> float:
        """The share of random sets that the strongest units beat."""
        return float((self.shown_S[1:] < self.shown_S[0] - TOLERANCE).mean())

    @property
    def is_needed(self) -> bool:
        """Whether the score falls more without the strongest units than without random ones."""
        return bool(self.hidden_S[1:].mean() - self.hidden_S[0] > TOLERANCE)

    @property
    def verdict(self) -> str:
        is_significant = self.p_value <= LEVEL
        if is_significant and self.is_needed:
            return HOLDS
        if not self._beats_median or not (is_significant or self.is_needed):
            return FAILS
        return WEAK

    @property
    def _beats_median(self) -> bool:
        return bool(self.shown_S[0] - np.median(self.shown_S[1:]) > TOLERANCE)
