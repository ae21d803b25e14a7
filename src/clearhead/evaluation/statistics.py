"""Intervals of metrics' values over examples, from records alone.

The interval of a mean is Student's, corrected for the skewness of the values (`corrected_t`); that of a share of
examples, whose values are all 0 or 1, is exact. A value that is not a mean (the overlap of two top lists) is resampled:
its spread and skewness are those of a seeded bootstrap. Resampling also moves such a value, because some examples are
drawn twice and others not at all; the interval lies around the estimate. Records of one `group`, such as the parts of
one mosaic, are drawn together and count as one observation.

The records of one method are a list of repeats, each a list with one record per example; all methods but `random`,
which is averaged over seeds, have one repeat.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.corrected_t import corrected_bounds, measure_moments, resampled_moments
from clearhead.evaluation.distributions import share_bounds
from clearhead.evaluation.metric import Curves, MetricSpec, Record, column, count_once, first_row

SAMPLES = 1000
LEVEL = 0.95
# 16 MB of weights in float64.
MAX_BLOCK_ENTRIES = 2_000_000

Repeats = Sequence[Sequence[Record]]
Bounds = tuple[float, float]
Values = dict[str, Array]
"""Values (R) of a metric by name, for R reweightings of the records."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval over n records; the bounds are NaN with a single group of records."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Band:
    """A curve with the interval at each of its points."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def intervals(
    spec: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Interval]:
    """Return each value of the metric with its interval; `samples` and `seed` are of values that are not means."""
    values = estimate(spec, repeats)
    if spec.metric.is_mean:
        bounds = _mean_bounds(spec, repeats, level)
    else:
        bounds = _resampled_bounds(values, bootstrap(spec, repeats, samples, seed), repeats[0], level)
    return {name: _make_interval(spec, repeats[0], name, value, bounds[name]) for name, value in values.items()}


def _make_interval(spec: MetricSpec, records: Sequence[Record], name: str, value: float, bounds: Bounds) -> Interval:
    return Interval(value, *bounds, _count_records(spec, records, name))


def _mean_bounds(spec: MetricSpec, repeats: Repeats, level: float) -> dict[str, Bounds]:
    group_N = group_numbers(repeats[0])
    bounds = {name: _bound_mean(mean_column(repeats, name), group_N, level) for name in spec.metric.values}
    return {name: _clip_share(spec, own) for name, own in bounds.items()}


def _clip_share(spec: MetricSpec, bounds: Bounds) -> Bounds:
    """Return bounds between 0 and 1 for metrics whose values lie there."""
    if not spec.metric.is_share:
        return bounds
    low, high = np.clip(bounds, 0.0, 1.0)
    return float(low), float(high)


def _bound_mean(value_N: Array, group_N: Array, level: float) -> Bounds:
    """Return the interval of the mean over records: exact if all values are 0 or 1 and no records are grouped."""
    finite_N = finite_values(value_N)
    if _are_binary(finite_N) and _are_single(group_N):
        return share_bounds(int(finite_N.sum()), len(finite_N), level)
    return _bound_moments(value_N, group_N, level)


def _bound_moments(value_N: Array, group_N: Array, level: float) -> Bounds:
    return corrected_bounds(measure_moments(value_N, group_N), level)


def _are_binary(value_N: Array) -> bool:
    return len(value_N) > 0 and bool(np.isin(value_N, (0.0, 1.0)).all())


def _are_single(group_N: Array) -> bool:
    return count_groups(group_N) == len(group_N)


def _resampled_bounds(
    values: Mapping[str, float], resampled: Values, records: Sequence[Record], level: float
) -> dict[str, Bounds]:
    groups = count_filled_groups(records)
    return {name: _bound_resampled(value, resampled[name], groups, level) for name, value in values.items()}


def _bound_resampled(value: float, resampled_R: Array, groups: int, level: float) -> Bounds:
    """Return the interval by the spread and skewness of the resamples, clipped to the range of a share or a count."""
    # A resample may hold no record of a class, where a value such as an overlap is NaN.
    finite_R = finite_values(resampled_R)
    bounds = corrected_bounds(resampled_moments(value, finite_R, groups), level)
    low, high = np.clip(bounds, *_valid_range(finite_R))
    return float(low), float(high)


def band(
    spec: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> Band | None:
    """Return the metric's curve, averaged over repeats, with the interval at each point; None if it has no curve."""
    estimate = _mean_curves(spec, repeats, count_once(repeats[0]))
    if estimate is None:
        return None
    xs, heights_RK = estimate
    if spec.metric.is_mean:
        bounds = _bound_points(spec, repeats, level)
    else:
        resampled_RK = _bootstrap_curves(spec, repeats, samples, seed)
        bounds = _bound_resampled_points(heights_RK[0], resampled_RK, count_filled_groups(repeats[0]), level)
    return _make_band(xs, heights_RK[0], bounds)


