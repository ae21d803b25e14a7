"""Paired tests between two methods on the same examples, with Holm's correction for several comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.corrected_t import (
    Moments,
    corrected_bounds,
    measure_moments,
    p_value,
    resampled_moments,
)
from clearhead.evaluation.metric import MetricSpec
from clearhead.evaluation.statistics import (
    LEVEL,
    SAMPLES,
    Repeats,
    Values,
    bootstrap,
    count_filled,
    count_filled_groups,
    estimate,
    finite_values,
    group_numbers,
    mean_column,
)


@dataclass(frozen=True)
class Difference:
    """First minus second, its interval, and the probability of as large a difference by chance.

    `groups` is the number of independent examples among the n; with fewer than `corrected_t.MIN_GROUPS`, p is 1.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    groups: int


@dataclass(frozen=True, eq=False)
class Sample:
    """What a method is compared by: its values per record (N); if they are not means, its values per resample (R).

    `records` and `groups` count those that are not empty; `estimates` are the values that are not means. `largest` is
    the largest size of a difference, as far as it is known.
    """

    values: Values
    group_N: Array
    records: int
    groups: int
    estimates: Mapping[str, float] = field(default_factory=dict)
    largest: float = math.inf


def draw_sample(spec: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, seed: int = 0) -> Sample:
    """Return what a method is compared by, computed once for all its comparisons."""
    counts = (group_numbers(repeats[0]), count_filled(repeats[0]), count_filled_groups(repeats[0]))
    if spec.metric.is_mean:
        return Sample(_mean_columns(spec, repeats), *counts, largest=_find_largest(spec, counts[0]))
    # The same seed draws the same examples for every method, so differences of resamples are paired.
    return Sample(bootstrap(spec, repeats, samples, seed), *counts, estimate(spec, repeats))


def _find_largest(spec: MetricSpec, group_N: Array) -> float:
    """Return the largest size of a difference between records; records of one group are not independent."""
    are_single = len(np.unique(group_N)) == len(group_N)
    return 1.0 if spec.metric.is_share and are_single else math.inf


def _mean_columns(spec: MetricSpec, repeats: Repeats) -> Values:
    return {name: mean_column(repeats, name) for name in spec.metric.values}


def differences(
    spec: MetricSpec, first: Repeats, second: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Difference]:
    """Test two methods on the same examples, for each value of the metric.

    The null hypothesis is that the mean of the examples' differences is 0; they may be skewed (`corrected_t`). Where a
    value is not a mean, the spread and skewness of the difference are those of a bootstrap over examples.
    """
    first_sample = draw_sample(spec, first, samples=samples, seed=seed)
    return compare_samples(first_sample, draw_sample(spec, second, samples=samples, seed=seed), level)


def compare_samples(first: Sample, second: Sample, level: float = LEVEL) -> dict[str, Difference]:
    """Test two methods by their samples, for each value of the metric."""
    # Tests are paired by position, so a missing record would shift all others.
    if len(first.group_N) != len(second.group_N):
        raise _unpaired(len(first.group_N), len(second.group_N))
    return {name: _compare_value(first, second, name, level) for name in first.values}


def _unpaired(first: int, second: int) -> ValueError:
    return ValueError(f"A paired test needs the same examples, not {first} and {second} records.")


def _compare_value(first: Sample, second: Sample, name: str, level: float) -> Difference:
    difference = first.values[name] - second.values[name]
    if first.estimates:
        moments = _resampled_difference(first, second, name, difference)
        return _make_difference(moments, first.records, level)
    moments = replace(measure_moments(difference, first.group_N), largest=first.largest)
    return _make_difference(moments, _count_finite(difference), level)


def _count_finite(value_N: Array) -> int:
    return int(np.isfinite(value_N).sum())


def _resampled_difference(first: Sample, second: Sample, name: str, difference_R: Array) -> Moments:
    observed = first.estimates[name] - second.estimates[name]
    return resampled_moments(observed, finite_values(difference_R), first.groups)


def _make_difference(moments: Moments, count: int, level: float) -> Difference:
    bounds = corrected_bounds(moments, level)
    return Difference(moments.mean, *bounds, p_value(moments), count, moments.groups)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values with Holm's correction for as many comparisons."""
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        scaled = min(1.0, (len(p_values) - rank) * p_values[index])
        # A larger p-value is never corrected to less than a smaller one.
        highest = max(highest, scaled)
        corrected[index] = float(highest)
    return corrected
