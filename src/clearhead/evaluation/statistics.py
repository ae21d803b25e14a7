"""Bootstrap intervals and paired permutation tests of metrics' values: seeded, from records alone.

Intervals are percentiles of the value over resampled examples. A value that is not a mean (the overlap of two top
lists) is biased under resampling, because some examples are drawn twice and others not at all; its bootstrap is
recentred on the estimate. Records of one `group`, such as the parts of one mosaic, are drawn, and swapped, together.

The records of one method are a list of repeats, each a list with one record per example; all methods but `random`,
which is averaged over seeds, have one repeat.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.metric import Curves, MetricSpec, Record, column, count_once, first_row

SAMPLES = 1000
SIGN_FLIPS = 9999
SWAPS = 499
LEVEL = 0.95
MAX_BLOCK_ENTRIES = 2_000_000

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
class Difference:
    """First minus second, its interval, and the probability of as large a difference by chance."""

    value: float
    low: float
    high: float
    p: float
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
    resampled = _bootstrap(spec, repeats, samples, seed)
    return _make_intervals(spec, repeats[0], _estimate(spec, repeats), resampled, level)


def _make_intervals(
    spec: MetricSpec, records: Sequence[Record], values: Mapping[str, float], resampled: Values, level: float
) -> dict[str, Interval]:
    """Return each value with the percentiles of its resamples."""
    results = {}
    for name, value in values.items():
        low, high = _percentiles(resampled[name], level)
        results[name] = Interval(value, low, high, _count_records(spec, records, name))
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
    resampled_RK = _bootstrap_curves(spec, repeats, samples, seed)
    if not spec.metric.is_mean:
        resampled_RK = _recentre(height_K, resampled_RK)
    low, high = _point_bounds(resampled_RK, level)
    return Band(tuple(xs), tuple(map(float, height_K)), low, high)


def _point_bounds(resampled_RK: Array, level: float) -> Iterator[tuple[float, ...]]:
    """Return the lower and the upper bounds of all points of a curve."""
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


def differences(
    spec: MetricSpec, first: Repeats, second: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Difference]:
    """Test two methods on the same examples by a paired permutation test, for each value of the metric.

    Where a value is a mean, the signs of the examples' differences are flipped at random; where it is not, the records
    of random examples are swapped between the methods, and the value is computed again.
    """
    _check_paired(first[0], second[0])
    values = _subtract(_estimate(spec, first), _estimate(spec, second))
    # The same seed draws the same examples for both methods, so differences of resamples are paired.
    resampled = _subtract(_bootstrap(spec, first, samples, seed), _bootstrap(spec, second, samples, seed))
    p_values = _permutation_tests(spec, first, second, seed)
    results = {}
    for name, interval in _make_intervals(spec, first[0], values, resampled, level).items():
        results[name] = Difference(interval.value, interval.low, interval.high, p_values[name], interval.n)
    return results


def _check_paired(first: Sequence[Record], second: Sequence[Record]) -> None:
    if len(first) != len(second):
        raise ValueError(f"A paired test needs the same examples, not {len(first)} and {len(second)} records.")


def _subtract(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return first minus second, for each value of a metric."""
    return {name: first[name] - second[name] for name in first}


def _permutation_tests(spec: MetricSpec, first: Repeats, second: Repeats, seed: int) -> dict[str, float]:
    if not spec.metric.is_mean:
        return _swap_tests(spec, first, second, seed)
    # Means need no values again: the sum of flipped differences is all that changes, and it is fast.
    return {name: _flip_signs(first, second, name, seed) for name in spec.metric.values}


def _swap_tests(spec: MetricSpec, first: Repeats, second: Repeats, seed: int) -> dict[str, float]:
    swapped = _swap_records(spec, first, second, seed)
    return {name: _p_value(difference_R) for name, difference_R in swapped.items()}


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


def _count_records(spec: MetricSpec, records: Sequence[Record], name: str) -> int:
    """Count the records that the value is made of."""
    if spec.metric.is_mean:
        return int(np.isfinite(column(records, name)).sum())
    # A value pooled over records has no entry per record; an empty record adds nothing to it.
    return sum(map(bool, records))


