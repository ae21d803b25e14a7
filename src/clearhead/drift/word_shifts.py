"""Words and classes whose weight rose or fell between two models, with paired tests."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.corrected_t import MIN_GROUPS, Moments, corrected_bounds, measure_moments, p_value
from clearhead.evaluation.paired_tests import holm
from clearhead.evaluation.statistics import LEVEL
from clearhead.evaluation.top_words import normalise_word
from clearhead.model_diff import WORD, ClassShift, Reasons, Span, WordShift

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
    shifts = []
    for word, corrected in _correct_words(occurrences).items():
        shifts.append(_describe_word(word, occurrences[word], corrected, noise_shift))
    return tuple(sorted(shifts, key=_sort_key)[:MAX_WORDS])


def _sort_key(shift: WordShift) -> tuple[bool, float, str]:
    # By what a word moved in all its examples together: a rare word explains little.
    return not shift.is_beyond_noise, -abs(shift.difference) * shift.examples, shift.word


def _correct_words(occurrences: Occurrences) -> dict[str, float | None]:
    """Return the corrected p-value of each word; None for words in too few examples, which no test could tell."""
    p_values = {word: p_value(_moments(share_N2)) for word, share_N2 in _testable(occurrences).items()}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {word: corrected.get(word) for word, share_N2 in occurrences.items() if len(share_N2) >= MIN_EXAMPLES}


def _testable(occurrences: Occurrences) -> dict[str, Array]:
    return {word: share_N2 for word, share_N2 in occurrences.items() if len(share_N2) >= MIN_GROUPS}


def _moments(share_N2: Array) -> Moments:
    return _paired_moments(share_N2[:, 1] - share_N2[:, 0])


def _paired_moments(difference_N: Array) -> Moments:
    return measure_moments(difference_N, np.arange(len(difference_N)))


def _describe_word(word: str, share_N2: Array, corrected: float | None, noise_shift: float) -> WordShift:
    moments = _moments(share_N2)
    first, second = share_N2.mean(axis=0)
    is_significant = corrected is not None and corrected < ALPHA
    is_beyond_noise = is_significant and abs(moments.mean) > noise_shift
    bounds = corrected_bounds(moments, LEVEL)
    return WordShift(
        word, len(share_N2), float(first), float(second), moments.mean, *bounds, corrected, is_beyond_noise
    )


def find_largest_shift(pairs: Sequence[Pair]) -> float:
    """Return how far the mean share of a word that occurs in enough examples moved at most."""
    shifts = [abs(_moments(share_N2).mean) for share_N2 in _testable(collect_words(pairs)).values()]
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
    second_shares = _shares_by_span(second)
    names = {**_words_by_span(second), **_words_by_span(first)}
    for span, share in _shares_by_span(first).items():
        if span in names and span in second_shares:
            occurrences.setdefault(names[span], []).append((share, second_shares[span]))
    return occurrences


def _words_by_span(reasons: Reasons) -> dict[Span, str]:
    # Punctuation alone is a word here: models learn shortcuts from it.
    words = [normalise_word(word) or word for word in reasons.words]
    return dict(zip(reasons.spans[: len(words)], words, strict=True))


def _shares_by_span(reasons: Reasons) -> dict[Span, float]:
    if reasons.kind != WORD:
        return {}
    return dict(zip(reasons.spans, map(float, reasons.shares), strict=True))


def compare_classes(pairs: Sequence[Pair], shift_N: Array, labels: Sequence[str]) -> tuple[ClassShift, ...]:
    """Return how often the models answer with each class, and how far the reasons for it moved."""
    first_answers = np.array([first.prediction for first, _ in pairs])
    second_answers = np.array([second.prediction for _, second in pairs])
    moments = [_class_moments(first_answers, second_answers, label) for label in labels]
    corrected = holm([p_value(entry) for entry in moments])
    shifts = []
    for label, entry, p_corrected in zip(labels, moments, corrected, strict=True):
        has_label_N = first_answers == label
        shifts.append(
            ClassShift(
                label=label,
                first=int(has_label_N.sum()),
                second=int((second_answers == label).sum()),
                difference=entry.mean,
                low=corrected_bounds(entry, LEVEL)[0],
                high=corrected_bounds(entry, LEVEL)[1],
                p_corrected=p_corrected,
                shift=_mean_or_none(shift_N[has_label_N]),
            )
        )
    return tuple(shifts)


def _class_moments(first_answers: Array, second_answers: Array, label: str) -> Moments:
    difference_N = (second_answers == label).astype(np.float64) - (first_answers == label)
    return _paired_moments(difference_N)


def _mean_or_none(value_N: Array) -> float | None:
    return float(value_N.mean()) if len(value_N) else None


def list_answers(pairs: Sequence[Pair], labels: Sequence[str]) -> Iterator[str]:
    """Yield the classes that either model answers with, in the order of the labels."""
    answers = {reasons.prediction for pair in pairs for reasons in pair}
    for label in labels:
        if label in answers:
            yield label
