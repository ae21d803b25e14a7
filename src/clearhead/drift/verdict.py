"""Whether the reasons of two models differ by more than noise."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter

import numpy as np

from clearhead.arrays import Array
from clearhead.drift.word_shifts import paired_moments
from clearhead.evaluation.corrected_t import MIN_GROUPS, p_value
from clearhead.evaluation.distributions import share_bounds, student_quantile
from clearhead.evaluation.statistics import LEVEL
from clearhead.model_diff import MOVED, SAME, WITHIN_NOISE, ClassShift, ExampleDiff, Noise, Verdict, WordShift

SAME_SHIFT = 0.02
"""The mean shift up to which reasons are called the same: nobody would see it."""
MIN_EXAMPLE_SHIFT = 0.05
"""The shift of one example that is never called a move."""
NOISE_QUANTILE = 0.95
# Without a measured noise: a little above that of the embedded models.
DEFAULT_BOUND = 0.1
DEFAULT_EXAMPLE_BOUND = 0.3
DEFAULT_WORD_SHIFT = 0.02
ALPHA = 1 - LEVEL
CONDITIONS = 3
NOISE_LEVEL = 1 - 2 * ALPHA / CONDITIONS
"""The level of two-sided intervals whose upper ends noise exceeds in 5 % of all gates, in any of three conditions.

These are the mean shift, the number of examples that moved, and the word that moved most (Bonferroni).
"""
MAX_NAMED_WORDS = 3


def bound_examples(noise: Noise | None, count: int) -> Array:
    """Return the shift of each example that noise stays below.

    That is the 95 % quantile over all examples and draws, enlarged as much as another draw may be stronger as a whole,
    but never less than what noise did to the example itself.
    """
    if noise is None:
        return np.full(count, DEFAULT_EXAMPLE_BOUND)
    common = max(MIN_EXAMPLE_SHIFT, _bound_all(noise))
    bound_N: Array = np.maximum(common, noise.shift_SN.max(axis=0))
    return bound_N


def _bound_all(noise: Noise) -> float:
    return float(np.quantile(noise.shift_SN, NOISE_QUANTILE)) * _enlarge(noise)


def _enlarge(noise: Noise) -> float:
    """Return how many times stronger than the mean another draw may be."""
    mean = float(noise.mean_shift_D.mean())
    # Noise that moves nothing has no strength to compare with.
    if not mean:
        return 1.0
    return _predict_mean(noise) / mean


def bound_mean(noise: Noise | None) -> float:
    """Return the mean shift that another draw of noise stays below.

    All examples share the weights of a draw, so the spread is that of draws: mean + t · s · √(1 + 1/m), the prediction
    interval of Student's t, and never less than the largest draw.
    """
    if noise is None:
        return DEFAULT_BOUND
    return max(SAME_SHIFT, noise.largest_mean_shift, _predict_mean(noise))


def _predict_mean(noise: Noise) -> float:
    return predict_next(noise.mean_shift_D)


def predict_next(value_D: Array) -> float:
    """Return the value up to which another draw of noise may come; that of a single draw, which has no spread."""
    return float(value_D.mean()) + _reach(value_D)


def _reach(mean_D: Array) -> float:
    """Return how far above the mean the prediction interval ends."""
    draws = len(mean_D)
    if draws < 2:
        return 0.0
    spread = float(mean_D.std(ddof=1)) * math.sqrt(1 + 1 / draws)
    return student_quantile(NOISE_LEVEL, draws - 1) * spread


def bound_words(noise: Noise | None) -> float:
    """Return how far noise moves the mean share of a word."""
    if noise is None:
        return DEFAULT_WORD_SHIFT
    return max(draw.largest_word_shift for draw in noise.sources)


def measure_excess(shift_N: Array, noise: Noise | None) -> float:
    """Return the p-value of the examples' excess over the mean of noise, or over a fixed bound without noise."""
    moments = paired_moments(shift_N - _expect_shift(noise))
    if moments.mean <= 0:
        return 1.0
    return p_value(moments)


