"""The words of an audit: punctuation, numbers and markers count as words, and those that carry a class are chosen."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.drift.reasons import UNSPACED
from clearhead.evaluation.corrected_t import MIN_GROUPS, corrected_bounds, measure_moments
from clearhead.evaluation.statistics import LEVEL, Interval
from clearhead.model_diff import Reasons

PUNCTUATION, NUMBER, MARKER, WORD = "punctuation", "number", "marker", "word"
# Addresses, tags, entities, mentions and hashtags are one unit each, and so is a run of one punctuation mark.
MARKERS = r"https?://\S+|www\.\S+|</?\w[^<>\s]*>?|&\w+;|[@#]\w+"
MARKER_PATTERN = re.compile(MARKERS)
LETTER = rf"(?:(?![{UNSPACED}])[^\W_])"
AUDIT_UNIT = re.compile(rf"{MARKERS}|[{UNSPACED}]|{LETTER}+(?:['’-]{LETTER}+)*|(?P<mark>[^\w\s]|_)(?P=mark)*")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A word and the class that it speaks for most.

    `example_E` are the numbers of the examples with it, `share_E` its share in each, summed over occurrences.
    """

    word: str
    label: str
    example_E: Array
    share_E: Array
    answers_E: Array

    @property
    def has_label_E(self) -> Array:
        has_label: Array = self.answers_E == self.label
        return has_label

    @property
    def concentration(self) -> float:
        """The part of the texts that are answered with the class."""
        return float(self.has_label_E.mean())

    @property
    def total(self) -> float:
        """The summed share in texts of the class, by which candidates are ranked."""
        return float(self.share_E[self.has_label_E].sum())

    @property
    def share(self) -> Interval:
        """The mean share in texts of the class."""
        return measure_mean(self.share_E[self.has_label_E])


def measure_mean(value_N: Array) -> Interval:
    """Return the mean of independent values with its interval."""
    moments = measure_moments(value_N, np.arange(len(value_N)))
    return Interval(moments.mean, *corrected_bounds(moments, LEVEL), len(value_N))


def normalise_unit(word: str) -> str:
    """Return a word as an audit counts it."""
    return word.casefold()


def name_units(reasons: Reasons) -> Array:
    """Return the words of a text as an audit counts them."""
    return np.array(list(map(normalise_unit, reasons.words)))


def name_kind(word: str) -> str:
    """Return what a word is: punctuation, a number, a marker such as an address or a tag, or a word."""
    if MARKER_PATTERN.fullmatch(word):
        return MARKER
    # Symbols and emoji, too: nothing in them can be read.
    if not any(map(str.isalnum, word)):
        return PUNCTUATION
    if any(map(str.isdigit, word)):
        return NUMBER
    return WORD


def choose_candidates(reasons: Sequence[Reasons], count: int, words: Sequence[str] = ()) -> list[Candidate]:
    """Return the words with most weight for a class over all texts, after those that are asked for.

    Words in fewer texts than a test needs are left out, and so are those whose share may be zero.
    """
    candidates = {candidate.word: candidate for candidate in _list_candidates(reasons)}
    named = [candidates.pop(word) for word in map(normalise_unit, words) if word in candidates]
    carriers = filter(_carries_class, candidates.values())
    return [*named, *sorted(carriers, key=_sort_key)[:count]]


def _sort_key(candidate: Candidate) -> tuple[float, str]:
    return -candidate.total, candidate.word


def _carries_class(candidate: Candidate) -> bool:
    return len(candidate.example_E) >= MIN_GROUPS and candidate.share.low > 0


def _list_candidates(reasons: Sequence[Reasons]) -> Iterator[Candidate]:
    answers_N = np.array([entry.prediction for entry in reasons])
    for word, shares in collect_shares(reasons).items():
        yield _make_candidate(word, shares, answers_N)


def collect_shares(reasons: Sequence[Reasons]) -> dict[str, dict[int, float]]:
    """Return by word the texts that have it, and its share in each, summed over occurrences."""
    shares: dict[str, dict[int, float]] = {}
    for number, entry in enumerate(reasons):
        for word, share in zip(name_units(entry).tolist(), entry.shares.tolist(), strict=True):
            # A text counts once, however often it has the word.
            texts = shares.setdefault(word, {})
            texts[number] = texts.get(number, 0.0) + share
    return shares


def _make_candidate(word: str, shares: Mapping[int, float], answers_N: Array) -> Candidate:
    """Return a word with the class in whose texts it has most weight."""
    example_E, share_E = np.array(list(shares)), np.array(list(shares.values()))
    answers_E = answers_N[example_E]
    labels = np.unique(answers_E).tolist()
    # The key sorts the largest weight first, hence the minimum.
    return min((Candidate(word, label, example_E, share_E, answers_E) for label in labels), key=_sort_key)
