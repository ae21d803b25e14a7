"""Evidence in a summary: who leads on each value, which differences a test shows, and what beats the control."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.bench.controls import is_control

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
        self.better: Mapping[str, str] = summary["values"]
        self.costs: Mapping[str, float] = summary["costs"]
        self.methods: Sequence[str] = summary["methods"]
        self.candidates = [method for method in self.methods if not is_control(method)]
        self.control: str | None = next(filter(is_control, self.methods), None)
        # By value name and method, with NaN where nothing could be measured.
        self.values = _group_values(summary["rows"])
        self.p_values = _index_tests(summary["comparisons"])
        self.standings = list(self._rank_all())

    def _rank_all(self) -> Iterator[Standing]:
        for name in self.better:
            finite = {method: value for method, value in self.measured(name).items() if math.isfinite(value)}
            if finite:
                yield self._rank(name, finite)

    def _rank(self, name: str, values: Mapping[str, float]) -> Standing:
        # Of equal values the first method is the best, as methods are listed.
        choose = min if self.better[name] == "lower" else max
        best = choose(values, key=values.__getitem__)
        leading = [method for method in values if method == best or not self.differ(name, best, method)]
        return Standing(name, best, tuple(leading), shown=len(values) > 1 and leading == [best])

    def measured(self, name: str) -> Mapping[str, float]:
        """Return the value of every method that was measured."""
        return self.values.get(name, {})

    def differ(self, name: str, first: str, second: str) -> bool:
        """Return whether a test shows that the two methods differ; methods without a test count as equal."""
        p = self.p_values.get((name, frozenset((first, second))))
        return p is not None and p < LEVEL

    def beats_control(self, name: str, method: str) -> bool:
        """Return whether a method's value is better than the control's, and a test shows it."""
        values = self.measured(name)
        control = self.control
        if control is None or control not in values or method not in values:
            return False
        difference = values[method] - values[control]
        if self.better[name] == "lower":
            difference = -difference
        return difference > 0 and self.differ(name, control, method)

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


def _group_values(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        values.setdefault(row["name"], {})[row["method"]] = row["value"]
    return values


def _index_tests(comparisons: Sequence[Row]) -> dict[tuple[str, frozenset[str]], float]:
    """Return the corrected p-value by value name and pair of methods."""
    tests = {}
    for comparison in comparisons:
        pair = frozenset((comparison["first"], comparison["second"]))
        tests[comparison["name"], pair] = comparison["p_corrected"]
    return tests