def _make_band(xs: Sequence[float], height_K: Array, bounds: Sequence[Bounds]) -> Band:
    # Each point has its own interval: the band holds for a point, not for the whole curve.
    low, high = zip(*bounds, strict=True)
    return Band(tuple(xs), tuple(map(float, height_K)), low, high)


def _bound_points(spec: MetricSpec, repeats: Repeats, level: float) -> list[Bounds]:
    """Return the interval at each point of a curve that is a mean over records."""
    group_N = group_numbers(repeats[0])
    height_NK = _record_curves(spec, repeats)
    # Drops of the probability are no shares, although all are 0 where nothing is hidden yet.
    bound = _bound_mean if _are_binary(finite_values(height_NK)) else _bound_moments
    return [_clip_share(spec, bound(height_N, group_N, level)) for height_N in height_NK.T]


def _record_curves(spec: MetricSpec, repeats: Repeats) -> Array:
    """Return the curve of each record by itself (N, K)."""
    blocks = []
    count = len(repeats[0])
    start = 0
    for rows in block_sizes(count, count):
        # A row of weights for each record, by which it alone counts.
        curves = _mean_curves(spec, repeats, np.eye(rows, count, start))
        if curves is not None:
            blocks.append(curves[1])
        start += rows
    return np.concatenate(blocks)


def _bound_resampled_points(height_K: Array, resampled_RK: Array, groups: int, level: float) -> list[Bounds]:
    points = zip(height_K, resampled_RK.T, strict=True)
    return [_bound_resampled(float(height), height_R, groups, level) for height, height_R in points]


def _bootstrap_curves(spec: MetricSpec, repeats: Repeats, samples: int, seed: int) -> Array:
    blocks = []
    for weights_RN in _bootstrap_weights(repeats[0], samples, seed):
        curves = _mean_curves(spec, repeats, weights_RN)
        if curves is not None:
            blocks.append(curves[1])
    return np.concatenate(blocks)


def _mean_curves(spec: MetricSpec, repeats: Repeats, weights_RN: Array) -> Curves | None:
    """Return the curves averaged over the repeats that have one."""
    drawn = _drawn_curves(spec, repeats, weights_RN)
    if not drawn:
        return None
    # All repeats of a method have the same options, and with them the same positions.
    xs = drawn[0][0]
    return xs, np.mean([heights_RK for _, heights_RK in drawn], 0)


def _drawn_curves(spec: MetricSpec, repeats: Repeats, weights_RN: Array) -> list[Curves]:
    drawn = []
    for records in repeats:
        curves = spec.curves(records, weights_RN)
        if curves is not None:
            drawn.append(curves)
    return drawn


def _count_records(spec: MetricSpec, records: Sequence[Record], name: str) -> int:
    """Count the records that the value is made of."""
    if spec.metric.is_mean:
        return _count_finite(records, name)
    return count_filled(records)


def count_filled(records: Sequence[Record]) -> int:
    """Count the records that are not empty: a value pooled over records has no entry in each of them."""
    return sum(map(bool, records))


def _count_finite(records: Sequence[Record], name: str) -> int:
    return int(np.isfinite(column(records, name)).sum())


