"""Words and classes whose weight rose or fell between two models, with paired tests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, starmap
from typing import TypeVar

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

Value = TypeVar("Value")
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
    return paired_moments(share_N2[:, 1] - share_N2[:, 0])


def paired_moments(difference_N: Array) -> Moments:
    """Return the moments of the differences of examples, which are independent of each other."""
    return measure_moments(difference_N, np.arange(len(difference_N)))


def _describe_word(word: str, share_N2: Array, corrected: float | None, noise_shift: float) -> WordShift:
    moments = _moments(share_N2)
    first, second = share_N2.mean(axis=0).tolist()
    low, high = corrected_bounds(moments, LEVEL)
    is_beyond_noise = _is_significant(corrected) and abs(moments.mean) > noise_shift
    return WordShift(word, len(share_N2), first, second, moments.mean, low, high, corrected, is_beyond_noise)


def _is_significant(corrected: float | None) -> bool:
    return corrected is not None and corrected < ALPHA


def find_largest_shift(pairs: Sequence[Pair]) -> float:
    """Return how far the mean share of a word that occurs in enough examples moved at most."""
    # Rare words move far by chance, and would hide what noise does to the others.
    shifts = [abs(_moments(share_N2).mean) for share_N2 in _select_frequent(collect_words(pairs), MIN_GROUPS).values()]
    return max(shifts, default=0.0)


def collect_words(pairs: Sequence[Pair]) -> dict[str, Array]:
    """Return by word its mean share per occurrence in each example, in both models."""
    means = chain.from_iterable(starmap(_mean_by_word, pairs))
    return {word: np.stack(rows) for word, rows in sorted(_group(means).items())}


def _mean_by_word(first: Reasons, second: Reasons) -> list[tuple[str, Array]]:
    """Return the mean share of each word of one example, in both models; empty without a text."""
    occurrences = _group(_iterate_words(first, second))
    return [(word, np.mean(shares, axis=0)) for word, shares in occurrences.items()]


def _group(entries: Iterable[tuple[str, Value]]) -> dict[str, list[Value]]:
    groups: dict[str, list[Value]] = {}
    for word, value in entries:
        groups.setdefault(word, []).append(value)
    return groups


def _iterate_words(first: Reasons, second: Reasons) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield every word that both models read, with its share in each."""
    first_shares, second_shares = _shares_by_span(first), _shares_by_span(second)
    for span, word in zip(first.spans, first.words, strict=False):
        if span in second_shares:
            yield name_word(word), (first_shares[span], second_shares[span])


def name_word(word: str) -> str:
    """Return a word as it is counted; punctuation alone is a word, because models learn shortcuts from it."""
    return normalise_word(word) or word


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
    moments = paired_moments(second_N.astype(float) - first_N)
    low, high = corrected_bounds(moments, LEVEL)
    counts = int(first_N.sum()), int(second_N.sum())
    return ClassShift(label, *counts, moments.mean, low, high, p_value(moments), _mean_or_none(shift_N[first_N]))


def _answers_with(pairs: Sequence[Pair], label: str) -> Array:
    """Return for both models whether they answer each example with a class (2 × examples)."""
    answers_N2 = np.array([(first.prediction, second.prediction) for first, second in pairs])
    is_label_2N: Array = np.equal(answers_N2.T, label)
    return is_label_2N


def _mean_or_none(value_N: Array) -> float | None:
    return float(value_N.mean()) if len(value_N) else None


def list_answers(pairs: Sequence[Pair], labels: Sequence[str]) -> list[str]:
    """Return the classes that either model answers with, in the order of the labels."""
    answers = {reasons.prediction for reasons in chain.from_iterable(pairs)}
    return list(filter(answers.__contains__, labels))
