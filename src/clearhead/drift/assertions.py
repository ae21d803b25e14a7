"""Assertions about the reasons of a model, for tests: on a baseline, on single explanations, on minimal pairs.

A failed assertion tells the shares that it was judged by. What makes a test pointless, such as a word that does not
occur, is an error and no failure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.api import explain
from clearhead.arrays import Array
from clearhead.data.task import Example
from clearhead.drift.check_reasons import check_reasons
from clearhead.drift.gate import Thresholds, judge_release
from clearhead.drift.reasons import extract_reasons
from clearhead.drift.verdict import DEFAULT_EXAMPLE_BOUND
from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.top_words import normalise_word
from clearhead.explanation import Explanation
from clearhead.model.loading import as_model
from clearhead.model_diff import WORD, ModelDiff, Reasons, Snapshot
from clearhead.validation import require_number

RELIED_SHARE = 1.0
"""A model relies on a word that has at least the share of an average word, and speaks for the answer."""
IGNORED_SHARE = 0.5
"""A model ignores a word that has at most half the share of an average word, for or against the answer."""
# Shares are rounded to float16.
ROUNDING = 5e-4
MAX_NAMED_WORDS = 5
MAX_NAMED_EXAMPLES = 3


def assert_relies_on(explanation: Explanation, phrase: str, *, min_share: float | None = None) -> None:
    """Assert that words speak for the explained class, with `min_share` of the relevance or more.

    By default each word of the phrase must count for as much as an average word.

    >>> assert_relies_on(clearhead.explain(model, "i want a refund"), "refund")     # doctest: +SKIP
    """
    reasons = _read_reasons(explanation)
    units = _find_phrase(reasons, phrase)
    if not units:
        raise BadInput(f"'{phrase}' does not occur in the explained text, so that no model could rely on it.")
    limit = _choose_limit("min_share", min_share, RELIED_SHARE * len(_split(phrase)) / len(reasons.shares))
    share = float(reasons.shares[units].sum())
    if share < limit - ROUNDING:
        raise AssertionError(
            f"The answer '{reasons.prediction}' does not rely on '{phrase}': its share is {_write(share)}, at least "
            f"{_write(limit)} is asked. {_name_strongest(reasons)}"
        )


def assert_ignores(explanation: Explanation, words: str | Sequence[str], *, max_share: float | None = None) -> None:
    """Assert that each of these words has at most `max_share` of the relevance, for or against the explained class.

    By default that is half the share of an average word. Words that do not occur are ignored, but one must occur.
    """
    reasons = _read_reasons(explanation)
    phrases = [words] if isinstance(words, str) else list(words)
    shares = dict(_measure_phrases(reasons, phrases))
    if not shares:
        raise BadInput(f"None of {', '.join(phrases)} occurs in the explained text, so that every model ignores them.")
    limit = _choose_limit("max_share", max_share, IGNORED_SHARE / len(reasons.shares))
    strong = [f"'{phrase}' {_write(share)}" for phrase, share in shares.items() if abs(share) > limit + ROUNDING]
    if strong:
        raise AssertionError(
            f"The answer '{reasons.prediction}' does not ignore {', '.join(strong)}: at most {_write(limit)} each is "
            f"allowed. {_name_strongest(reasons)}"
        )


def _measure_phrases(reasons: Reasons, phrases: Sequence[str]) -> Iterator[tuple[str, float]]:
    for phrase in phrases:
        units = _find_phrase(reasons, phrase)
        if units:
            # Occurrences for and against the answer must not cancel out.
            share_U = reasons.shares[units]
            yield phrase, float(share_U[np.abs(share_U).argmax()])


def _choose_limit(name: str, limit: float | None, default: float) -> float:
    if limit is None:
        return default
    require_number(name, limit, 0, 1)
    return limit


def _read_reasons(explanation: Explanation) -> Reasons:
    if not isinstance(explanation, Explanation):
        raise BadOption(f"Assertions are about one explanation, as explain() returns it, not {explanation!r}.")
    reasons = extract_reasons(explanation, Example("0", explanation.text), ())
    if reasons.kind != WORD:
        raise BadInput("Assertions about words need an explanation of a text whose tokens have places in it.")
    return reasons


def _split(phrase: str) -> list[str]:
    words = [_normalise(word) for word in phrase.split()]
    if not words:
        raise BadInput("The word to look for is empty: give a word or a phrase of the text.")
    return words


def _normalise(word: str) -> str:
    # What is punctuation alone is looked for as it is.
    return normalise_word(word) or word


def _find_phrase(reasons: Reasons, phrase: str) -> list[int]:
    """Return the units of all occurrences of a phrase, without case and surrounding punctuation."""
    phrase_words = _split(phrase)
    length = len(phrase_words)
    words = [_normalise(word) for word in reasons.words]
    units: list[int] = []
    for start in range(len(words) - length + 1):
        if words[start : start + length] == phrase_words:
            units.extend(range(start, start + length))
    return sorted(set(units))


def _write(share: float) -> str:
    return f"{share:+.1%}"


def _name_strongest(reasons: Reasons) -> str:
    named = [f"'{word}' {_write(share)}" for word, share in reasons.top(MAX_NAMED_WORDS)]
    return f"Strongest: {', '.join(named)}."


def assert_same_reasons_for_pair(
    model: Any,
    first: str,
    second: str,
    *,
    max_shift: float = DEFAULT_EXAMPLE_BOUND,
    method: Any = None,
    **options: Any,
) -> None:
    """Assert that two texts that differ in a few words get the same answer for the same reasons.

    Words in the same place count as the same word, such as "she" and "he"; a word that only one text has counts with
    all of its share. `max_shift` is the part of the reasons that may move.

    >>> assert_same_reasons_for_pair(model, "she is late again", "he is late again")     # doctest: +SKIP
    """
    require_number("max_shift", max_shift, 0, 1)
    loaded = as_model(model)
    explanations = explain(loaded, [first, second], method, check=False, **options)
    first_reasons, second_reasons = map(_read_reasons, explanations)
    _compare_pair(first_reasons, second_reasons, max_shift)


def _compare_pair(first: Reasons, second: Reasons, max_shift: float) -> None:
    answers = f"'{first.text}' is '{first.prediction}', '{second.text}' is '{second.prediction}'"
    if first.prediction != second.prediction:
        raise AssertionError(f"The pair has different answers: {answers}. {_name_both(first, second)}")
    names, share_U2 = _align_words(first, second)
    shift = float(np.abs(share_U2[:, 0] - share_U2[:, 1]).sum() / 2)
    if shift > max_shift:
        raise AssertionError(
            f"The pair has different reasons: {answers}, but {shift:.0%} of the reasons moved, at most "
            f"{max_shift:.0%} is allowed. Most: {_name_moves(names, share_U2)}."
        )


def _name_both(first: Reasons, second: Reasons) -> str:
    return f"First: {_name_strongest(first)} Second: {_name_strongest(second)}"


def _align_words(first: Reasons, second: Reasons) -> tuple[list[str], Array]:
    """Return the words of both texts, and the share that each has in either (words × 2)."""
    names: list[str] = []
    shares: list[tuple[float, float]] = []
    for first_unit, second_unit in _match_units(first.words, second.words):
        pair = (_read_unit(first, first_unit), _read_unit(second, second_unit))
        # Replaced words are named by both: she/he.
        names.append("/".join(dict.fromkeys(word for word, _ in pair if word)))
        shares.append((pair[0][1], pair[1][1]))
    return names, np.array(shares)


def _read_unit(reasons: Reasons, unit: int | None) -> tuple[str, float]:
    if unit is None:
        return "", 0.0
    return reasons.words[unit], float(reasons.shares[unit])


def _match_units(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the numbers of words in the same place; None where only one text has a word."""
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for _, start, stop, other_start, other_stop in matcher.get_opcodes():
        common = min(stop - start, other_stop - other_start)
        for offset in range(common):
            yield start + offset, other_start + offset
        for unit in range(start + common, stop):
            yield unit, None
        for unit in range(other_start + common, other_stop):
            yield None, unit


