"""The measurements of an audit: effect, accuracy, labels and annotations of each word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Spans, Task
from clearhead.drift.audit_words import (
    MARKER,
    NUMBER,
    PUNCTUATION,
    Candidate,
    measure_mean,
    name_kind,
    name_units,
)
from clearhead.drift.hidden_units import HiddenUnit
from clearhead.drift.shortcuts import ALPHA, MIN_EFFECT, AuditedWord
from clearhead.evaluation.corrected_t import measure_moments, p_value
from clearhead.evaluation.paired_tests import holm
from clearhead.evaluation.statistics import Interval
from clearhead.model_diff import Reasons, Span

MIN_EVIDENCE = 0.05
"""The part of a word's occurrences among annotated evidence below which it is called none."""
KIND_SUSPICIONS = {
    PUNCTUATION: "it is punctuation",
    NUMBER: "it is a number",
    MARKER: "it is a marker, such as an address, a tag or a mention",
}


@dataclass(frozen=True, eq=False)
class Effect:
    """The probability of a word's class in its texts (E), and the answers: with the word, without, without others."""

    before_E: Array
    hidden_E: Array
    control_E: Array
    answer_E: Array
    hidden_answer_E: Array

    @property
    def p(self) -> float:
        """The chance that hiding the word does no more than hiding others."""
        return find_p_value(self.control_E - self.hidden_E)

    @property
    def by_hiding(self) -> Interval:
        return measure_mean(self.before_E - self.hidden_E)

    @property
    def by_others(self) -> float:
        return float((self.before_E - self.control_E).mean())

    @property
    def flips(self) -> int:
        """The number of answers that change."""
        return int((self.answer_E != self.hidden_answer_E).sum())


def read_effect(class_E: Array, hidden: HiddenUnit, classes: Sequence[str]) -> Effect:
    """Return what hiding did to one class of each input, by number."""
    row_E = np.arange(len(class_E))
    names = np.array(classes)
    return Effect(
        hidden.before_EC[row_E, class_E],
        hidden.hidden_EC[row_E, class_E],
        hidden.control_EC[row_E, class_E],
        names[hidden.before_EC.argmax(1)],
        names[hidden.hidden_EC.argmax(1)],
    )


