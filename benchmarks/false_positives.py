"""False positives of the paired tests, coverage of the intervals, and the time of all comparisons, by simulation.

    python benchmarks/false_positives.py [--runs 12000] [--out FILE]

A null draws the differences of two methods on n examples from a distribution with mean 0; the false-positive rate is
the share of runs with p at most the level. Beside Clearhead's test stand those it was chosen over: random sign flips,
Student's t, the bootstrap-t (equal tails), and Hall's transformation with the measured skewness, each on a tenth of
the runs. Power is that at the 5 % level against a shift by 2.8 standard errors, towards the long tail (+) and away.
"""

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from yardstick import command

from clearhead.evaluation.comparison import compare_methods, difference_rows
from clearhead.evaluation.corrected_t import corrected_bounds, measure_moments, p_value
from clearhead.evaluation.distributions import student_tail
from clearhead.evaluation.metric import parse_metric
from clearhead.evaluation.statistics import intervals

ROOT = Path(__file__).parents[1]
LEVELS = (0.05, 0.01, 0.001)
SIZES = (8, 14, 24, 48, 100, 200)
INTERVAL_SIZES = (5, 8, 10, 24, 48, 100)
RESAMPLES = 4999
BLOCK = 250
METHODS = 38

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def two_points(rate: float) -> Draw:
    """1 at this rate, else 0, centred."""
    return lambda generator, shape: (generator.random(shape) < rate) - rate