def _expect_shift(noise: Noise | None) -> float | Array:
    """Return the mean shift of each example by noise."""
    if noise is None:
        return DEFAULT_BOUND
    # The draws come first; precisions are no random draws, so they do not enter the mean.
    mean_N: Array = noise.shift_SN[: len(noise.draws)].mean(axis=0)
    return mean_N


def judge(
    rows: Sequence[ExampleDiff], noise: Noise | None, words: Sequence[WordShift], classes: Sequence[ClassShift]
) -> Verdict:
    """Say whether reasons moved more than noise moves them, and where."""
    evidence = _collect_evidence(rows, noise)
    outcome = _choose_outcome(evidence)
    sentence = _write_sentence(outcome, evidence, [*_name_words(words), *_name_class(classes)])
    return Verdict(outcome, sentence, **asdict(evidence))


@dataclass(frozen=True)
class _Evidence:
    """What a verdict rests on; the fields are those of `Verdict`."""

    shift: float
    bound: float
    p: float
    beyond: int
    examples: int
    same: int


def _collect_evidence(rows: Sequence[ExampleDiff], noise: Noise | None) -> _Evidence:
    shift_N = collect_column(rows, "shift")
    return _Evidence(
        shift=float(shift_N.mean()),
        bound=bound_mean(noise),
        p=measure_excess(shift_N, noise),
        beyond=int(collect_column(rows, "is_beyond_noise").sum()),
        examples=len(rows),
        same=int(collect_column(rows, "has_same_answer").sum()),
    )


def collect_column(rows: Sequence[ExampleDiff], name: str) -> Array:
    """Return one property of all examples."""
    return np.array(list(map(attrgetter(name), rows)))


def _choose_outcome(evidence: _Evidence) -> str:
    if _has_moved(evidence):
        return MOVED
    if _is_unchanged(evidence):
        return SAME
    return WITHIN_NOISE


def _has_moved(evidence: _Evidence) -> bool:
    return _is_mean_beyond(evidence) or _are_too_many(evidence.beyond, evidence.examples)


def _is_unchanged(evidence: _Evidence) -> bool:
    return evidence.shift <= SAME_SHIFT and evidence.same == evidence.examples


def _is_mean_beyond(evidence: _Evidence) -> bool:
    return evidence.shift > evidence.bound and _is_significant(evidence)


def _is_significant(evidence: _Evidence) -> bool:
    # Of few examples no test can tell, so that the bound alone decides.
    return evidence.p < ALPHA or evidence.examples < MIN_GROUPS


def _are_too_many(beyond: int, count: int) -> bool:
    """Return whether more examples than noise leads to moved beyond its quantile."""
    low, _ = share_bounds(beyond, count, NOISE_LEVEL)
    return low > 1 - NOISE_QUANTILE


def _write_sentence(outcome: str, evidence: _Evidence, where: Sequence[str]) -> str:
    answers = f"{evidence.same} of {evidence.examples} answers are the same"
    if outcome == SAME:
        return f"Same reasons: {answers}, and no reasons moved visibly."
    if outcome == WITHIN_NOISE:
        return f"Moved within noise: {answers}, and reasons moved no more than noise moves them."
    moved = f"Moved: {answers}; the reasons for {evidence.beyond} moved more than noise moves them"
    return "; ".join([moved, *where]) + "."


def _name_words(words: Sequence[WordShift]) -> list[str]:
    """Name the words that moved most, if some moved beyond noise."""
    # Those beyond noise are the first.
    moved = [shift for shift in words[:MAX_NAMED_WORDS] if shift.is_beyond_noise]
    if not moved:
        return []
    return [f"most by {', '.join(map(_name_word, moved))} (change of the share per occurrence)"]


def _name_word(shift: WordShift) -> str:
    # In the unit of the tables.
    return f"'{shift.word}' {shift.difference:+.1%}"


def _name_class(classes: Sequence[ClassShift]) -> list[str]:
    """Name the class whose reasons moved most, if there are several."""
    shifts = [(entry.shift, entry.label) for entry in classes if entry.shift is not None]
    # Where there is a single class, it is no place.
    if len(shifts) < 2:
        return []
    shift, label = max(shifts)
    return [f"most for '{label}' ({shift:.0%} of the reasons)"]
