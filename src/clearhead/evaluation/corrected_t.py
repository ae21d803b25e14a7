"""Student's t for the mean of skewed values: corrected for skewness by Hall's cubic transformation.

If rare values lie far on one side, a sample without them has a mean too far on the other side and a spread too small,
and Student's t (like flipping signs at random) finds a difference far too often. The cubic transformation of Hall ("On
the removal of skewness by transformation", 1992) removes this to second order; it is used where it makes t smaller.

What remains is what no sample can show, so a test asks for more than an interval does: the skewness is taken to be
SKEWNESS_MARGIN standard errors worse than measured, and p is at least the chance to miss a rare outcome in every group.
"""

import math
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.distributions import student_quantile, student_tail

# With it the simulated skewed nulls hold down to 0.001, a lognormal one nearly: see benchmarks/false_positives.py.
SKEWNESS_MARGIN = 1.5
# Rarer outcomes than these may be missing in all groups by chance; the second where the differences do not vary at all.
RARE_OUTCOME = 0.2
RARE_OUTCOME_WITHOUT_SPREAD = 0.1
# The fewest groups with which p can fall below 0.05.
MIN_GROUPS = 14
# Spread below this share of the mean is rounding.
ROUNDING = 1e-12
# The bound by the size of values may add a twentieth to the rate of false alarms: it is asked for 20 times as much.
BOUND_PRICE = 20
UNKNOWN_BOUNDS = (float("nan"), float("nan"))


def fewest_groups(comparisons: int, level: float = 0.05) -> int:
    """Return the fewest groups with which one of so many comparisons can be significant after correction."""
    rarest = math.log(level / max(1, comparisons)) / math.log(1 - RARE_OUTCOME)
    return max(MIN_GROUPS, math.ceil(rarest))


@dataclass(frozen=True)
class Moments:
    """A mean, its standard error, the skewness of the values and its error, and the number of independent groups.

    `largest` is the largest size that a value can have, as far as that is known.
    """

    mean: float
    error: float
    groups: int
    skewness: float = 0.0
    skewness_error: float = 0.0
    largest: float = math.inf

    @property
    def is_testable(self) -> bool:
        return self.groups >= MIN_GROUPS and math.isfinite(self.mean) and math.isfinite(self.error)

    @property
    def has_spread(self) -> bool:
        return self.error > ROUNDING * abs(self.mean)


def measure_moments(value_N: Array, group_N: Array) -> Moments:
    """Return the moments of the finite values; records of one group are not independent of each other."""
    is_finite = np.isfinite(value_N)
    if not is_finite.any():
        return Moments(math.nan, math.nan, 0)
    finite_N = value_N[is_finite]
    mean = float(finite_N.mean())
    deviation_G = _sum_groups(finite_N - mean, group_N[is_finite])
    error = _standard_error(deviation_G, len(finite_N))
    groups = len(deviation_G)
    return Moments(mean, error, groups, _skewness(deviation_G), _skewness_error(groups))


def _sum_groups(deviation_N: Array, group_N: Array) -> Array:
    # Summed, so that large groups count as much as they have records.
    numbers_N = np.unique(group_N, return_inverse=True)[1]
    return np.bincount(numbers_N, deviation_N)


def _standard_error(deviation_G: Array, count: int) -> float:
    groups = len(deviation_G)
    if groups < 2:
        return math.nan
    return math.sqrt(groups / (groups - 1) * float(deviation_G @ deviation_G)) / count


def _skewness(deviation_G: Array) -> float:
    """Return the skewness, adjusted for few groups (Fisher and Pearson); 0 where there are too few."""
    groups = len(deviation_G)
    variance = _mean_power(deviation_G, 2)
    if groups < 3 or not variance:
        return 0.0
    return _adjust_skewness(groups) * _mean_power(deviation_G, 3) / (variance * math.sqrt(variance))


def _mean_power(deviation_G: Array, power: int) -> float:
    return float((deviation_G**power).mean())


def _adjust_skewness(groups: int) -> float:
    """Return the factor of the skewness of few groups."""
    return math.sqrt(groups * (groups - 1)) / (groups - 2)


def _skewness_error(count: int) -> float:
    return math.sqrt(6 / count)


