"""The words of an audit: punctuation, numbers and markers count as words, and those that carry a class are chosen."""

import re
from collections.abc import Mapping, Sequence
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
LETTER = rf"(?:(?![{UNSPACED}])[^\W_])"
AUDIT_UNIT = re.compile(
    rf"(?P<marker>{MARKERS})|[{UNSPACED}]|{LETTER}+(?:['’-]{LETTER}+)*|(?P<mark>[^\w\s]|_)(?P=mark)*"
)


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


def name_kind(word: str) -> str:
    """Return what a word is: punctuation, a number, a marker such as an address or a tag, or a word."""
    match = AUDIT_UNIT.fullmatch(word)
    if match is not None and match.group("marker"):
        return MARKER
    if not any(map(str.isalnum, word)):
        return PUNCTUATION
    if any(map(str.isdigit, word)):
        return NUMBER
    return WORD


def choose_candidates(reasons: Sequence[Reasons], count: int, words: Sequence[str] = ()) -> list[Candidate]:
    """Return the words with most weight for a class over all texts, after those that are asked for.

    Words in fewer texts than a test needs are left out, and so are those whose share may be zero.
    """
    shares = collect_shares(reasons)
    answers_N = np.array([entry.prediction for entry in reasons])
    named = [normalise_unit(word) for word in words]
    chosen = [_make_candidate(word, shares[word], answers_N) for word in named if word in shares]
    others = [_make_candidate(word, shares[word], answers_N) for word in shares if word not in named]
    carriers = [candidate for candidate in others if _carries_class(candidate)]
    return [*chosen, *sorted(carriers, key=_sort_key)[:count]]


def _sort_key(candidate: Candidate) -> tuple[float, str]:
    return -candidate.total, candidate.word


def _carries_class(candidate: Candidate) -> bool:
    return len(candidate.example_E) >= MIN_GROUPS and candidate.share.low > 0


def collect_shares(reasons: Sequence[Reasons]) -> dict[str, dict[int, float]]:
    """Return by word the examples that have it, and its share in each, summed over occurrences."""
    shares: dict[str, dict[int, float]] = {}
    for number, entry in enumerate(reasons):
        for word, share in zip(entry.words, entry.shares, strict=True):
            examples = shares.setdefault(normalise_unit(word), {})
            examples[number] = examples.get(number, 0.0) + float(share)
    return shares


def _make_candidate(word: str, examples: Mapping[int, float], answers_N: Array) -> Candidate:
    example_E = np.array(list(examples))
    share_E = np.array(list(examples.values()))
    answers_E = answers_N[example_E]
    candidates = [Candidate(word, label, example_E, share_E, answers_E) for label in np.unique(answers_E).tolist()]
    return min(candidates, key=_sort_key)
