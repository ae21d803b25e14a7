"""Assertions about the words of one explanation, and of the two texts of a minimal pair."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import starmap, zip_longest
from typing import Any

from clearhead.api import explain
from clearhead.data.task import Example
from clearhead.drift.reasons import extract_reasons
from clearhead.drift.verdict import DEFAULT_EXAMPLE_BOUND
from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.top_words import normalise_word
from clearhead.explanation import Explanation
from clearhead.model.loading import as_model
from clearhead.model_diff import WORD, Reasons
from clearhead.validation import require_number

RELIED_SHARE = 1.0
"""A model relies on a word that has at least the share of an average word, and speaks for the answer."""
IGNORED_SHARE = 0.5
"""A model ignores a word that has at most half the share of an average word, for or against the answer."""
# Shares are rounded to float16.
ROUNDING = 5e-4
MAX_NAMED_WORDS = 5


def assert_relies_on(explanation: Explanation, phrase: str, *, min_share: float | None = None) -> None:
    """Assert that words speak for the explained class, with `min_share` of the relevance or more.

    By default each word of the phrase must count for as much as an average word.

    >>> assert_relies_on(clearhead.explain(model, "i want a refund"), "refund")     # doctest: +SKIP
    """
    reasons = read_reasons(explanation)
    share = _add_shares(reasons, phrase)
    limit = _choose_limit("min_share", min_share, RELIED_SHARE * _expect_share(reasons, phrase))
    if share < limit - ROUNDING:
        raise AssertionError(
            f"The answer '{reasons.prediction}' does not rely on '{phrase}': its share is {_write(share)}, at least "
            f"{_write(limit)} is asked. {name_strongest(reasons)}"
        )


def _add_shares(reasons: Reasons, phrase: str) -> float:
    """Return the share of all occurrences of a phrase; raise BadInput if there is none."""
    shares = _find_shares(reasons, phrase)
    if not shares:
        raise BadInput(f"'{phrase}' does not occur in the explained text, so that no model could rely on it.")
    return sum(shares)


def _expect_share(reasons: Reasons, phrase: str) -> float:
    """Return the share that a phrase of average words would have."""
    return len(_split(phrase)) / len(reasons.shares)


def assert_ignores(explanation: Explanation, words: str | Sequence[str], *, max_share: float | None = None) -> None:
    """Assert that each of these words has at most `max_share` of the relevance, for or against the explained class.

    By default that is half the share of an average word. Words that do not occur are ignored, but one must occur.
    """
    reasons = read_reasons(explanation)
    limit = _choose_limit("max_share", max_share, IGNORED_SHARE / len(reasons.shares))
    shares = _find_strongest(reasons, [words] if isinstance(words, str) else words)
    strong = [(word, share) for word, share in shares if abs(share) > limit + ROUNDING]
    if strong:
        raise AssertionError(
            f"The answer '{reasons.prediction}' does not ignore {_list_shares(strong)}: at most {_write(limit)} each "
            f"is allowed. {name_strongest(reasons)}"
        )


def _list_shares(shares: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"'{word}' {_write(share)}" for word, share in shares)


def _find_strongest(reasons: Reasons, phrases: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the strongest share of each phrase that occurs; raise BadInput if none does."""
    for phrase in _list_occurring(reasons, phrases):
        # Not their sum: occurrences for and against the answer must not cancel out.
        yield phrase, max(_find_shares(reasons, phrase), key=abs)


def _list_occurring(reasons: Reasons, phrases: Sequence[str]) -> list[str]:
    # An assertion about words that are not there would hold for every model.
    occurring = [phrase for phrase in phrases if _find_shares(reasons, phrase)]
    if not occurring:
        raise BadInput(f"None of {', '.join(phrases)} occurs in the explained text, so that every model ignores them.")
    return occurring


def _choose_limit(name: str, limit: float | None, default: float) -> float:
    if limit is None:
        return default
    require_number(name, limit, 0, 1)
    return limit


def read_reasons(explanation: Explanation) -> Reasons:
    """Return the shares of the words of an explained text."""
    _require_explanation(explanation)
    reasons = extract_reasons(explanation, Example("0", explanation.text), ())
    _require_words(reasons)
    return reasons


def _require_words(reasons: Reasons) -> None:
    if reasons.kind != WORD:
        raise BadInput("Assertions about words need an explanation of a text whose tokens have places in it.")


