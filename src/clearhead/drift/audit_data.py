"""The measurements of an audit: effect, accuracy, labels and annotations of each word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Task
from clearhead.drift.audit_words import (
    MARKER,
    NUMBER,
    PUNCTUATION,
    Candidate,
    measure_mean,
    name_kind,
    normalise_unit,
)
from clearhead.drift.hide_words import HiddenWord
from clearhead.drift.shortcuts import ALPHA, MIN_EFFECT, AuditedWord
from clearhead.evaluation.corrected_t import measure_moments, p_value
from clearhead.evaluation.paired_tests import holm
from clearhead.evaluation.statistics import Interval
from clearhead.model_diff import Reasons

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


def read_effect(candidate: Candidate, hidden: HiddenWord, classes: Sequence[str]) -> Effect:
    """Return what hiding a word did to its class."""
    number = list(classes).index(candidate.label)
    names = np.array(classes)
    return Effect(
        hidden.before_EC[:, number],
        hidden.hidden_EC[:, number],
        hidden.control_EC[:, number],
        names[hidden.before_EC.argmax(1)],
        names[hidden.hidden_EC.argmax(1)],
    )


@dataclass(frozen=True, eq=False)
class AuditedData:
    """The texts of an audit, and what the data set knows about them: labels, and characters that people marked."""

    task: Task
    reasons: Sequence[Reasons]
    classes: tuple[str, ...]

    @cached_property
    def label_N(self) -> Array:
        """The labels of all texts, empty where there is none."""
        return np.array([entry.label or "" for entry in self.reasons])

    def describe(self, candidates: Sequence[Candidate], hidden: Sequence[HiddenWord]) -> Iterator[AuditedWord]:
        """Yield what hiding did to each word, with p-values corrected for all of them."""
        effects = [read_effect(*pair, self.classes) for pair in zip(candidates, hidden, strict=True)]
        effect_p = holm([find_p_value(effect.control_E - effect.hidden_E) for effect in effects])
        excess_p = holm([find_p_value(self._find_excess(candidate)) for candidate in candidates])
        for candidate, effect, p, p_excess in zip(candidates, effects, effect_p, excess_p, strict=True):
            yield self._describe_word(candidate, effect, p, p_excess)

    def _describe_word(self, candidate: Candidate, effect: Effect, p: float, p_excess: float) -> AuditedWord:
        excess = measure_if_any(self._find_excess(candidate))
        evidence = self._measure_evidence(candidate)
        kind = name_kind(candidate.word)
        return AuditedWord(
            word=candidate.word,
            label=candidate.label,
            kind=kind,
            texts=len(candidate.example_E),
            concentration=float(candidate.has_label_E.mean()),
            share=candidate.share,
            effect=measure_mean(effect.before_E - effect.hidden_E),
            control=float((effect.before_E - effect.control_E).mean()),
            p_corrected=p,
            flips=int((effect.answer_E != effect.hidden_answer_E).sum()),
            accuracy=measure_if_any(self._find_accuracy(candidate, effect)),
            excess=excess,
            evidence=evidence,
            suspicions=tuple(list_suspicions(kind, excess, p_excess, evidence)),
        )

    def _find_excess(self, candidate: Candidate) -> Array:
        """Return 1 where the answer is the class and the label is not, −1 for the reverse, of labelled texts."""
        label_E = self.label_N[candidate.example_E]
        has_class_E = (label_E == candidate.label).astype(float)
        is_labelled_E = label_E != ""
        excess_E: Array = candidate.has_label_E[is_labelled_E] - has_class_E[is_labelled_E]
        return excess_E

    def _find_accuracy(self, candidate: Candidate, effect: Effect) -> Array:
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
        marks: list[bool] = []
        for example in candidate.example_E.tolist():
            gold = self.task.examples[example].gold
            # Masks and boxes are annotations of images.
            if isinstance(gold, tuple) and gold and isinstance(gold[0], tuple):
                marks += _mark_occurrences(self.reasons[example], candidate.word, gold)
        return float(np.mean(marks)) if marks else None


def _mark_occurrences(reasons: Reasons, word: str, gold: Sequence[Any]) -> Iterator[bool]:
    for name, (segment, start, end) in zip(reasons.words, reasons.spans, strict=True):
        if normalise_unit(name) == word:
            yield any(segment == text and start < stop and first < end for text, first, stop in gold)


def find_p_value(value_E: Array) -> float:
    """Return the p-value of a mean of zero."""
    return p_value(measure_moments(value_E, np.arange(len(value_E))))


def measure_if_any(value_N: Array) -> Interval | None:
    """Return the mean with its interval; None if there are no values, such as without labels."""
    return measure_mean(value_N) if len(value_N) else None


def list_suspicions(kind: str, excess: Interval | None, excess_p: float, evidence: float | None) -> Iterator[str]:
    """Yield why a word may be no evidence."""
    if kind in KIND_SUSPICIONS:
        yield KIND_SUSPICIONS[kind]
    if excess is not None and excess_p < ALPHA and excess.value >= MIN_EFFECT:
        yield f"texts with it are answered with the class {100 * excess.value:.0f} points more often than labelled"
    if evidence is not None and evidence < MIN_EVIDENCE:
        yield f"people marked {evidence:.0%} of its occurrences as evidence"
