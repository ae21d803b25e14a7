"""Paired permutation tests between two methods, with Holm's correction for several comparisons."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.metric import MetricSpec, Record, column
from clearhead.evaluation.statistics import (
    LEVEL,
    SAMPLES,
    Interval,
    Repeats,
    Values,
    average_values,
    block_sizes,
    bootstrap,
    concatenate_values,
    count_groups,
    estimate,
    finite_values,
    group_numbers,
    make_intervals,
    spread_groups,
)


@dataclass(frozen=True)
class Difference:
    """First minus second, its interval, and the probability of as large a difference by chance."""

    value: float
    low: float
    high: float
    p: float
    n: int


def differences(
    spec: MetricSpec, first: Repeats, second: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Difference]:
    """Test two methods on the same examples by a paired permutation test, for each value of the metric.

    Where a value is a mean, the signs of the examples' differences are flipped at random; where it is not, the records
    of random examples are swapped between the methods, and the value is computed again.
    """
    _check_paired(first[0], second[0])
    values = _subtract(estimate(spec, first), estimate(spec, second))
    # The same seed draws the same examples for both methods, so differences of resamples are paired.
    resampled = _subtract(bootstrap(spec, first, samples, seed), bootstrap(spec, second, samples, seed))
    p_values = _permutation_tests(spec, first, second, seed)
    tested = make_intervals(spec, first[0], values, resampled, level)
    return {name: _make_difference(interval, p_values[name]) for name, interval in tested.items()}


def _make_difference(interval: Interval, p: float) -> Difference:
    return Difference(interval.value, interval.low, interval.high, p, interval.n)


def _check_paired(first: Sequence[Record], second: Sequence[Record]) -> None:
    # Tests are paired by position, so a missing record would shift all others.
    if len(first) != len(second):
        raise _unpaired(len(first), len(second))


def _unpaired(first: int, second: int) -> ValueError:
    return ValueError(f"A paired test needs the same examples, not {first} and {second} records.")


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


def _flip_signs(first: Repeats, second: Repeats, name: str, seed: int) -> float:
    """Return the share of sign flips whose mean difference is at least as far from zero, two-sided.

    If there is none, the tail of a normal curve: without it no p could fall below 1 / (flips + 1), too much for a
    correction over hundreds of comparisons.
    """
    total_G = _group_differences(first, second, name)
    if not len(total_G):
        return 1.0
    extreme = _count_extreme_flips(total_G, seed)
    # The observed signs are one of the flips, so that p is never 0.
    share = (extreme + 1) / (SIGN_FLIPS + 1)
    if extreme:
        return share
    return min(share, _flip_tail(total_G))


def _flip_tail(total_G: Array) -> float:
    """Return the two-sided p-value under a normal curve with the deviation that all flips of the signs have."""
    deviation = math.sqrt(float((total_G**2).sum()))
    tail = math.erfc(abs(float(total_G.sum())) / deviation / math.sqrt(2))
    # Two of all flips, the observed signs and their opposites, are always as extreme.
    return max(tail, 2.0 ** (1 - len(total_G)))


def _count_extreme_flips(total_G: Array, seed: int) -> int:
    """Count the random sign flips whose sum is at least as far from zero as the observed one."""
    threshold = _flip_threshold(total_G)
    flips = _draw_signs(len(total_G), seed)
    return sum(_count_extreme(signs_RG @ total_G, threshold) for signs_RG in flips)


def _flip_threshold(total_G: Array) -> float:
    # Flips that give the same difference up to rounding count as equal.
    return float(abs(total_G.sum()) - 1e-12 * np.abs(total_G).sum())


def _count_extreme(difference_R: Array, threshold: float) -> int:
    """Count the differences that are at least as far from zero as the threshold."""
    return int((np.abs(difference_R) >= threshold).sum())


def _draw_signs(groups: int, seed: int) -> Iterator[Array]:
    """Yield random signs (R, G), a block at a time."""
    generator = np.random.default_rng(seed)
    for rows in block_sizes(SIGN_FLIPS, groups):
        yield _flip_coins(generator, rows, groups) * 2 - 1


def _flip_coins(generator: np.random.Generator, rows: int, groups: int) -> Array:
    """Draw 0 or 1 for each group (R, G)."""
    return generator.integers(0, 2, (rows, groups))


def _group_differences(first: Repeats, second: Repeats, name: str) -> Array:
    """Return the difference of two methods summed over each group of records; those without a value are left out."""
    difference_N = _mean_column(first, name) - _mean_column(second, name)
    is_finite = np.isfinite(difference_N)
    group_N = group_numbers(first[0])[is_finite]
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
    for swaps_RN in _draw_swaps(group_numbers(first[0]), seed):
        repeats = [_swapped_difference(spec, *pair, swaps_RN) for pair in pairs]
        blocks.append(average_values(repeats))
    return concatenate_values(blocks)


def _draw_swaps(group_N: Array, seed: int) -> Iterator[Array]:
    """Yield which records are swapped (R, N), as 0 or 1, a block at a time; none of them in the very first row."""
    generator = np.random.default_rng(seed)
    is_first = True
    # Both methods' records are weighted at once, hence twice the width.
    for rows in block_sizes(SWAPS + 1, 2 * len(group_N)):
        swaps_RG = _flip_coins(generator, rows, count_groups(group_N))
        # The first row of the first block is the observed difference.
        if is_first:
            swaps_RG[0] = 0
        is_first = False
        yield spread_groups(swaps_RG, group_N)


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
    swapped_R = finite_values(difference_R[1:])
    if not np.isfinite(observed) or not len(swapped_R):
        return 1.0
    # Swaps that give the same difference up to rounding count as equal.
    extreme = _count_extreme(swapped_R, observed * (1 - 1e-12))
    share = (extreme + 1) / (len(swapped_R) + 1)
    if extreme:
        return share
    return min(share, _normal_tail(observed, swapped_R))


def _normal_tail(observed: float, swapped_R: Array) -> float:
    """Return the two-sided p-value under a normal curve around 0 with the swapped differences' deviation."""
    spread = _deviation_from_zero(swapped_R)
    # All swaps gave exactly 0: there is no curve to look at.
    if not spread:
        return 1.0
    return math.erfc(observed / spread / math.sqrt(2))


def _deviation_from_zero(values: Array) -> float:
    return float(np.sqrt((values**2).mean()))


# A p-value of 0.05 then has a standard error of 0.002.
SIGN_FLIPS = 9999
# Fewer, because each swap computes the metric again.
SWAPS = 499
