"""audit(): words and regions of images that carry a class without being evidence, tested by hiding them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from clearhead.attribution.method import resolve_method
from clearhead.data.task import Mask, Task
from clearhead.drift.audit_data import AuditedData
from clearhead.drift.audit_pictures import choose_regions, describe_regions
from clearhead.drift.audit_words import AUDIT_UNIT, Candidate, choose_candidates, normalise_unit
from clearhead.drift.hide_regions import RegionHider
from clearhead.drift.hide_words import hide_words
from clearhead.drift.shortcuts import ALPHA, Audit, AuditedWord
from clearhead.drift.snapshot import Survey, choose_task
from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.corrected_t import RARE_OUTCOME
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model_diff import PATCH, WORD, Reasons
from clearhead.validation import require_integer

MAX_WORDS = 20
MAX_NAMED_LABELS = 3


def audit(
    model: Any,
    inputs: Any = None,
    *,
    task: Any = None,
    method: Any = None,
    words: Sequence[str] = (),
    count: int = MAX_WORDS,
    batch_size: int | None = None,
    precision: str | None = None,
    **options: Any,
) -> Audit:
    """Find words that carry a class over many texts, hide them over the data set, and name those that are suspicious.

    A word is suspicious if it is punctuation, a number or a marker, if the model answers with its class more often than
    the labels of the data set say, or if people did not mark it as evidence. `words` are tested in any case, `count` is
    the number of others. Of images, corners, edges and, where people marked the subject, the background are hidden,
    each in all images and in those of `count` classes. Further keyword arguments are the method's options.

    >>> clearhead.audit("my-model", task="dev.tsv").sentence     # doctest: +SKIP
    "1 shortcut was found: '!' for 'positive'; 20 words tested on 872 texts."
    """
    require_integer("count", count, 0, is_flag=True)
    loaded = with_precision(as_model(model), precision)
    _require_classes(loaded)
    survey = Survey(choose_task(inputs, task), resolve_method(loaded, method, **options), batch_size, AUDIT_UNIT)
    if loaded.takes_images:
        _refuse_words(words)
        return _audit_pictures(loaded, survey, count)
    return _audit_texts(loaded, survey, count, words)


def _audit_texts(model: Model, survey: Survey, count: int, words: Sequence[str]) -> Audit:
    answers = survey.ask(model)
    _require_words(answers)
    reasons = _keep_known_labels(answers, model.labels)
    candidates = choose_candidates(reasons, count, words)
    hidden = hide_words(model, reasons, candidates, survey.batch_size)
    audited = AuditedData(survey.task, reasons, tuple(model.labels)).describe(candidates, hidden)
    notes = chain(_write_word_notes(candidates, words), _write_data_notes(survey.task, answers, reasons))
    return _summarise(model, survey, reasons, audited, notes)


def _audit_pictures(model: Model, survey: Survey, count: int) -> Audit:
    answers = survey.ask(model)
    _require_patches(model, answers)
    reasons = _keep_known_labels(answers, model.labels)
    regions = RegionHider(model, survey.task, reasons, survey.batch_size).hide()
    data = AuditedData(survey.task, reasons, tuple(model.labels))
    chosen = choose_regions(regions, data, count)
    notes = chain(_write_region_notes(survey.task), _write_data_notes(survey.task, answers, reasons))
    audited = _summarise(model, survey, reasons, describe_regions(chosen, data), notes)
    return replace(audited, unit="region")


def _summarise(
    model: Model, survey: Survey, reasons: Sequence[Reasons], words: Iterable[AuditedWord], notes: Iterable[str]
) -> Audit:
    return Audit(
        model.name,
        survey.task.name,
        survey.spec.text,
        len(reasons),
        _measure_accuracy(reasons),
        tuple(sorted(words, key=_sort_key)),
        tuple(notes),
    )


def _sort_key(word: AuditedWord) -> tuple[bool, bool, float]:
    return not word.is_shortcut, not word.has_effect, -word.effect.value


def _require_classes(model: Model) -> None:
    if model.problem != "single-label":
        raise BadInput(
            f"An audit hides parts of inputs and watches their class; {model.name} is no classifier with one class per "
            "input."
        )


def _refuse_words(words: Sequence[str]) -> None:
    if words:
        raise BadOption(f"'{words[0]}' is a word, which images do not have: leave out words.")


def _require_words(reasons: Sequence[Reasons]) -> None:
    if any(entry.kind != WORD for entry in reasons):
        raise BadInput("An audit hides words: give texts, not tensors, and load the model with its tokenizer.")


def _require_patches(model: Model, reasons: Sequence[Reasons]) -> None:
    if any(entry.kind != PATCH for entry in reasons):
        raise BadInput(f"An audit hides patches of images; {model.name} has no patches in rows and columns.")


def _keep_known_labels(reasons: Sequence[Reasons], labels: Sequence[str]) -> tuple[Reasons, ...]:
    """Return reasons without labels that the model cannot answer with: by them every answer would be wrong."""
    return tuple(entry if entry.label in labels else replace(entry, label=None) for entry in reasons)


def _measure_accuracy(reasons: Sequence[Reasons]) -> float | None:
    is_right = [entry.prediction == entry.label for entry in reasons if entry.label is not None]
    # Without labels there is no accuracy, which is not the same as one of zero.
    return float(np.mean(is_right)) if is_right else None


def _write_word_notes(candidates: Sequence[Candidate], words: Sequence[str]) -> Iterator[str]:
    missing = _list_missing(candidates, words)
    if missing:
        yield f"Not in any text: {_quote(missing)}."
    # Not left out silently: the reader would take an untested word for a harmless one.
    rare = _list_rare(candidates)
    if rare:
        yield f"In too few texts to be told among so many words (test fewer): {_quote(rare)}."
    yield "What no test can tell is whether a word is evidence: look at the words that the model uses, too."


def _list_missing(candidates: Sequence[Candidate], words: Sequence[str]) -> list[str]:
    tested = {candidate.word for candidate in candidates}
    return [word for word in words if normalise_unit(word) not in tested]


def _list_rare(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.word for candidate in candidates if _is_too_rare(candidate, len(candidates))]


def _write_region_notes(task: Task) -> Iterator[str]:
    if any(isinstance(example.gold, Mask) for example in task.examples):
        yield "Patches with a pixel of the marked subject belong to no region."
    else:
        yield "Nobody marked the subject, so it may reach into corners and edges: look at the images."


def _write_data_notes(task: Task, answers: Sequence[Reasons], reasons: Sequence[Reasons]) -> Iterator[str]:
    """Yield what of the data set was not used; `reasons` have no labels that the model does not know."""
    if task.notice:
        yield task.notice
    cut = sum(entry.was_cut for entry in reasons)
    if cut:
        yield f"Cut off, because they are longer than what the model reads: {cut} of {len(reasons)} texts."
    yield from _write_label_notes(answers, reasons)


def _write_label_notes(answers: Sequence[Reasons], reasons: Sequence[Reasons]) -> Iterator[str]:
    pairs = zip(answers, reasons, strict=True)
    unknown = [answer.label for answer, entry in pairs if answer.label is not None and entry.label is None]
    if unknown:
        names = list(dict.fromkeys(unknown))[:MAX_NAMED_LABELS]
        yield f"Labels that are no classes of the model, and are not counted: {len(unknown)} (such as {_quote(names)})."
    elif all(entry.label is None for entry in reasons):
        yield "The data set has no labels, so nothing is known about accuracy."


def _quote(words: Sequence[str]) -> str:
    # In quotes, because a comma may be one of the words.
    return ", ".join(f"'{word}'" for word in words)


def _is_too_rare(candidate: Candidate, tests: int) -> bool:
    """Return whether the smallest p-value of so few texts is none after correction."""
    smallest = (1 - RARE_OUTCOME) ** len(candidate.example_E)
    return tests * smallest >= ALPHA
