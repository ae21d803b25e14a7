"""How far a value can be trusted, and whether two methods differ: seeded, from records alone.

Intervals are percentiles of the value over resampled examples. A value that is no mean (the overlap of two top lists)
shifts when examples are drawn twice and others not at all, so its resampled values are moved to lie around the value.
Records that say they are of one `group`, such as the parts of one mosaic, are drawn, and traded, together.

What a metric answers for one method is a list of repeats, each a list with one record per example; all methods but
`random`, which is averaged over seeds, have one repeat.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.metric import Curves, MetricSpec, Record, column

SAMPLES = 1000
FLIPS = 9999
TRADES = 499
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
    measure: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
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
    measure: MetricSpec, repeats: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> Band | None:
    """The metric's curve, averaged over repeats, with the interval over resampled examples; None if it draws none."""
    plain = _curve(measure, repeats, np.ones((1, len(repeats[0]))))
    if plain is None:
        return None
    x, height_K = plain[0], plain[1][0]
    parts = [_curve(measure, repeats, weights) for weights in _weights(repeats[0], samples, seed)]
    drawn_RK = np.concatenate([part[1] for part in parts if part is not None])
    if not measure.metric.is_mean:
        drawn_RK = _around(height_K, drawn_RK)
    bounds = [_bounds(drawn_R, level) for drawn_R in drawn_RK.T]
    low, high = zip(*bounds, strict=True) if bounds else ((), ())
    return Band(tuple(x), tuple(map(float, height_K)), low, high)


def _curve(measure: MetricSpec, repeats: Repeats, weights_RN: Array) -> Curves | None:
    found = [one for records in repeats if (one := measure.curves(records, weights_RN)) is not None]
    return (found[0][0], np.mean([heights for _, heights in found], 0)) if found else None


def differences(
    measure: MetricSpec, first: Repeats, second: Repeats, *, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, Difference]:
    """A paired test of two methods on the same examples, for each value of the metric.

    Where a value is a mean, the signs of the examples' differences are flipped at random; where it is not, the methods
    trade the records of random examples, and the value is taken anew.
    """
    if len(first[0]) != len(second[0]):
        raise ValueError(f"A paired test needs the same examples, not {len(first[0])} and {len(second[0])} records.")
    plain_first, plain_second = _plain(measure, first), _plain(measure, second)
    drawn_first, drawn_second = _bootstrap(measure, first, samples, seed), _bootstrap(measure, second, samples, seed)
    traded = {} if measure.metric.is_mean else _traded(measure, first, second, seed)
    found = {}
    for name in plain_first:
        drawn = drawn_first[name] - drawn_second[name]
        p = _flipped(first, second, name, seed) if measure.metric.is_mean else _extreme(traded[name])
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


def _count(measure: MetricSpec, records: Sequence[Record], name: str) -> int:
    return int(np.isfinite(column(records, name)).sum()) if measure.metric.is_mean else sum(map(bool, records))


def _plain(measure: MetricSpec, repeats: Repeats) -> dict[str, float]:
    """The values themselves."""
    return {name: float(one[0]) for name, one in _repeated(measure, repeats, np.ones((1, len(repeats[0])))).items()}


def _repeated(measure: MetricSpec, repeats: Repeats, weights_RN: Array) -> dict[str, Array]:
    """The values (R), averaged over repeats."""
    found = [measure.resampled(records, weights_RN) for records in repeats]
    return {name: np.mean([one[name] for one in found], 0) for name in found[0]}


def _bootstrap(measure: MetricSpec, repeats: Repeats, samples: int, seed: int) -> dict[str, Array]:
    """The values under resampling: the same examples are drawn for every method and repeat."""
    parts = [_repeated(measure, repeats, weights) for weights in _weights(repeats[0], samples, seed)]
    drawn = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if measure.metric.is_mean:
        return drawn
    plain = _plain(measure, repeats)
    return {name: _around(plain[name], one) for name, one in drawn.items()}