@dataclass(frozen=True, eq=False)
class AuditedData:
    """The texts or images of an audit, and what the data set knows about them: labels, and what people marked."""

    task: Task
    reasons: Sequence[Reasons]
    classes: tuple[str, ...]

    @cached_property
    def label_N(self) -> Array:
        """The labels of all texts, empty where there is none."""
        return np.array([entry.label or "" for entry in self.reasons])

    @cached_property
    def answer_N(self) -> Array:
        """The answers of the model to all of them."""
        return np.array([entry.prediction for entry in self.reasons])

    def describe(self, candidates: Sequence[Candidate], hidden: Sequence[HiddenUnit]) -> Iterator[AuditedWord]:
        """Yield what hiding did to each word, with p-values corrected for all of them."""
        words = self._measure_words(candidates, hidden)
        for word, p_excess in zip(words, self._test_excess(candidates), strict=True):
            yield replace(word, suspicions=tuple(list_suspicions(word, p_excess)))

    def _measure_words(self, candidates: Sequence[Candidate], hidden: Sequence[HiddenUnit]) -> Iterator[AuditedWord]:
        effects = list(map(self._read_effect, candidates, hidden))
        p_values = holm([effect.p for effect in effects])
        return map(self._measure_word, candidates, effects, p_values)

    def _test_excess(self, candidates: Sequence[Candidate]) -> Sequence[float]:
        """Return the corrected p-values of answers with the class being no more frequent than its label."""
        return holm([find_p_value(self._find_excess(candidate)) for candidate in candidates])

    def _read_effect(self, candidate: Candidate, hidden: HiddenUnit) -> Effect:
        """Return what hiding a word did to its class."""
        number = self.classes.index(candidate.label)
        return read_effect(np.full(len(candidate.example_E), number), hidden, self.classes)

    def _measure_word(self, candidate: Candidate, effect: Effect, p: float) -> AuditedWord:
        return AuditedWord(
            word=candidate.word,
            label=candidate.label,
            kind=name_kind(candidate.word),
            texts=len(candidate.example_E),
            concentration=candidate.concentration,
            share=candidate.share,
            effect=effect.by_hiding,
            control=effect.by_others,
            p_corrected=p,
            flips=effect.flips,
            accuracy=measure_if_any(self.find_accuracy(candidate, effect)),
            excess=measure_if_any(self._find_excess(candidate)),
            evidence=self._measure_evidence(candidate),
        )

    def _find_excess(self, candidate: Candidate) -> Array:
        """Return 1 where the answer is the class and the label is not, −1 for the reverse, of labelled texts."""
        label_E = self.label_N[candidate.example_E]
        has_class_E = (label_E == candidate.label).astype(float)
        # Over labelled texts alone, so that both parts are of the same texts.
        is_labelled_E = label_E != ""
        excess_E: Array = candidate.has_label_E[is_labelled_E] - has_class_E[is_labelled_E]
        return excess_E

    def find_accuracy(self, candidate: Candidate, effect: Effect) -> Array:
        """Return 1 where hiding makes an answer right, −1 where wrong, over all labelled texts."""
        label_E = self.label_N[candidate.example_E]
        was_right_E = (effect.answer_E == label_E).astype(float)
        # Texts without the word stay as they are.
        change_N = np.zeros(len(self.label_N))
        change_N[candidate.example_E] = (effect.hidden_answer_E == label_E) - was_right_E
        labelled_change_N: Array = change_N[self.label_N != ""]
        return labelled_change_N

    def _measure_evidence(self, candidate: Candidate) -> float | None:
        """Return the part of a word's occurrences that overlap annotated characters; None without annotations."""
        marks = list(chain.from_iterable(self._mark_texts(candidate)))
        return float(np.mean(marks)) if marks else None

    def _mark_texts(self, candidate: Candidate) -> Iterator[Iterator[bool]]:
        for number in candidate.example_E.tolist():
            gold = self.task.examples[number].gold
            if are_spans(gold):
                yield mark_occurrences(self.reasons[number], candidate.word, gold)


def are_spans(gold: Any) -> TypeGuard[Spans]:
    """Return whether an annotation is of characters: masks and boxes are of images."""
    return isinstance(gold, tuple) and len(gold) > 0 and isinstance(gold[0], tuple)


def mark_occurrences(reasons: Reasons, word: str, gold: Spans) -> Iterator[bool]:
    """Yield for each occurrence of a word whether people marked any of its characters."""
    for name, span in zip(name_units(reasons), reasons.spans, strict=True):
        if name == word:
            yield any(_overlap(span, marked) for marked in gold)


def _overlap(first: Span, second: Span) -> bool:
    return first[0] == second[0] and first[1] < second[2] and second[1] < first[2]


def find_p_value(value_E: Array) -> float:
    """Return the p-value of a mean of zero."""
    return p_value(measure_moments(value_E, np.arange(len(value_E))))


def measure_if_any(value_N: Array) -> Interval | None:
    """Return the mean with its interval; None if there are no values, such as without labels."""
    if not len(value_N):
        return None
    return measure_mean(value_N)


def list_suspicions(word: AuditedWord, p_excess: float) -> Iterator[str]:
    """Yield why a word may be no evidence."""
    if word.kind in KIND_SUSPICIONS:
        yield KIND_SUSPICIONS[word.kind]
    if word.excess is not None and p_excess < ALPHA:
        yield from _suspect_excess(word.excess.value)
    if word.evidence is not None:
        yield from _suspect_evidence(word.evidence)


def _suspect_excess(excess: float) -> Iterator[str]:
    # A significant difference may be too small to matter.
    if excess >= MIN_EFFECT:
        yield f"texts with it are answered with the class {100 * excess:.0f} points more often than labelled"


def _suspect_evidence(evidence: float) -> Iterator[str]:
    if evidence < MIN_EVIDENCE:
        yield f"people marked {evidence:.0%} of its occurrences as evidence"
