"""Tails and quantiles of Student's t and bounds of a share, without SciPy, which is an optional dependency."""

import math
from collections.abc import Callable
from functools import lru_cache

# Halving an interval so often exhausts the digits of a float.
BISECTIONS = 100


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges fast on one side of the mean only; the other side is its complement.
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    return _beta_front(x, a, b) / _beta_fraction(x, a, b)


def _beta_front(x: float, a: float, b: float) -> float:
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    fraction = 1.0
    # From the innermost term outwards.
    for m in range(_count_terms(a, b), 0, -1):
        fraction = 1 + _odd_term(m, a, b) * x / fraction
        fraction = 1 + _even_term(m, a, b) * x / fraction
    return 1 + _odd_term(0, a, b) * x / fraction


def _odd_term(m: int, a: float, b: float) -> float:
    return -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1))


def _even_term(m: int, a: float, b: float) -> float:
    return m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m))


def _count_terms(a: float, b: float) -> int:
    # The terms needed grow with the root of the larger parameter; this is twice as many.
    return 20 + int(4 * math.sqrt(max(a, b)))


def student_tail(t: float, degrees: int) -> float:
    """Return the probability that Student's t is at least as far from zero, on either side."""
    return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


@lru_cache(maxsize=4096)
def student_quantile(level: float, degrees: int) -> float:
    """Return the bound that Student's t stays within, on both sides, with probability `level`."""

    def is_low(share: float) -> bool:
        # As a share of the axis, which has no end: t = share / (1 − share).
        return student_tail(share / (1 - share), degrees) > 1 - level

    share = _bisect(is_low)
    return share / (1 - share)


@lru_cache(maxsize=4096)
def share_bounds(successes: int, trials: int, level: float) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson 1934)."""
    tail = (1 - level) / 2
    # By symmetry the upper bound of the successes is the lower one of the failures.
    return _lower_share(successes, trials, tail), 1 - _lower_share(trials - successes, trials, tail)


def _lower_share(successes: int, trials: int, tail: float) -> float:
    """Return the share at which so many successes, or more, have the probability `tail`."""
    if successes == 0:
        return 0.0
    return _bisect(lambda share: incomplete_beta(share, successes, trials - successes + 1) < tail)


def _bisect(is_low: Callable[[float], bool]) -> float:
    """Return the share between 0 and 1 up to which `is_low` holds."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if is_low(middle):
            low = middle
        else:
            high = middle
    return low
