"""Whether the reasons of two models differ by more than noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.corrected_t import MIN_GROUPS, measure_moments, p_value
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
MAX_NAMED_WORDS = 3


def bound_examples(noise: Noise | None, count: int) -> Array:
    """Return the shift of each example that noise stays below.

    That is the 95 % quantile over all examples and draws, enlarged as much as another draw may be stronger as a whole,
    but never less than what noise did to the example itself.
    """
    if noise is None:
        return np.full(count, DEFAULT_EXAMPLE_BOUND)
    shift_DN = np.stack([draw.shift_N for draw in noise.sources])
    quantile = float(np.quantile(shift_DN, NOISE_QUANTILE)) * _enlarge(noise)
    bound_N: Array = np.maximum(max(MIN_EXAMPLE_SHIFT, quantile), shift_DN.max(axis=0))
    return bound_N


def _enlarge(noise: Noise) -> float:
    """Return how many times stronger than the mean another draw may be."""
    mean = np.mean([draw.shift_N.mean() for draw in noise.draws])
    return _predict_mean(noise) / float(mean) if mean else 1.0


def bound_mean(noise: Noise | None) -> float:
    """Return the mean shift that another draw of noise stays below.

    All examples share the weights of a draw, so the spread is that of draws: mean + t · s · √(1 + 1/m), the prediction
    interval of Student's t, and never less than the largest draw.
    """
    if noise is None:
        return DEFAULT_BOUND
    largest = max(float(draw.shift_N.mean()) for draw in noise.sources)
    return max(SAME_SHIFT, largest, _predict_mean(noise))


def _predict_mean(noise: Noise) -> float:
    """Return the mean shift up to which another draw of noise may come; that of a single draw, which has no spread."""
    mean_D = np.array([draw.shift_N.mean() for draw in noise.draws])
    draws = len(mean_D)
    if draws < 2:
        return float(mean_D[0])
    spread = float(mean_D.std(ddof=1)) * math.sqrt(1 + 1 / draws)
    return float(mean_D.mean()) + student_quantile(LEVEL, draws - 1) * spread


def bound_words(noise: Noise | None) -> float:
    """Return how far noise moves the mean share of a word."""
    if noise is None:
        return DEFAULT_WORD_SHIFT
    return max(draw.largest_word_shift for draw in noise.sources)


def measure_excess(shift_N: Array, noise: Noise | None) -> float:
    """Return the p-value of the examples' excess over the mean of noise, or over a fixed bound without noise."""
    moments = measure_moments(shift_N - _expect_shift(noise), np.arange(len(shift_N)))
    if moments.mean <= 0:
        return 1.0
    return p_value(moments)


def _expect_shift(noise: Noise | None) -> float | Array:
    """Return the mean shift of each example by noise."""
    if noise is None:
        return DEFAULT_BOUND
    mean_N: Array = np.mean([draw.shift_N for draw in noise.draws], axis=0)
    return mean_N


def judge(
    rows: Sequence[ExampleDiff], noise: Noise | None, words: Sequence[WordShift], classes: Sequence[ClassShift]
) -> Verdict:
    """Say whether reasons moved more than noise moves them, and where."""
    evidence = _collect_evidence(rows, noise)
    outcome = _choose_outcome(evidence)
    sentence = _write_sentence(outcome, evidence, [*_name_words(words), *_name_class(classes)])
    return Verdict(outcome, sentence, evidence.shift, evidence.bound, evidence.p, evidence.beyond, evidence.examples)


@dataclass(frozen=True)
class _Evidence:
    """What a verdict rests on; the fields are those of `Verdict`, and the number of same answers."""

    shift: float
    bound: float
    p: float
    beyond: int
    examples: int
    same: int


def _collect_evidence(rows: Sequence[ExampleDiff], noise: Noise | None) -> _Evidence:
    shift_N = np.array([row.agreement.shift for row in rows])
    beyond = sum(row.is_beyond_noise for row in rows)
    same = sum(row.has_same_answer for row in rows)
    p = measure_excess(shift_N, noise)
    return _Evidence(float(shift_N.mean()), bound_mean(noise), p, beyond, len(rows), same)


def _choose_outcome(evidence: _Evidence) -> str:
    if _is_mean_beyond(evidence) or _are_too_many(evidence.beyond, evidence.examples):
        return MOVED
    if evidence.shift <= SAME_SHIFT and evidence.same == evidence.examples:
        return SAME
    return WITHIN_NOISE


def _is_mean_beyond(evidence: _Evidence) -> bool:
    # Of few examples no test can tell, so that the bound alone decides.
    is_significant = evidence.p < ALPHA or evidence.examples < MIN_GROUPS
    return evidence.shift > evidence.bound and is_significant


def _are_too_many(beyond: int, count: int) -> bool:
    """Return whether more examples than noise leads to moved beyond its quantile."""
    low, _ = share_bounds(beyond, count, LEVEL)
    return low > 1 - NOISE_QUANTILE


def _write_sentence(outcome: str, evidence: _Evidence, where: Sequence[str]) -> str:
    answers = f"{evidence.same} of {evidence.examples} answers are the same"
    if outcome == SAME:
        return f"Same reasons: {answers}, and no reasons moved visibly."
    if outcome == WITHIN_NOISE:
        return f"Moved within noise: {answers}, and reasons moved no more than by rounding the weights."
    moved = f"Moved: {answers}, but {evidence.beyond} have reasons that moved more than noise moves them"
    return "; ".join([moved, *where]) + "."


def _name_words(words: Sequence[WordShift]) -> list[str]:
    """Name the words that moved most, if some moved beyond noise."""
    # Those beyond noise are the first.
    moved = [shift for shift in words[:MAX_NAMED_WORDS] if shift.is_beyond_noise]
    if not moved:
        return []
    named = ", ".join(f"'{shift.word}' {shift.difference:+.2f}" for shift in moved)
    return [f"most by {named} (change of the share per occurrence)"]


def _name_class(classes: Sequence[ClassShift]) -> list[str]:
    """Name the class whose reasons moved most, if there are several."""
    shifts = [(entry.shift, entry.label) for entry in classes if entry.shift is not None]
    if len(shifts) < 2:
        return []
    shift, label = max(shifts)
    return [f"most for '{label}' ({shift:.0%} of the reasons)"]
