"""Evidence in a summary: who leads on each value, which differences a test shows, and what beats the control."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

from clearhead.bench.controls import is_control
from clearhead.bench.format import ARROWS

# Significance level of the corrected p-values.
LEVEL = 0.05
Row = Mapping[str, Any]
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """On one value: the best method, and those not shown to be worse; `shown` if it beats all others."""

    name: str
    best: str
    leading: tuple[str, ...]
    shown: bool


class Evidence:
    """The values, tests and costs of a summary, by value name and method."""

    def __init__(self, summary: Summary) -> None:
        self.better = _select_judged(summary["values"])
        self.costs: Mapping[str, float] = summary["costs"]
        self.methods: Sequence[str] = summary["methods"]
        # By value name and method, with NaN where nothing could be measured.
        self.values = _group_values(summary["rows"])
        self.p_values = _index_tests(summary["comparisons"])
        # Last, because ranking reads the values and tests.
        self.standings = list(self._rank_all())

    @property
    def candidates(self) -> list[str]:
        """Return the methods that can be recommended: all but the controls."""
        return list(filterfalse(is_control, self.methods))

    @property
    def control(self) -> str | None:
        """Return the first control of the run, None if none was run."""
        return next(filter(is_control, self.methods), None)

    def _rank_all(self) -> Iterator[Standing]:
        for name in self.better:
            values = _select_finite(self.measured(name))
            if values:
                yield self._rank(name, values)

    def _rank(self, name: str, values: Mapping[str, float]) -> Standing:
        best = self._find_best(name, values)
        leading = self._find_leading(name, best, values)
        # The only method is not better than anything.
        is_shown = len(values) > 1 and leading == (best,)
        return Standing(name, best, leading, is_shown)

    def _find_best(self, name: str, values: Mapping[str, float]) -> str:
        # Of equal values the first method is the best, as methods are listed.
        choose = min if self._is_lower_better(name) else max
        return choose(values, key=values.__getitem__)

    def _find_leading(self, name: str, best: str, methods: Mapping[str, float]) -> tuple[str, ...]:
        """Return the best method and those that no test shows to differ from it."""
        # No test compares a method with itself, so the best is among them.
        return tuple(method for method in methods if not self.differ(name, best, method))

    def _is_lower_better(self, name: str) -> bool:
        return self.better[name] == "lower"

    def measured(self, name: str) -> Mapping[str, float]:
        """Return the value of every method that was measured."""
        return self.values.get(name, {})

    def differ(self, name: str, first: str, second: str) -> bool:
        """Return whether a test shows that the two methods differ; methods without a test count as equal."""
        pair = frozenset((first, second))
        return self.p_values.get((name, pair), math.inf) < LEVEL

    def beats_control(self, name: str, method: str) -> bool:
        """Return whether a method's value is better than the control's, and a test shows it."""
        control = self.control
        if control is None:
            return False
        # The test is two-sided, so the sign of the difference decides who is better.
        return self._is_better(name, method, control) and self.differ(name, control, method)

    def _is_better(self, name: str, method: str, reference: str) -> bool:
        # NaN where a method was not measured: it is neither higher nor lower than anything.
        value = self.measured(name).get(method, math.nan)
        reference_value = self.measured(name).get(reference, math.nan)
        if self._is_lower_better(name):
            return value < reference_value
        return value > reference_value

    def count_wins(self, method: str) -> int:
        """Return on how many values a method is shown to beat the control."""
        return sum(self.beats_control(standing.name, method) for standing in self.standings)

    def count_leads(self, method: str) -> int:
        """Return on how many values a method is best or not shown to be worse than the best."""
        return sum(method in standing.leading for standing in self.standings)

    def count_best(self, method: str) -> int:
        """Return on how many values a method has the best value."""
        return sum(method == standing.best for standing in self.standings)

    def cost(self, method: str) -> float:
        """Return the seconds per example; infinity if they were not measured, so that the method comes last."""
        return self.costs.get(method) or math.inf


def _select_finite(values: Mapping[str, float]) -> dict[str, float]:
    return {method: value for method, value in values.items() if math.isfinite(value)}


def _select_judged(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that have a better direction; others are described, not judged."""
    return {name: better for name, better in values.items() if better in ARROWS}


def _group_values(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        values.setdefault(row["name"], {})[row["method"]] = row["value"]
    return values


def _index_tests(comparisons: Sequence[Row]) -> dict[tuple[str, frozenset[str]], float]:
    """Return the corrected p-value by value name and pair of methods."""
    return {(comparison["name"], _find_pair(comparison)): comparison["p_corrected"] for comparison in comparisons}


def _find_pair(comparison: Row) -> frozenset[str]:
    # Unordered, because a test of two methods holds in both directions.
    return frozenset((comparison["first"], comparison["second"]))
