"""Over a whole corpus: which words or tokens speak for each class, and how far classes share them.

The metric `token-overlap` counts the tokenizer's tokens, `clearhead words` counts words (casefolded, without
surrounding punctuation). Both are *terms* here: relevance is summed per class and term, weighted by inverse document
frequency, and the overlap is common terms / (pairs of classes × k). Words are shares of the relevance of their text, so
that no single text decides; tokens are summed as they are, as in the paper.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.evaluation.examples import explanation_for
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, WordLists, metric
from clearhead.evaluation.reference_corpus import InverseDocumentFrequency, token_frequencies
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.perturbation.ranking import sort_descending
from clearhead.validation import require_integer

CURVE_KS = (5, 10, 20, 30, 40, 50, 75, 100)
SHOWN_KS = (5, 10, 20, 30, 40, 50)
TOP_K = 50
MAX_DOCUMENTS = 50_000
MAX_DEFAULT_SUPPORT = 5
TEXTS_PER_SUPPORT = 100
# Standard errors around a mean that hold 95 %.
CONFIDENCE = 1.96
PUNCTUATION = ".,;:!?\"'()[]{}<>«»“”‘’…–—-*_/\\|"

Weight = Callable[[str], float]
"""The weight of a term."""


@dataclass(frozen=True)
class ClassWord:
    """A word of a class: its mean share of the relevance of a text of the class, and the number of texts with it.

    `low` and `high` bound the mean by 95 % (normal approximation over the texts); None for a class of a single text.
    """

    word: str
    weight: float
    texts: int
    low: float | None
    high: float | None


class ClassTotals:
    """The summed relevance of every term for every class, for any reweighting of the records.

    A record holds a class, its terms ("tokens", one entry per occurrence) and their relevance.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        # A class whose records hold no term still counts as a class.
        self.classes, self._class_N = _number_values([record["class"] for record in records])
        self.terms, term = _number_values(_concatenate(records, "tokens"))
        # Flat, one entry per occurrence: a bootstrap sums them thousands of times by bincount.
        self._record = _number_occurrences(records)
        self._cell = self._class_N[self._record] * len(self.terms) + term
        self._relevance = np.array(_concatenate(records, "relevance"), dtype=np.float64)

    def sums(self, weight_N: Array) -> tuple[Array, Array]:
        """Return the sums (classes × terms), and which terms occur for a class at all."""
        weight = weight_N[self._record]
        # Which terms occur is a sum of its own: the relevance of a term that occurs may sum to 0.
        occurrences = self._sum_cells(weight)
        return self._sum_cells(weight * self._relevance), occurrences > 0

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.classes), len(self.terms)

    def _sum_cells(self, values: Array) -> Array:
        """Sum a value of every occurrence (classes × terms)."""
        sums: Array = np.bincount(self._cell, values, minlength=math.prod(self._shape))
        return sums.reshape(self._shape)

    def top(self, weight_N: Array, k: int) -> list[list[int]]:
        """Return for each class the numbers of its k terms with the highest sums, ties in alphabetical order."""
        sums, occurs = self.sums(weight_N)
        # Only terms that occur for a class: another class's terms have the sum 0, more than some of its own.
        return [_top_terms(sum_V, occurs_V, k) for sum_V, occurs_V in zip(sums, occurs, strict=True)]

    def supported(self, class_number: int, min_texts: int) -> list[ClassWord]:
        """Return the terms of a class that occur in enough of its records and speak for it, the heaviest first."""
        records = self._count_records(class_number)
        term, sums = self._sum_texts(class_number)
        texts_V = self._sum_terms(term)
        mean_V = self._sum_terms(term, sums) / records
        square_V = self._sum_terms(term, sums**2) / records
        candidates = np.flatnonzero((texts_V >= min_texts) & (mean_V > 0))
        words = []
        for index in candidates[sort_descending(mean_V[candidates])]:
            mean = float(mean_V[index])
            bounds = _find_bounds(mean, float(square_V[index]), records)
            words.append(ClassWord(self.terms[index], mean, int(texts_V[index]), *bounds))
        return words

    def _count_records(self, class_number: int) -> int:
        return int((self._class_N == class_number).sum())

    def _sum_terms(self, term: Array, values: Array | None = None) -> Array:
        """Sum values by term, or count them."""
        return np.bincount(term, values, minlength=len(self.terms))

    def _sum_texts(self, class_number: int) -> tuple[Array, Array]:
        """Return term and summed relevance of every term of every record of a class."""
        own = self._class_N[self._record] == class_number
        # A term may occur several times in a text, which is one observation.
        key = self._record[own] * len(self.terms) + self._cell[own] % max(1, len(self.terms))
        distinct, inverse = np.unique(key, return_inverse=True)
        sums = np.bincount(inverse, self._relevance[own], minlength=len(distinct))
        return distinct % max(1, len(self.terms)), sums