def _estimate(spec: MetricSpec, repeats: Repeats) -> dict[str, float]:
    """Return the values over all records, each counted once."""
    return first_row(_mean_values(spec, repeats, count_once(repeats[0])))


def _mean_values(spec: MetricSpec, repeats: Repeats, weights_RN: Array) -> Values:
    """Return the values (R), averaged over repeats."""
    return _average_values([spec.resampled(records, weights_RN) for records in repeats])


def _average_values(values: Sequence[Values]) -> Values:
    return {name: np.mean(arrays, 0) for name, arrays in _gather_values(values).items()}


def _concatenate_values(values: Sequence[Values]) -> Values:
    return {name: np.concatenate(arrays) for name, arrays in _gather_values(values).items()}


def _gather_values(values: Sequence[Values]) -> dict[str, list[Array]]:
    """Return the arrays of each value, one per entry."""
    gathered: dict[str, list[Array]] = {}
    for entry in values:
        for name, value_R in entry.items():
            gathered.setdefault(name, []).append(value_R)
    return gathered


def _bootstrap(spec: MetricSpec, repeats: Repeats, samples: int, seed: int) -> Values:
    """Return the values of resampled examples: the same examples are drawn for every method and repeat."""
    blocks = []
    for weights_RN in _bootstrap_weights(repeats[0], samples, seed):
        blocks.append(_mean_values(spec, repeats, weights_RN))
    resampled = _concatenate_values(blocks)
    if spec.metric.is_mean:
        return resampled
    return _recentre_values(_estimate(spec, repeats), resampled)


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
    group_N = _group_numbers(records)
    groups = _count_groups(group_N)
    generator = np.random.default_rng(seed)
    probabilities = np.full(groups, 1 / groups)
    # A bootstrap sample drawn with replacement is a multinomial count of each group.
    for rows in _block_sizes(samples, len(records)):
        counts_RG = generator.multinomial(groups, probabilities, size=rows)
        yield counts_RG[:, group_N].astype(np.float64)


def _group_numbers(records: Sequence[Record]) -> Array:
    """Return for each record the number of its group; a record without a `group` is a group by itself."""
    numbers: dict[Any, int] = {}
    group_N = []
    for index, record in enumerate(records):
        name = record.get("group", index)
        group_N.append(numbers.setdefault(name, len(numbers)))
    return np.array(group_N)


def _count_groups(group_N: Array) -> int:
    return int(group_N.max()) + 1