def mean_column(repeats: Repeats, name: str) -> Array:
    """Return one entry of every record (N), averaged over repeats; NaN where one of them has none."""
    mean_N: Array = np.mean([column(records, name) for records in repeats], 0)
    return mean_N


def estimate(spec: MetricSpec, repeats: Repeats) -> dict[str, float]:
    """Return the values over all records, each counted once."""
    return first_row(_mean_values(spec, repeats, count_once(repeats[0])))


def _mean_values(spec: MetricSpec, repeats: Repeats, weights_RN: Array) -> Values:
    """Return the values (R), averaged over repeats."""
    return average_values([spec.resampled(records, weights_RN) for records in repeats])


def average_values(values: Sequence[Values]) -> Values:
    return {name: np.mean(arrays, 0) for name, arrays in _gather_values(values).items()}


def concatenate_values(values: Iterable[Values]) -> Values:
    return {name: np.concatenate(arrays) for name, arrays in _gather_values(values).items()}


def _gather_values(values: Iterable[Values]) -> dict[str, list[Array]]:
    """Return the arrays of each value, one per entry."""
    # By name: the repeats of a method have the same values, in any order.
    gathered: dict[str, list[Array]] = {}
    for entry in values:
        for name, value_R in entry.items():
            gathered.setdefault(name, []).append(value_R)
    return gathered


def bootstrap(spec: MetricSpec, repeats: Repeats, samples: int, seed: int) -> Values:
    """Return the values of resampled examples: the same examples are drawn for every method and repeat."""
    return concatenate_values(_resample(spec, repeats, samples, seed))


def _resample(spec: MetricSpec, repeats: Repeats, samples: int, seed: int) -> Iterator[Values]:
    """Yield the values of a block of samples at a time."""
    for weights_RN in _bootstrap_weights(repeats[0], samples, seed):
        yield _mean_values(spec, repeats, weights_RN)


def _valid_range(resampled: Array) -> tuple[float, float]:
    """Return 0 and 1 where no resample lies beyond them, infinity where one does."""
    # Around its estimate the interval of a share could reach below 0 or above 1, which no resample did.
    lowest = 0 if np.all(resampled >= 0) else -np.inf
    highest = 1 if np.all(resampled <= 1) else np.inf
    return lowest, highest


def _bootstrap_weights(records: Sequence[Record], samples: int, seed: int) -> Iterator[Array]:
    """Yield how often each record is drawn in each sample, a block of samples at a time."""
    group_N = group_numbers(records)
    generator = np.random.default_rng(seed)
    for rows in block_sizes(samples, len(records)):
        yield spread_groups(_draw_counts(generator, count_groups(group_N), rows), group_N)


def _draw_counts(generator: np.random.Generator, groups: int, rows: int) -> Array:
    # A bootstrap sample drawn with replacement is a multinomial count of each group.
    return generator.multinomial(groups, np.full(groups, 1 / groups), size=rows)


def spread_groups(values_RG: Array, group_N: Array) -> Array:
    """Return for each record the value of its group (R, N), as a weight."""
    return values_RG[:, group_N].astype(np.float64)


def group_numbers(records: Sequence[Record]) -> Array:
    """Return for each record the number of its group; a record without a `group` is a group by itself."""
    numbers: dict[Any, int] = {}
    group_N = []
    for index, record in enumerate(records):
        name = record.get("group", index)
        group_N.append(numbers.setdefault(name, len(numbers)))
    return np.array(group_N)


def count_groups(group_N: Array) -> int:
    return int(group_N.max()) + 1


def count_filled_groups(records: Sequence[Record]) -> int:
    """Count the groups that have a record which is not empty."""
    is_filled = list(map(bool, records))
    return len(np.unique(group_numbers(records)[is_filled]))


def block_sizes(rows: int, width: int) -> Iterator[int]:
    """Split so many rows into blocks that fit into memory."""
    # The generator goes on from block to block, so the blocks' size does not change what is drawn.
    size = max(1, MAX_BLOCK_ENTRIES // width)
    for start in range(0, rows, size):
        yield min(size, rows - start)


def finite_values(value_R: Array) -> Array:
    return value_R[np.isfinite(value_R)]