def _require_explanation(explanation: Explanation) -> None:
    if not isinstance(explanation, Explanation):
        raise BadOption(f"Assertions are about one explanation, as explain() returns it, not {explanation!r}.")


def _split(phrase: str) -> list[str]:
    words = list(map(_normalise, phrase.split()))
    if not words:
        raise BadInput("The word to look for is empty: give a word or a phrase of the text.")
    return words


def _normalise(word: str) -> str:
    # What is punctuation alone is looked for as it is.
    return normalise_word(word) or word


def _find_shares(reasons: Reasons, phrase: str) -> list[float]:
    """Return the shares of all words of all occurrences of a phrase, without case and surrounding punctuation."""
    units = sorted(set(_find_units(list(map(_normalise, reasons.words)), _split(phrase))))
    return [float(reasons.shares[unit]) for unit in units]


def _find_units(words: Sequence[str], phrase: Sequence[str]) -> Iterator[int]:
    for start in range(len(words) - len(phrase) + 1):
        stop = start + len(phrase)
        if words[start:stop] == phrase:
            yield from range(start, stop)


def _write(share: float) -> str:
    return f"{share:+.1%}"


def name_strongest(reasons: Reasons) -> str:
    """Name the words that speak most for the answer, with their shares."""
    return f"Strongest: {_list_shares(reasons.top(MAX_NAMED_WORDS))}."


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
    explanations = explain(as_model(model), [first, second], method, check=False, **options)
    first_reasons, second_reasons = map(read_reasons, explanations)
    _compare_pair(first_reasons, second_reasons, max_shift)


@dataclass(frozen=True)
class WordPair:
    """A word in the same place of two texts, and its share in each; none where a text does not have it."""

    names: tuple[str, ...]
    first: float = 0.0
    second: float = 0.0

    @property
    def shift(self) -> float:
        return abs(self.first - self.second)

    def __str__(self) -> str:
        # Replaced words are named by both: she/he.
        return f"'{'/'.join(dict.fromkeys(self.names))}' {_write(self.first)} → {_write(self.second)}"


def _compare_pair(first: Reasons, second: Reasons, max_shift: float) -> None:
    answers = f"{_describe_answer(first)}, {_describe_answer(second)}"
    if first.prediction != second.prediction:
        strongest = f"First: {name_strongest(first)} Second: {name_strongest(second)}"
        raise AssertionError(f"The pair has different answers: {answers}. {strongest}")
    pairs = list(_match_words(first, second))
    shift = _add_shifts(pairs)
    if shift > max_shift + ROUNDING:
        raise AssertionError(
            f"The pair has different reasons: {answers}, but {shift:.0%} of the reasons moved, at most "
            f"{max_shift:.0%} is allowed. Most: {_list_most_moved(pairs)}."
        )


def _add_shifts(pairs: Sequence[WordPair]) -> float:
    # What one word loses another gains: half of it moved.
    return sum(pair.shift for pair in pairs) / 2


def _list_most_moved(pairs: Sequence[WordPair]) -> str:
    return ", ".join(map(str, sorted(pairs, key=_sort_key)[:MAX_NAMED_WORDS]))


def _describe_answer(reasons: Reasons) -> str:
    return f"'{reasons.text}' is '{reasons.prediction}'"


def _sort_key(pair: WordPair) -> float:
    return -pair.shift


def _match_words(first: Reasons, second: Reasons) -> Iterator[WordPair]:
    """Yield the words of two texts in pairs, and those that only one has."""
    matcher = SequenceMatcher(None, first.words, second.words, autojunk=False)
    for _, start, stop, other_start, other_stop in matcher.get_opcodes():
        units = _list_words(first, range(start, stop))
        other_units = _list_words(second, range(other_start, other_stop))
        # Replaced words are paired in order, and what one text has more has no counterpart.
        yield from starmap(_pair_words, zip_longest(units, other_units))


def _list_words(reasons: Reasons, units: Iterable[int]) -> list[tuple[str, float]]:
    return [(reasons.words[unit], float(reasons.shares[unit])) for unit in units]


def _pair_words(first: tuple[str, float] | None, second: tuple[str, float] | None) -> WordPair:
    names = [word for word, _ in filter(None, (first, second))]
    return WordPair(tuple(names), _read_share(first), _read_share(second))


def _read_share(word: tuple[str, float] | None) -> float:
    return 0.0 if word is None else word[1]