def _block_sizes(rows: int, width: int) -> Iterator[int]:
    """Split so many rows into blocks that fit into memory."""
    # The generator goes on from block to block, so the blocks' size does not change what is drawn.
    size = max(1, MAX_BLOCK_ENTRIES // width)
    for start in range(0, rows, size):
        yield min(size, rows - start)


def _percentiles(resampled_R: Array, level: float) -> tuple[float, float]:
    # A resample may hold no record of a class, where a value such as an overlap is NaN.
    finite = _finite_values(resampled_R)
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _finite_values(value_R: Array) -> Array:
    return value_R[np.isfinite(value_R)]


def _flip_signs(first: Repeats, second: Repeats, name: str, seed: int) -> float:
    """Return the share of sign flips whose mean difference is at least as far from zero, two-sided."""
    total_G = _group_differences(first, second, name)
    if not len(total_G):
        return 1.0
    # The observed signs are one of the flips, so that p is never 0.
    return (_count_extreme_flips(total_G, seed) + 1) / (SIGN_FLIPS + 1)


def _count_extreme_flips(total_G: Array, seed: int) -> int:
    """Count the random sign flips whose sum is at least as far from zero as the observed one."""
    # Flips that give the same difference up to rounding count as equal.
    threshold = abs(total_G.sum()) - 1e-12 * np.abs(total_G).sum()
    extreme = 0
    for signs_RG in _draw_signs(len(total_G), seed):
        extreme += int((np.abs(signs_RG @ total_G) >= threshold).sum())
    return extreme


def _draw_signs(groups: int, seed: int) -> Iterator[Array]:
    """Yield random signs (R, G), a block at a time."""
    generator = np.random.default_rng(seed)
    for rows in _block_sizes(SIGN_FLIPS, groups):
        yield generator.integers(0, 2, (rows, groups)) * 2 - 1


def _group_differences(first: Repeats, second: Repeats, name: str) -> Array:
    """Return the difference of two methods summed over each group of records; those without a value are left out."""
    difference_N = _mean_column(first, name) - _mean_column(second, name)
    is_finite = np.isfinite(difference_N)
    group_N = _group_numbers(first[0])[is_finite]
    totals = np.bincount(group_N, difference_N[is_finite])
    # Only groups that still have a record: the others would be flipped for nothing.
    total_G: Array = totals[np.unique(group_N)]
    return total_G


def _mean_column(repeats: Repeats, name: str) -> Array:
    mean: Array = np.mean([column(records, name) for records in repeats], 0)
    return mean


def _swap_records(spec: MetricSpec, first: Repeats, second: Repeats, seed: int) -> Values:
    """Return the differences of the values (R): as they are in row 0, then with records of random examples swapped."""
    pairs = _pair_repeats(first, second)
    blocks = []
    for swaps_RN in _draw_swaps(_group_numbers(first[0]), seed):
        repeats = [_swapped_difference(spec, *pair, swaps_RN) for pair in pairs]
        blocks.append(_average_values(repeats))
    return _concatenate_values(blocks)


def _draw_swaps(group_N: Array, seed: int) -> Iterator[Array]:
    """Yield which records are swapped (R, N), as 0 or 1, a block at a time; none of them in the very first row."""
    generator = np.random.default_rng(seed)
    is_first = True
    # Both methods' records are weighted at once, hence twice the width.
    for rows in _block_sizes(SWAPS + 1, 2 * len(group_N)):
        swaps_RG = generator.integers(0, 2, (rows, _count_groups(group_N)))
        # The first row of the first block is the observed difference.
        if is_first:
            swaps_RG[0] = 0
        is_first = False
        yield swaps_RG[:, group_N].astype(np.float64)


def _pair_repeats(first: Repeats, second: Repeats) -> list[tuple[Sequence[Record], Sequence[Record]]]:
    """Pair the repeats of two methods; the method with fewer of them starts again."""
    pairs = []
    for turn in range(max(len(first), len(second))):
        pairs.append((first[turn % len(first)], second[turn % len(second)]))
    return pairs


def _swapped_difference(spec: MetricSpec, first: Sequence[Record], second: Sequence[Record], swaps_RN: Array) -> Values:
    """Return the difference of the values (R) when the records with a 1 in `swaps_RN` are swapped."""
    # Both methods' records stand in one list; which of them a method owns is a matter of weights.
    records = [*first, *second]
    first_values = spec.resampled(records, np.hstack([1 - swaps_RN, swaps_RN]))
    second_values = spec.resampled(records, np.hstack([swaps_RN, 1 - swaps_RN]))
    return _subtract(first_values, second_values)


def _p_value(difference_R: Array) -> float:
    """Return how often a swapped difference is as large as row 0, two-sided; if never, the tail of a normal curve.

    Without the tail no p could fall below 1 / (swaps + 1), too much for a correction over many comparisons.
    """
    observed = abs(difference_R[0])
    swapped_R = _finite_values(np.abs(difference_R[1:]))
    if not np.isfinite(observed) or not len(swapped_R):
        return 1.0
    # Swaps that give the same difference up to rounding count as equal.
    extreme = int((swapped_R >= observed * (1 - 1e-12)).sum())
    share = (extreme + 1) / (len(swapped_R) + 1)
    if extreme:
        return share
    return min(share, _normal_tail(observed, swapped_R))


def _normal_tail(observed: float, swapped_R: Array) -> float:
    """Return the two-sided p-value under a normal curve around 0 with the swapped differences' deviation."""
    spread = float(np.sqrt((swapped_R**2).mean()))
    # All swaps gave exactly 0: there is no curve to look at.
    if not spread:
        return 1.0
    return math.erfc(observed / spread / math.sqrt(2))
