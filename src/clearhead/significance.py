"""How far a value can be trusted, and whether two methods differ: seeded, from records alone.

Intervals are percentiles of the value over resampled examples. A value that is no mean (the overlap of two top lists)
shifts when examples are drawn twice and others not at all, so its resampled values are moved to lie around the value.

What a metric answers for one method is a list of repeats, each a list with one record per example; all methods but
`random`, which is averaged over seeds, have one repeat.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.metric import Array, Curves, Measure, Record, column

SAMPLES = 1000
FLIPS = 9999
LEVEL = 0.95
BLOCK = 2_000_000

Repeats = Sequence[Sequence[Record]]


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


def intervals(
    measure: Measure, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Interval]:
    """Each value of the metric, with the interval over resampled examples."""
    plain, drawn = _plain(measure, repeats), _bootstrap(measure, repeats, samples, seed)
    return {
        name: Interval(value, *_bounds(drawn[name], level), _count(measure, repeats[0], name))
        for name, value in plain.items()
    }


@dataclass(frozen=True)
class Band:
    """A curve with the interval at each of its places."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def band(
    measure: Measure, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> Band | None:
    """The metric's curve, averaged over repeats, with the interval over resampled examples; None if it draws none."""
    plain = _curve(measure, repeats, np.ones((1, len(repeats[0]))))
    if plain is None:
        return None
    x, height_K = plain[0], plain[1][0]
    parts = [_curve(measure, repeats, weights) for weights in _weights(len(repeats[0]), samples, seed)]
    drawn_RK = np.concatenate([part[1] for part in parts if part is not None])
    if not measure.metric.is_mean:
        drawn_RK = drawn_RK + height_K - np.median(drawn_RK, 0)
    bounds = [_bounds(drawn_R, level) for drawn_R in drawn_RK.T]
    low, high = zip(*bounds, strict=True) if bounds else ((), ())
    return Band(tuple(x), tuple(map(float, height_K)), low, high)


def _curve(measure: Measure, repeats: Repeats, weights_RN: Array) -> Curves | None:
    found = [one for records in repeats if (one := measure.curves(records, weights_RN)) is not None]
    return (found[0][0], np.mean([heights for _, heights in found], 0)) if found else None


def differences(
    measure: Measure, first: Repeats, second: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Difference]:
    """A paired test of two methods on the same examples, for each value of the metric.

    Where a value is a mean, the signs of the examples' differences are flipped at random; where it is not, the test
    asks how often the resampled difference crosses zero.
    """
    if len(first[0]) != len(second[0]):
        raise ValueError(f"A paired test needs the same examples, not {len(first[0])} and {len(second[0])} records.")
    plain_first, plain_second = _plain(measure, first), _plain(measure, second)
    drawn_first, drawn_second = _bootstrap(measure, first, samples, seed), _bootstrap(measure, second, samples, seed)
    found = {}
    for name in plain_first:
        drawn = drawn_first[name] - drawn_second[name]
        p = _flipped(first, second, name, seed) if measure.metric.is_mean else _crossing(drawn)
        value = plain_first[name] - plain_second[name]
        found[name] = Difference(value, *_bounds(drawn, level), p, _count(measure, first[0], name))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for as many comparisons."""
    order = np.argsort(p_values, kind="stable")
    found, running = np.empty(len(p_values)), 0.0
    for place, which in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[which]))
        found[which] = running
    return [float(one) for one in found]


def _count(measure: Measure, records: Sequence[Record], name: str) -> int:
    return int(np.isfinite(column(records, name)).sum()) if measure.metric.is_mean else len(records)


def _plain(measure: Measure, repeats: Repeats) -> dict[str, float]:
    """The values themselves."""
    return {name: float(one[0]) for name, one in _repeated(measure, repeats, np.ones((1, len(repeats[0])))).items()}


def _repeated(measure: Measure, repeats: Repeats, weights_RN: Array) -> dict[str, Array]:
    """The values (R), averaged over repeats."""
    found = [measure.resampled(records, weights_RN) for records in repeats]
    return {name: np.mean([one[name] for one in found], 0) for name in found[0]}


def _bootstrap(measure: Measure, repeats: Repeats, samples: int, seed: int) -> dict[str, Array]:
    """The values under resampling: the same examples are drawn for every method and repeat."""
    parts = [_repeated(measure, repeats, weights) for weights in _weights(len(repeats[0]), samples, seed)]
    drawn = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if measure.metric.is_mean:
        return drawn
    plain = _plain(measure, repeats)
    return {name: one + plain[name] - np.median(one) for name, one in drawn.items()}


def _weights(count: int, samples: int, seed: int) -> Iterator[Array]:
    """How often each record is drawn in each sample, a block of samples at a time."""
    generator, share = np.random.default_rng(seed), np.full(count, 1 / count)
    size = max(1, BLOCK // count)
    for start in range(0, samples, size):
        yield generator.multinomial(count, share, size=min(size, samples - start)).astype(np.float64)


def _bounds(drawn_R: Array, level: float) -> tuple[float, float]:
    real = drawn_R[np.isfinite(drawn_R)]
    if not len(real):
        return float("nan"), float("nan")
    low, high = np.quantile(real, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _flipped(first: Repeats, second: Repeats, name: str, seed: int) -> float:
    """The share of sign flips whose mean difference is at least as far from zero, two-sided."""
    mean_first, mean_second = (np.mean([column(one, name) for one in several], 0) for several in (first, second))
    difference_N = mean_first - mean_second
    difference_N = difference_N[np.isfinite(difference_N)]
    if not len(difference_N):
        return 1.0
    seen, generator = abs(difference_N.sum()), np.random.default_rng(seed)
    slack = 1e-12 * np.abs(difference_N).sum()
    extreme, size = 0, max(1, BLOCK // len(difference_N))
    for start in range(0, FLIPS, size):
        signs = generator.integers(0, 2, (min(size, FLIPS - start), len(difference_N))) * 2 - 1
        extreme += int((np.abs(signs @ difference_N) >= seen - slack).sum())
    return (extreme + 1) / (FLIPS + 1)


def _crossing(drawn_R: Array) -> float:
    """How often the resampled difference crosses zero, two-sided; where it never does, the tail of a normal curve.

    Without the tail no p could fall below 2 / samples, too much for a correction over many comparisons.
    """
    real = drawn_R[np.isfinite(drawn_R)]
    if not len(real):
        return 1.0
    side = min(int((real <= 0).sum()), int((real >= 0).sum()))
    share, spread = min(1.0, 2 * (side + 1) / (len(real) + 1)), float(real.std())
    return share if side or not spread else min(share, math.erfc(abs(float(real.mean())) / spread / math.sqrt(2)))