def _name_moves(names: Sequence[str], share_U2: Array) -> str:
    order = np.argsort(-np.abs(share_U2[:, 0] - share_U2[:, 1]), kind="stable")[:MAX_NAMED_WORDS]
    moves = [f"'{names[unit]}' {_write(share_U2[unit, 0])} → {_write(share_U2[unit, 1])}" for unit in order]
    return ", ".join(moves)


@dataclass(frozen=True)
class BaselineTest:
    """A model beside a baseline, compared when it is first asked; options are those of `check_reasons`."""

    baseline: Snapshot | str | Path
    model: Any = None
    task: Any = None

    @cached_property
    def diff(self) -> ModelDiff:
        """What changed from the baseline to the model."""
        return check_reasons(self.baseline, self.model, task=self.task).diff

    def assert_same_reasons(self, *, min_agreement: float | None = None, max_shift: float | None = None) -> None:
        """Assert that reasons moved no more than by noise or, if there are thresholds, no more than these allow."""
        result = judge_release(self.diff, Thresholds(min_agreement, max_shift))
        if not result.passes:
            raise AssertionError("\n".join([result.summary, *_describe_examples(self.diff)]))


def _describe_examples(diff: ModelDiff) -> Iterator[str]:
    for row in diff.rows[:MAX_NAMED_EXAMPLES]:
        before, after = _name_strongest(row.first), _name_strongest(row.second)
        yield f"{row.first.id}: {row.agreement.shift:.0%} moved. Before: {row.first.prediction}. {before}"
        yield f"  After: {row.second.prediction}. {after}"


def assert_same_reasons(
    baseline: Snapshot | str | Path,
    model: Any = None,
    *,
    task: Any = None,
    min_agreement: float | None = None,
    max_shift: float | None = None,
) -> None:
    """Assert that a model still decides for the reasons of a baseline (see `check_reasons`)."""
    test = BaselineTest(baseline, model, task)
    test.assert_same_reasons(min_agreement=min_agreement, max_shift=max_shift)
