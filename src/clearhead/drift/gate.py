"""The gate: conditions that a new model must meet before it is released, and what came of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.drift.verdict import ALPHA, DEFAULT_WORD_SHIFT, predict_next
from clearhead.model_diff import MOVED, ModelDiff, Noise, WordShift
from clearhead.validation import require_number

WITHIN_NOISE_NAME = "reasons within noise"
WORDS_NAME = "words within noise"
SHIFT_NAME = "max-shift"
AGREEMENT_NAME = "min-agreement"


@dataclass(frozen=True)
class Thresholds:
    """Limits that a team sets by itself: they take the place of noise.

    `min_agreement` is the lowest mean rank correlation, `max_shift` the largest mean part of the reasons that may move.
    """

    min_agreement: float | None = None
    max_shift: float | None = None

    def __post_init__(self) -> None:
        if self.min_agreement is not None:
            require_number("min_agreement", self.min_agreement, -1, 1)
        if self.max_shift is not None:
            require_number("max_shift", self.max_shift, 0, 1)

    @property
    def are_set(self) -> bool:
        return self.min_agreement is not None or self.max_shift is not None


@dataclass(frozen=True)
class Condition:
    """What was measured, the limit, and whether it holds; `sentence` says it in words."""

    name: str
    value: float
    limit: float
    holds: bool
    sentence: str


@dataclass(frozen=True, eq=False)
class GateResult:
    """The conditions of the gate, and the diff that they were measured on."""

    diff: ModelDiff
    conditions: tuple[Condition, ...]

    @property
    def passes(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    @property
    def failed(self) -> tuple[Condition, ...]:
        return tuple(condition for condition in self.conditions if not condition.holds)

    @property
    def summary(self) -> str:
        """One line: whether it passes, and why."""
        # What failed is what a reader has to know.
        shown = self.failed or self.conditions
        sentences = " ".join(condition.sentence for condition in shown)
        return f"{self._outcome}: {self.diff.second.model}. {sentences}"

    @property
    def _outcome(self) -> str:
        return "passed" if self.passes else "FAILED"


def judge_release(diff: ModelDiff, thresholds: Thresholds | None = None) -> GateResult:
    """Judge a diff by the thresholds; without any, by the noise of the baseline."""
    # Instead of noise, not beside it: who sets a limit expects more change than rounding makes.
    if thresholds is not None and thresholds.are_set:
        return GateResult(diff, tuple(_apply_thresholds(diff, thresholds)))
    return GateResult(diff, tuple(_apply_noise(diff)))


def _apply_thresholds(diff: ModelDiff, thresholds: Thresholds) -> Iterator[Condition]:
    if thresholds.max_shift is not None:
        yield _limit_shift(diff.shift, thresholds.max_shift)
    if thresholds.min_agreement is not None:
        yield _limit_agreement(diff.correlation, thresholds.min_agreement)


def _limit_shift(shift: float, limit: float) -> Condition:
    sentence = f"Reasons moved by {shift:.1%} on average, at most {limit:.1%} is allowed."
    return Condition(SHIFT_NAME, shift, limit, shift <= limit, sentence)


def _limit_agreement(correlation: float, limit: float) -> Condition:
    sentence = f"The rank correlation of reasons is {correlation:.3f} on average, at least {limit:g} is asked."
    return Condition(AGREEMENT_NAME, correlation, limit, correlation >= limit, sentence)


def _apply_noise(diff: ModelDiff) -> Iterator[Condition]:
    verdict = diff.verdict
    yield Condition(WITHIN_NOISE_NAME, verdict.shift, verdict.bound, verdict.outcome != MOVED, verdict.sentence)
    # Means over all examples do not show what a word does that stands in few of them.
    if diff.noise is not None and diff.words:
        yield _compare_largest_word(diff.words, bound_largest_word(diff.noise))


def bound_largest_word(noise: Noise) -> float:
    """Return how far another draw of noise may move the word that it moves most.

    The prediction interval over draws, as that of the mean shift: the largest of a few draws is exceeded by the next
    far too often.
    """
    shift_D = np.array([draw.largest_word_shift for draw in noise.draws])
    largest = max(draw.largest_word_shift for draw in noise.sources)
    return max(DEFAULT_WORD_SHIFT, largest, predict_next(shift_D))


def _compare_largest_word(words: Sequence[WordShift], limit: float) -> Condition:
    # Others may have moved by chance, and the largest of many such words always has.
    tested = filter(_is_significant, words)
    word = max(tested, key=_word_size, default=None)
    if word is None:
        return Condition(WORDS_NAME, 0.0, limit, True, "No word moved in enough examples to tell.")
    size = _word_size(word)
    return Condition(WORDS_NAME, size, limit, size <= limit, f"{_describe_word(word)} {_describe_bound(limit)}")


def _describe_word(word: WordShift) -> str:
    return f"Of all words '{word.word}' moved most, from {word.first:+.1%} to {word.second:+.1%} per occurrence;"


def _describe_bound(limit: float) -> str:
    return f"noise moves words by up to {limit:.1%}."


def _is_significant(word: WordShift) -> bool:
    return word.p_corrected is not None and word.p_corrected < ALPHA


def _word_size(word: WordShift) -> float:
    return abs(word.difference)
