"""Bootstrap intervals of metrics' values: seeded, from records alone.

Intervals are percentiles of the value over resampled examples. A value that is not a mean (the overlap of two top
lists) is biased under resampling, because some examples are drawn twice and others not at all; its bootstrap is
recentred on the estimate. Records of one `group`, such as the parts of one mosaic, are drawn, and swapped, together.

The records of one method are a list of repeats, each a list with one record per example; all methods but `random`,
which is averaged over seeds, have one repeat.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.metric import Curves, MetricSpec, Record, column, count_once, first_row

SAMPLES = 1000
LEVEL = 0.95
# 16 MB of weights in float64.
MAX_BLOCK_ENTRIES = 2_000_000
UNKNOWN_BOUNDS = (float("nan"), float("nan"))

Repeats = Sequence[Sequence[Record]]
Values = dict[str, Array]
"""Values (R) of a metric by name, for R reweightings of the records."""


@dataclass(frozen=True)
class Interval:
    """A value with its percentile bootstrap interval over n records."""

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
    """Return each value of the metric, with its bootstrap interval."""
    resampled = bootstrap(spec, repeats, samples, seed)
    return make_intervals(spec, repeats[0], estimate(spec, repeats), resampled, level)


def make_intervals(
    spec: MetricSpec, records: Sequence[Record], values: Mapping[str, float], resampled: Values, level: float
) -> dict[str, Interval]:
    """Return each value with the percentiles of its resamples."""
    results = {}
    for name, value in values.items():
        bounds = _percentiles(resampled[name], level)
        results[name] = Interval(value, *bounds, _count_records(spec, records, name))
    return results


def band(
    spec: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> Band | None:
    """Return the metric's curve, averaged over repeats, with its bootstrap interval; None if it has no curve."""
    estimate = _mean_curves(spec, repeats, count_once(repeats[0]))
    if estimate is None:
        return None
    xs, heights_RK = estimate
    height_K = heights_RK[0]
    resampled_RK = _recentre_curves(spec, height_K, _bootstrap_curves(spec, repeats, samples, seed))
    low, high = _point_bounds(resampled_RK, level)
    return Band(tuple(xs), tuple(map(float, height_K)), low, high)


def _recentre_curves(spec: MetricSpec, height_K: Array, resampled_RK: Array) -> Array:
    # The bootstrap of a mean is not biased.
    if spec.metric.is_mean:
        return resampled_RK
    return _recentre(height_K, resampled_RK)


def _point_bounds(resampled_RK: Array, level: float) -> Iterator[tuple[float, ...]]:
    """Return the lower and the upper bounds of all points of a curve."""
    # Each point has its own percentiles: the band holds for a point, not for the whole curve.
    bounds = [_percentiles(height_R, level) for height_R in resampled_RK.T]
    return zip(*bounds, strict=True)


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
    # A value pooled over records has no entry per record; an empty record adds nothing to it.
    return sum(map(bool, records))


def _count_finite(records: Sequence[Record], name: str) -> int:
    return int(np.isfinite(column(records, name)).sum())


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
    resampled = concatenate_values(_resample(spec, repeats, samples, seed))
    if spec.metric.is_mean:
        return resampled
    return _recentre_values(estimate(spec, repeats), resampled)


def _resample(spec: MetricSpec, repeats: Repeats, samples: int, seed: int) -> Iterator[Values]:
    """Yield the values of a block of samples at a time."""
    for weights_RN in _bootstrap_weights(repeats[0], samples, seed):
        yield _mean_values(spec, repeats, weights_RN)


def _recentre_values(estimate: Mapping[str, float], resampled: Values) -> Values:
    return {name: _recentre(estimate[name], value_R) for name, value_R in resampled.items()}


def _recentre(estimate: Any, resampled: Array) -> Array:
    """Shift the bootstrap so that its median is the estimate, clipped to the range of a share or a count."""
    shifted: Array = np.clip(resampled + estimate - np.median(resampled, 0), *_valid_range(resampled))
    return shifted


def _valid_range(resampled: Array) -> tuple[float, float]:
    """Return 0 and 1 where no resample lies beyond them, infinity where one does."""
    # Shifting could move a share below 0 or above 1, which no resample was.
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


def block_sizes(rows: int, width: int) -> Iterator[int]:
    """Split so many rows into blocks that fit into memory."""
    # The generator goes on from block to block, so the blocks' size does not change what is drawn.
    size = max(1, MAX_BLOCK_ENTRIES // width)
    for start in range(0, rows, size):
        yield min(size, rows - start)


def _percentiles(resampled_R: Array, level: float) -> tuple[float, float]:
    # A resample may hold no record of a class, where a value such as an overlap is NaN.
    finite = finite_values(resampled_R)
    if not len(finite):
        return UNKNOWN_BOUNDS
    return _central_interval(finite, level)


def _central_interval(values: Array, level: float) -> tuple[float, float]:
    """Return the bounds between which this share of the values lies, as many below as above."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def finite_values(value_R: Array) -> Array:
    return value_R[np.isfinite(value_R)]