def _around(value: Any, drawn: Array) -> Array:
    """Moved so that the value is their median; shares and counts stay what can be one."""
    least, most = 0 if np.all(drawn >= 0) else -np.inf, 1 if np.all(drawn <= 1) else np.inf
    moved: Array = np.clip(drawn + value - np.median(drawn, 0), least, most)
    return moved


def _weights(records: Sequence[Record], samples: int, seed: int) -> Iterator[Array]:
    """How often each record is drawn in each sample, a block of samples at a time."""
    group_N = _groups(records)
    count = int(group_N.max()) + 1
    generator, share = np.random.default_rng(seed), np.full(count, 1 / count)
    for rows in _blocks(samples, len(records)):
        yield generator.multinomial(count, share, size=rows)[:, group_N].astype(np.float64)


def _groups(records: Sequence[Record]) -> Array:
    """For each record the number of its group; a record that names none is one by itself."""
    names = [record.get("group", place) for place, record in enumerate(records)]
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names])


def _blocks(rows: int, width: int) -> Iterator[int]:
    """So many rows, in parts that fit into memory."""
    size = max(1, BLOCK // width)
    return (min(size, rows - start) for start in range(0, rows, size))


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
    real, group_N = np.isfinite(difference_N), _groups(first[0])
    if not real.any():
        return 1.0
    total_G = np.bincount(group_N[real], difference_N[real])[np.unique(group_N[real])]
    seen, generator = abs(total_G.sum()), np.random.default_rng(seed)
    slack, extreme = 1e-12 * np.abs(total_G).sum(), 0
    for rows in _blocks(FLIPS, len(total_G)):
        signs = generator.integers(0, 2, (rows, len(total_G))) * 2 - 1
        extreme += int((np.abs(signs @ total_G) >= seen - slack).sum())
    return (extreme + 1) / (FLIPS + 1)


def _traded(measure: MetricSpec, first: Repeats, second: Repeats, seed: int) -> dict[str, Array]:
    """The difference as it is, and after the two methods have traded the records of random examples."""
    generator, group_N = np.random.default_rng(seed), _groups(first[0])
    turns = [(first[turn % len(first)], second[turn % len(second)]) for turn in range(max(len(first), len(second)))]
    found: list[list[dict[str, Array]]] = []
    for rows in _blocks(TRADES + 1, 2 * len(group_N)):
        trades_RN = generator.integers(0, 2, (rows, int(group_N.max()) + 1))[:, group_N].astype(np.float64)
        if not found:
            trades_RN[0] = 0
        own_RN, other_RN = np.hstack([1 - trades_RN, trades_RN]), np.hstack([trades_RN, 1 - trades_RN])
        found.append([_less(measure, [*one, *two], own_RN, other_RN) for one, two in turns])
    return {name: np.concatenate([np.mean([one[name] for one in part], 0) for part in found]) for name in found[0][0]}


def _less(measure: MetricSpec, records: Sequence[Record], first_RN: Array, second_RN: Array) -> dict[str, Array]:
    first, second = measure.resampled(records, first_RN), measure.resampled(records, second_RN)
    return {name: first[name] - second[name] for name in first}


def _extreme(drawn_R: Array) -> float:
    """How often chance differs as much as the first, two-sided; where it never does, the tail of a normal curve.

    Without the tail no p could fall below 1 / trades, too much for a correction over many comparisons.
    """
    seen, chance = abs(drawn_R[0]), np.abs(drawn_R[1:][np.isfinite(drawn_R[1:])])
    if not np.isfinite(seen) or not len(chance):
        return 1.0
    extreme, spread = int((chance >= seen * (1 - 1e-12)).sum()), float(np.sqrt((chance**2).mean()))
    share = (extreme + 1) / (len(chance) + 1)
    return share if extreme or not spread else min(share, math.erfc(seen / spread / math.sqrt(2)))