def resampled_moments(estimate: float, resampled_R: Array, groups: int) -> Moments:
    """Return the moments of a value that is no mean, as far as its bootstrap shows them."""
    if groups < 2 or len(resampled_R) < 2:
        return Moments(estimate, math.nan, groups)
    deviation_R = resampled_R - resampled_R.mean()
    error = _bootstrap_error(deviation_R, groups)
    # The skewness of a mean is that of its values divided by the root of their number.
    skewness = _skewness(deviation_R) * math.sqrt(groups)
    return Moments(estimate, error, groups, skewness, _resampled_skewness_error(groups, len(resampled_R)))


def _bootstrap_error(deviation_R: Array, groups: int) -> float:
    # A bootstrap draws from the sample, whose variance is too small by (groups − 1) / groups.
    return float(deviation_R.std()) * math.sqrt(groups / (groups - 1))


def _resampled_skewness_error(groups: int, samples: int) -> float:
    return math.hypot(_skewness_error(groups), _skewness_error(samples) * math.sqrt(groups))


def p_value(moments: Moments) -> float:
    """Return the two-sided p-value of a mean of zero; 1 with too few groups to tell."""
    if not moments.is_testable or moments.mean == 0:
        return 1.0
    if not moments.has_spread:
        return _chance_of_absence(RARE_OUTCOME_WITHOUT_SPREAD, moments.groups)
    tail = student_tail(_cautious_t(moments), moments.groups - 1)
    cautious = max(tail, _chance_of_absence(RARE_OUTCOME, moments.groups))
    return min(cautious, BOUND_PRICE * _bound_p_value(moments))


def _bound_p_value(moments: Moments) -> float:
    """Return Hoeffding's bound, which holds for any values of limited size; 1 or more if no limit is known.

    Against a long tail the corrected t never becomes large, however clear a difference is.
    """
    return 2 * math.exp(-moments.groups * (moments.mean / moments.largest) ** 2 / 2)


def _cautious_t(moments: Moments) -> float:
    """Return the corrected t for a skewness worse than measured."""
    adverse = _find_adverse_skewness(moments)
    bend = _bend(adverse + SKEWNESS_MARGIN * moments.skewness_error, moments.groups)
    return max(0.0, _correct(abs(moments.mean) / moments.error, bend))


def _find_adverse_skewness(moments: Moments) -> float:
    # Skewness makes t too large where the long tail lies on the other side of zero than the mean.
    return -math.copysign(1.0, moments.mean) * moments.skewness


def _chance_of_absence(rate: float, groups: int) -> float:
    """Return the probability that no group shows an outcome of this rate."""
    return float((1 - rate) ** groups)


def _bend(adverse_skewness: float, groups: int) -> float:
    """Return how much the transformation bends: a = γ / (3 √n), 0 where the skewness makes t smaller."""
    return max(0.0, adverse_skewness) / (3 * math.sqrt(groups))


def _correct(t: float, bend: float) -> float:
    """Return Hall's t − a t² + a² t³ / 3 − a / 2, constant beyond its turning point at 1 / a."""
    if t * bend > 1:
        t = 1 / bend
    return t - bend * t**2 + bend**2 * t**3 / 3 - bend / 2


def corrected_bounds(moments: Moments, level: float) -> tuple[float, float]:
    """Return the interval of the mean: all means that the corrected t, without a margin, does not reject."""
    if not math.isfinite(moments.error):
        return UNKNOWN_BOUNDS
    below = moments.error * _reach(moments, -moments.skewness, level)
    above = moments.error * _reach(moments, moments.skewness, level)
    return moments.mean - below, moments.mean + above


def _reach(moments: Moments, adverse_skewness: float, level: float) -> float:
    """Return how many standard errors the interval reaches on one side."""
    quantile = student_quantile(level, moments.groups - 1)
    return _invert(quantile, _bend(adverse_skewness, moments.groups))


def _invert(corrected: float, bend: float) -> float:
    """Return the t that Hall's cubic maps to this value; here not constant, so that there always is one."""
    # The formula divides by it, and without skewness there is nothing to invert.
    if bend < 1e-6:
        return corrected
    return (1 - math.cbrt(1 - 3 * bend * (corrected + bend / 2))) / bend
