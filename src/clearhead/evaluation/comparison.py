"""Every two methods compared on each value of a metric, corrected for the number of comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from clearhead.evaluation.metric import MetricSpec
from clearhead.evaluation.paired_tests import Difference, Sample, compare_samples, draw_sample, holm
from clearhead.evaluation.statistics import Repeats

Compared = tuple[str, str, dict[str, Difference]]
"""Two methods, and their difference for each value of a metric."""


def compare_methods(spec: MetricSpec, records: Mapping[str, Repeats], seed: int) -> list[Compared]:
    """Test every two methods on a metric; `records` are by method."""
    samples = {method: draw_sample(spec, repeats, seed=seed) for method, repeats in records.items()}
    return [_compare_pair(samples, pair) for pair in combinations(records, 2)]


def _compare_pair(samples: Mapping[str, Sample], pair: tuple[str, str]) -> Compared:
    first, second = pair
    return first, second, compare_samples(samples[first], samples[second])


def difference_rows(metric_text: str, compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return a row for each value and pair of methods, corrected for as many comparisons as there are pairs."""
    # A single method has nothing to be compared with.
    if not compared:
        return []
    rows = []
    for value_name in compared[0][2]:
        rows.extend(_value_rows(metric_text, value_name, compared))
    return rows


def _value_rows(metric_text: str, value_name: str, compared: Sequence[Compared]) -> list[dict[str, Any]]:
    # One family of comparisons per value: other values and metrics are other questions.
    corrected = holm(_p_values(value_name, compared))
    return [_difference_row(metric_text, value_name, *entry) for entry in zip(compared, corrected, strict=True)]


def _p_values(value_name: str, compared: Sequence[Compared]) -> list[float]:
    return [by_value[value_name].p for _, _, by_value in compared]


def _difference_row(metric_text: str, value_name: str, compared: Compared, p_corrected: float) -> dict[str, Any]:
    first, second, by_value = compared
    row = {"metric": metric_text, "part": value_name, "first": first, "second": second}
    return {**row, **asdict(by_value[value_name]), "p_corrected": p_corrected}
