"""Words and classes whose weight rose or fell between two models, with paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.corrected_t import MIN_GROUPS, Moments, corrected_bounds, measure_moments, p_value
from clearhead.evaluation.paired_tests import holm
from clearhead.evaluation.statistics import LEVEL
from clearhead.evaluation.top_words import normalise_word
from clearhead.model_diff import ClassShift, Reasons, Span, WordShift

MAX_WORDS = 200
# A word of a single example says nothing about the model that the example does not say.
MIN_EXAMPLES = 2
ALPHA = 1 - LEVEL

Pair = tuple[Reasons, Reasons]
"""The reasons of two models for one input."""
Occurrences = Mapping[str, Array]
"""By word its mean share in each example that has it, in both models (examples × 2)."""


def compare_words(pairs: Sequence[Pair], noise_shift: float) -> tuple[WordShift, ...]:
    """Return the words that moved most, those beyond noise first; `noise_shift` is how far noise moves a word."""
    occurrences = collect_words(pairs)
    corrected = _correct_words(occurrences)
    shifts = [_describe_word(word, occurrences[word], p, noise_shift) for word, p in corrected.items()]
    return tuple(sorted(shifts, key=_sort_key)[:MAX_WORDS])


def _sort_key(shift: WordShift) -> tuple[bool, float, str]:
    # By what a word moved in all its examples together: a rare word explains little.
    return not shift.is_beyond_noise, -abs(shift.difference) * shift.examples, shift.word


def _correct_words(occurrences: Occurrences) -> dict[str, float | None]:
    """Return the corrected p-value of each word; None for words in too few examples, which no test could tell."""
    tested = _select_frequent(occurrences, MIN_GROUPS)
    p_values = map(p_value, map(_moments, tested.values()))
    corrected = dict(zip(tested, holm(list(p_values)), strict=True))
    return {word: corrected.get(word) for word in _select_frequent(occurrences, MIN_EXAMPLES)}


def _select_frequent(occurrences: Occurrences, examples: int) -> dict[str, Array]:
    """Return the words in at least so many examples."""
    return {word: share_N2 for word, share_N2 in occurrences.items() if len(share_N2) >= examples}


def _moments(share_N2: Array) -> Moments:
    return _paired_moments(share_N2[:, 1] - share_N2[:, 0])


def _paired_moments(difference_N: Array) -> Moments:
    return measure_moments(difference_N, np.arange(len(difference_N)))


def _describe_word(word: str, share_N2: Array, corrected: float | None, noise_shift: float) -> WordShift:
    moments = _moments(share_N2)
    first, second = share_N2.mean(axis=0).tolist()
    low, high = corrected_bounds(moments, LEVEL)
    is_significant = corrected is not None and corrected < ALPHA
    is_beyond_noise = is_significant and abs(moments.mean) > noise_shift
    return WordShift(word, len(share_N2), first, second, moments.mean, low, high, corrected, is_beyond_noise)


def find_largest_shift(pairs: Sequence[Pair]) -> float:
    """Return how far the mean share of a word that occurs in enough examples moved at most."""
    shifts = [abs(_moments(share_N2).mean) for share_N2 in _select_frequent(collect_words(pairs), MIN_GROUPS).values()]
    return max(shifts, default=0.0)


def collect_words(pairs: Sequence[Pair]) -> dict[str, Array]:
    """Return by word its mean share per occurrence in each example, in both models."""
    shares: dict[str, list[Array]] = {}
    for first, second in pairs:
        for word, occurrence_O2 in _group_words(first, second).items():
            shares.setdefault(word, []).append(np.mean(occurrence_O2, axis=0))
    return {word: np.stack(rows) for word, rows in sorted(shares.items())}


def _group_words(first: Reasons, second: Reasons) -> dict[str, list[tuple[float, float]]]:
    """Return the shares of all occurrences of each word of one example; empty without a text."""
    occurrences: dict[str, list[tuple[float, float]]] = {}
    first_shares, second_shares = _shares_by_span(first), _shares_by_span(second)
    for span, word in _words_by_span(first).items():
        if span in second_shares:
            occurrences.setdefault(word, []).append((first_shares[span], second_shares[span]))
    return occurrences


def _words_by_span(reasons: Reasons) -> dict[Span, str]:
    # Punctuation alone is a word here: models learn shortcuts from it.
    words = [normalise_word(word) or word for word in reasons.words]
    return dict(zip(reasons.spans[: len(words)], words, strict=True))


def _shares_by_span(reasons: Reasons) -> dict[Span, float]:
    # Patches and tokens have no spans.
    return dict(zip(reasons.spans, reasons.shares.tolist(), strict=False))


def compare_classes(pairs: Sequence[Pair], shift_N: Array, labels: Sequence[str]) -> tuple[ClassShift, ...]:
    """Return how often the models answer with each class, and how far the reasons for it moved."""
    shifts = [_describe_class(pairs, shift_N, label) for label in labels]
    corrected = holm([shift.p_corrected for shift in shifts])
    return tuple(replace(shift, p_corrected=p) for shift, p in zip(shifts, corrected, strict=True))


def _describe_class(pairs: Sequence[Pair], shift_N: Array, label: str) -> ClassShift:
    """Return the shift of one class, its p-value not yet corrected."""
    first_N, second_N = _answers_with(pairs, label)
    moments = _paired_moments(second_N.astype(float) - first_N)
    low, high = corrected_bounds(moments, LEVEL)
    counts = int(first_N.sum()), int(second_N.sum())
    return ClassShift(label, *counts, moments.mean, low, high, p_value(moments), _mean_or_none(shift_N[first_N]))


def _answers_with(pairs: Sequence[Pair], label: str) -> Array:
    """Return for both models whether they answer each example with a class (2 × examples)."""
    answers_N2: Array = np.array([(first.prediction, second.prediction) for first, second in pairs])
    return label == answers_N2.T


def _mean_or_none(value_N: Array) -> float | None:
    return float(value_N.mean()) if len(value_N) else None


def list_answers(pairs: Sequence[Pair], labels: Sequence[str]) -> list[str]:
    """Return the classes that either model answers with, in the order of the labels."""
    answers = {reasons.prediction for reasons in chain.from_iterable(pairs)}
    return [label for label in labels if label in answers]