def draw_zero_inflated(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.where(generator.random(shape) < 0.5, 0.0, generator.exponential(size=shape)) - 0.5


def draw_rare(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Far on one side in one of twenty examples."""
    return np.where(generator.random(shape) < 0.05, generator.exponential(size=shape), 0.001 * generator.random(shape))


NULLS: dict[str, Draw] = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "uniform": lambda generator, shape: generator.uniform(-1, 1, shape),
    "t, 3 degrees": lambda generator, shape: generator.standard_t(3, shape),
    "−1, 0 or 1": lambda generator, shape: generator.choice([-1.0, 0.0, 1.0], shape, p=[0.15, 0.7, 0.15]),
    "exponential": lambda generator, shape: generator.exponential(size=shape) - 1,
    "χ², 1 degree": lambda generator, shape: generator.chisquare(1, shape) - 1,
    "lognormal": lambda generator, shape: generator.lognormal(size=shape) - np.exp(0.5),
    "two points, 1 in 5": two_points(0.2),
    "two points, 1 in 10": two_points(0.1),
    "half zeros": draw_zero_inflated,
    "1 in 20": lambda generator, shape: draw_rare(generator, shape) - 0.05 - 0.95 * 0.0005,
}


def corrected_p(sample_N: np.ndarray) -> float:
    return p_value(measure_moments(sample_N, np.arange(len(sample_N))))


def hall_p(sample_N: np.ndarray) -> float:
    """1 where the interval holds 0, by the level: Hall's transformation without the margin."""
    moments = measure_moments(sample_N, np.arange(len(sample_N)))
    for level in sorted(LEVELS):
        low, high = corrected_bounds(moments, 1 - level)
        if low > 0 or high < 0:
            return level
    return 1.0


def student_p(sample_N: np.ndarray) -> float:
    moments = measure_moments(sample_N, np.arange(len(sample_N)))
    if not moments.has_spread:
        return 0.0
    return student_tail(abs(moments.mean) / moments.error, len(sample_N) - 1)


def apply_each(test: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda sample_SN: np.array([test(sample_N) for sample_N in sample_SN])


def flip_signs(sample_SN: np.ndarray) -> np.ndarray:
    """p of the mean under random sign flips, the same for all runs."""
    signs_RN = np.random.default_rng(0).integers(0, 2, (RESAMPLES, sample_SN.shape[1])) * 2.0 - 1
    p_values = []
    for start in range(0, len(sample_SN), BLOCK):
        block_SN = sample_SN[start : start + BLOCK]
        observed_S = np.abs(block_SN.sum(1, keepdims=True)) * (1 - 1e-9)
        p_values.append((1 + (np.abs(block_SN @ signs_RN.T) >= observed_S).sum(1)) / (RESAMPLES + 1))
    return np.concatenate(p_values)


def bootstrap_t(sample_SN: np.ndarray) -> np.ndarray:
    """p of the equal-tailed studentised bootstrap, with the same resamples for all runs."""
    size = sample_SN.shape[1]
    counts_RN = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), RESAMPLES).astype(float)
    p_values = []
    for start in range(0, len(sample_SN), BLOCK):
        p_values.append(_bootstrap_block(sample_SN[start : start + BLOCK], counts_RN))
    return np.concatenate(p_values)


def _bootstrap_block(sample_SN: np.ndarray, counts_RN: np.ndarray) -> np.ndarray:
    size = sample_SN.shape[1]
    mean_S = sample_SN.mean(1, keepdims=True)
    centred_SN = sample_SN - mean_S
    spread_S = centred_SN.std(1, keepdims=True) + 1e-12
    mean_SR = centred_SN @ counts_RN.T / size
    spread_SR = np.sqrt(np.maximum(centred_SN**2 @ counts_RN.T / size - mean_SR**2, (1e-6 * spread_S) ** 2))
    t_SR = mean_SR / spread_SR
    below_S = (t_SR <= mean_S / spread_S).sum(1)
    above_S = (t_SR >= mean_S / spread_S).sum(1)
    return np.minimum(1, 2 * (1 + np.minimum(below_S, above_S)) / (RESAMPLES + 1))


TESTS = {
    "sign flips": flip_signs,
    "Student's t": apply_each(student_p),
    "bootstrap-t": bootstrap_t,
    "Hall": apply_each(hall_p),
    "Clearhead": apply_each(corrected_p),
}


def measure_rates(runs: int) -> list[str]:
    """Rows of false-positive rates for each null and number of examples."""
    rows = []
    for size in SIZES:
        for name, draw in NULLS.items():
            sample_SN = draw(np.random.default_rng(size), (runs, size))
            cells = []
            for title, test in TESTS.items():
                # The others only need to be told from Clearhead's.
                p_S = test(sample_SN if title == "Clearhead" else sample_SN[: runs // 10])
                cells.append(" / ".join(f"{np.mean(p_S <= level):.4f}" for level in LEVELS))
            rows.append(f"| {size} | {name} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    return rows


def measure_power(runs: int) -> list[str]:
    """Rows of the share of shifted samples that are told from 0 at the 5 % level."""
    rows = []
    for size in SIZES[1:]:
        for name in ("normal", "t, 3 degrees", "exponential", "χ², 1 degree"):
            sample_SN = NULLS[name](np.random.default_rng(size), (runs, size))
            shift = 2.8 * sample_SN.std() / np.sqrt(size)
            cells = []
            for test in (student_p, corrected_p):
                shares = [np.mean(apply_each(test)(sample_SN + side * shift) <= 0.05) for side in (1, -1)]
                cells.append(" / ".join(f"{share:.2f}" for share in shares))
            rows.append(f"| {size} | {name} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    return rows


def covers(bounds: tuple[float, float]) -> bool:
    # All nulls have the mean 0.
    return bounds[0] <= 0 <= bounds[1]


def percentile_bounds(sample_SN: np.ndarray) -> np.ndarray:
    size = sample_SN.shape[1]
    counts_RN = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), 999).astype(float)
    return np.quantile(sample_SN @ counts_RN.T / size, [0.025, 0.975], axis=1).T


def measure_coverage(runs: int) -> list[str]:
    """Rows of the coverage of 95 % intervals: percentiles of a bootstrap, and Clearhead's."""
    rows = []
    for name, draw in NULLS.items():
        cells = []
        for size in INTERVAL_SIZES:
            sample_SN = draw(np.random.default_rng(size), (runs, size))
            percentiles = np.mean(list(map(covers, percentile_bounds(sample_SN))))
            moments = [measure_moments(sample_N, np.arange(size)) for sample_N in sample_SN]
            corrected = np.mean([covers(corrected_bounds(entry, 0.95)) for entry in moments])
            cells.append(f"{percentiles:.3f} → {corrected:.3f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def measure_share_coverage(runs: int) -> list[str]:
    """Rows of the coverage of 95 % intervals of shares, whose records are 0 or 1."""
    spec = parse_metric("aopc")
    rows = []
    for share in (0.02, 0.1, 0.5, 0.9):
        cells = []
        for size in INTERVAL_SIZES:
            drawn_SN = np.random.default_rng(size).random((runs, size)) < share
            found = [intervals(spec, [[{"aopc": float(hit)} for hit in drawn_N]])["aopc"] for drawn_N in drawn_SN]
            cells.append(f"{np.mean([entry.low <= share <= entry.high for entry in found]):.3f}")
        rows.append(f"| {share} | {' | '.join(cells)} |")
    return rows


def measure_time(examples: int) -> str:
    """Seconds to compare all pairs of methods on one mean."""
    generator = np.random.default_rng(0)
    records = {}
    for method in range(METHODS):
        records[f"m{method}"] = [[{"aopc": float(value)} for value in generator.normal(size=examples)]]
    start = time.perf_counter()
    spec = parse_metric("aopc")
    rows = difference_rows("aopc", compare_methods(spec, records, 0))
    seconds = time.perf_counter() - start
    return f"{len(rows)} comparisons of {METHODS} methods on {examples} examples: {seconds:.2f} s for a mean."


def table(head: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{date.today()}-statistics.md")
    options = parser.parse_args()
    few = max(1, options.runs // 10)
    sizes = [f"n = {size}" for size in INTERVAL_SIZES]
    parts = [
        f"# Tests and intervals, {date.today()}",
        f"`{command()}`, {platform.machine()}, NumPy {np.__version__}, {options.runs} runs per line.",
        "## False positives at 0.05 / 0.01 / 0.001",
        table(["n", "null", *TESTS], measure_rates(options.runs)),
        "## Power at 0.05, towards the long tail / away from it",
        table(["n", "distribution", "Student's t", "Clearhead"], measure_power(few)),
        "## Coverage of 95 % intervals: bootstrap percentiles → Clearhead",
        table(["distribution", *sizes], measure_coverage(options.runs // 4)),
        "Shares of examples, exact intervals:",
        table(["share", *sizes], measure_share_coverage(few)),
        "## Time",
        measure_time(872),
    ]
    options.out.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