def _find_bounds(mean: float, square: float, texts: int) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a mean over texts, by the mean of the squares."""
    # A single text does not tell how much texts differ.
    if texts < 2:
        return None, None
    error = CONFIDENCE * math.sqrt(max(square - mean**2, 0) / (texts - 1))
    return mean - error, mean + error


def _concatenate(records: Sequence[Record], name: str) -> list[Any]:
    """Return one list of the entries of this name in all records."""
    return list(chain.from_iterable(record[name] for record in records))


def _number_occurrences(records: Sequence[Record]) -> Array:
    """Return for each occurrence of a term the number of its record."""
    counts = [len(record["tokens"]) for record in records]
    # The dtype is given for no records, whose counts would be floats.
    return np.repeat(np.arange(len(records)), np.array(counts, dtype=np.int64))


def _number_values(values: Sequence[str]) -> tuple[list[str], Array]:
    """Return the distinct values, sorted, and the number of each value among them."""
    distinct = sorted(set(values))
    numbers = dict(zip(distinct, range(len(distinct)), strict=True))
    return distinct, np.array([numbers[value] for value in values], dtype=np.int64)


def _top_terms(sum_V: Array, occurs_V: Array, k: int) -> list[int]:
    candidates = np.flatnonzero(occurs_V)
    # Terms are sorted, so a stable sort leaves ties in alphabetical order.
    order = sort_descending(sum_V[candidates])[:k]
    top: list[int] = candidates[order].tolist()
    return top


def word_lists(records: Sequence[Record], k: int = TOP_K) -> WordLists:
    """Return for each class its k terms with the highest summed relevance, and these sums."""
    totals = ClassTotals(records)
    weights = np.ones(len(records))
    sums, _ = totals.sums(weights)
    lists = {}
    for label, sum_V, top in zip(totals.classes, sums, totals.top(weights, k), strict=True):
        lists[label] = _name_terms(totals.terms, sum_V, top)
    return lists


def _name_terms(terms: Sequence[str], sum_V: Array, top: Sequence[int]) -> list[tuple[str, float]]:
    return [(terms[term], float(sum_V[term])) for term in top]


@dataclass(frozen=True)
class Overlap:
    """How many terms the top k of two classes have in common, over all pairs of classes, and their share."""

    k: int
    count: int
    share: float


def overlap(top_terms: Sequence[Sequence[Any]], k: int) -> Overlap:
    """Return the terms common to the top k of two classes, over all pairs: count / (C(C,2) · k).

    `top_terms` lists the terms of each class, best first. A class with fewer than k terms shares no more than it has,
    and the divisor stays the same. The share is nan for fewer than two classes, which have no pair.
    """
    common = _count_common([set(terms[:k]) for terms in top_terms])
    count = sum(common)
    if not common:
        return Overlap(k, count, float("nan"))
    return Overlap(k, count, count / (len(common) * k))


def _count_common(tops: Sequence[set[Any]]) -> list[int]:
    """Count the terms that each pair of classes has in common."""
    return [len(first & second) for first, second in combinations(tops, 2)]


def normalise_word(word: str) -> str:
    """Return a word as it is counted: casefolded, without the punctuation around it."""
    return word.strip(PUNCTUATION).casefold()


def word_frequencies(texts: Iterable[str]) -> InverseDocumentFrequency:
    """Count in how many texts of a reference corpus each word occurs."""
    documents = 0
    counts: Counter[str] = Counter()
    for text in texts:
        documents += 1
        counts.update(_distinct_words(text))
    _require_documents(documents)
    return InverseDocumentFrequency(documents, counts)


def _require_documents(documents: int) -> None:
    if not documents:
        raise BadInput("The reference corpus is empty: give the texts that word frequencies are counted in.")


def _distinct_words(text: str) -> set[str]:
    # As a set: a word counts once per document.
    return set(map(normalise_word, text.split()))


def word_records(explanations: Collection[Explanation], *, weight: Weight | None = None) -> list[Record]:
    """Return a record per explanation: the explained class, the words of the text, and their weighted relevance.

    Words are casefolded and lose surrounding punctuation, unlike the tokens of the metric `token-overlap`, and their
    relevance is divided by the sum of absolute relevances of their text: gradients differ by orders of magnitude
    between texts, and the texts with the largest would decide alone.
    """
    _check_explanations(explanations)
    return [_word_record(explanation, weight) for explanation in explanations]


def _check_explanations(explanations: Collection[Explanation]) -> None:
    _refuse_nothing(explanations)
    if not _is_list_of_explanations(explanations):
        raise BadInput("Words are counted in a list of explanations: put a single one in a list.")


def _refuse_nothing(explanations: Collection[Explanation]) -> None:
    if isinstance(explanations, Collection) and not explanations:
        raise BadInput("There is nothing to show: give at least one explanation.")


def _is_list_of_explanations(explanations: Any) -> bool:
    if not isinstance(explanations, Collection):
        return False
    return all(isinstance(explanation, Explanation) for explanation in explanations)


def _word_record(explanation: Explanation, weight: Weight | None) -> Record:
    words = []
    relevance = []
    for word in explanation.words():
        name = normalise_word(word.text)
        # What is punctuation alone is no word.
        if name:
            words.append(name)
            relevance.append(float(word.relevance))
    return _weighted_record(explanation.label, words, _as_shares(np.array(relevance)), weight)


def _as_shares(relevance_N: Array) -> Array:
    """Return relevances as shares of their absolute sum; zeros if all are."""
    total = np.abs(relevance_N).sum()
    if not total > 0:
        return np.zeros_like(relevance_N)
    shares: Array = relevance_N / total
    return shares


def _weighted_record(label: str, terms: list[str], relevance_N: Array, weight: Weight | None) -> Record:
    if weight is not None:
        relevance_N = relevance_N * _weigh_terms(terms, weight)
    return {"class": label, "tokens": terms, "relevance": relevance_N.tolist()}


def _weigh_terms(terms: Sequence[str], weight: Weight) -> Array:
    return np.array([weight(term) for term in terms])


def top_words(
    records: Sequence[Record], *, count: int = TOP_K, min_texts: int | None = None
) -> dict[str, list[ClassWord]]:
    """Return for each class its words with the highest mean relevance, without those that speak against it.

    Words in fewer than `min_texts` texts of the class are left out: a name that occurs once says nothing about the
    class. By default that are 1 to 5, one more for every hundred texts.
    """
    require_integer("count", count)
    if min_texts is None:
        min_texts = default_support(len(records))
    require_integer("min_texts", min_texts, is_flag=True)
    totals = ClassTotals(records)
    return {label: totals.supported(number, min_texts)[:count] for number, label in enumerate(totals.classes)}


def default_support(texts: int) -> int:
    """Return in how many texts of a class a word must occur to be listed."""
    return min(MAX_DEFAULT_SUPPORT, 1 + texts // TEXTS_PER_SUPPORT)


def overlap_rows(records: Sequence[Record], ks: Sequence[int] = SHOWN_KS) -> list[Overlap]:
    """Return the overlap of classes at each k, ranked and divided as in the metric `token-overlap`.

    No k exceeds the number of words of the class that has most, so a class has fewer than k words only if its texts
    hold no more. Empty for fewer than two classes.
    """
    ranked = ClassTotals(records).top(np.ones(len(records)), max(ks))
    longest = max(map(len, ranked), default=0)
    if len(ranked) < 2 or longest == 0:
        return []
    return [overlap(ranked, k) for k in _limit_ks(ks, longest)]


def _limit_ks(ks: Sequence[int], longest: int) -> list[int]:
    # As a set: several ks may be limited to the same one.
    return sorted({min(k, longest) for k in ks})


def _summarise_overlap(records: Sequence[Record], weights_RN: Array, *, k: int = TOP_K) -> dict[str, Array]:
    overlaps = _resampled_overlaps(records, weights_RN, k)
    shares = [common.share for common in overlaps]
    counts = [float(common.count) for common in overlaps]
    return {"token-overlap": np.array(shares), "count": np.array(counts)}


def _resampled_overlaps(records: Sequence[Record], weights_RN: Array, k: int) -> list[Overlap]:
    """Return the overlap for each reweighting of the records."""
    totals = ClassTotals(records)
    return [overlap(totals.top(weight_N, k), k) for weight_N in weights_RN]


def _overlap_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    totals = ClassTotals(records)
    share_RK = np.empty((len(weights_RN), len(CURVE_KS)))
    for share_K, weight_N in zip(share_RK, weights_RN, strict=True):
        # Ranked once, to the largest k: shorter lists are its beginnings.
        share_K[:] = _overlap_shares(totals.top(weight_N, CURVE_KS[-1]))
    return list(map(float, CURVE_KS)), share_RK


def _overlap_shares(top_terms: Sequence[Sequence[Any]]) -> list[float]:
    return [overlap(top_terms, k).share for k in CURVE_KS]


@metric(
    paper="Decoded layer saliency, Sec. 3.2",
    better="lower",
    values=("token-overlap", "count"),
    summary=_summarise_overlap,
    curve=_overlap_curve,
    words=word_lists,
)
def token_overlap(
    model: Model,
    cases: list[ExplainedExample],
    *,
    k: int = TOP_K,
    reference: str | None = None,
    text_column: str | None = None,
    documents: int = MAX_DOCUMENTS,
) -> list[Record]:
    """Share of tokens common to the top k of two predicted classes, over all pairs of classes; `count` is not divided.

    The terms are the tokenizer's tokens, special ones left out; `clearhead words` counts words instead. A token's
    relevances are summed over the examples predicted as the class, weighted by inverse document frequency in
    `reference`, a text file or table of at most `documents` documents (never the evaluated set); unweighted without.
    Where all examples are predicted as one class, there are no two to compare, and `token-overlap` is nan.
    """
    require_integer("k", k)
    require_integer("documents", documents)
    _check_classes(model)
    weight = None
    if reference is not None:
        weight = token_frequencies(model, reference, text_column, documents)
    return [_token_record(explanation_for(case, "prediction"), weight) for case in cases]


def _check_classes(model: Model) -> None:
    """Raise UnsupportedModel for a model without classes of texts."""
    if model.takes_images or model.problem == "span":
        raise UnsupportedModel(f"token-overlap compares the words of classes, which {model.name} does not have.")


def _token_record(explanation: Explanation, weight: Weight | None) -> Record:
    real = np.flatnonzero(~explanation.special)
    tokens = [explanation.tokens[index] for index in real]
    return _weighted_record(explanation.label, tokens, explanation.relevance[real], weight)
