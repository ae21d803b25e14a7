"""audit(): words that carry a class over many examples without being evidence, tested by hiding them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clearhead.attribution.method import resolve_method
from clearhead.drift.audit_data import AuditedData
from clearhead.drift.audit_words import AUDIT_UNIT, Candidate, choose_candidates, normalise_unit
from clearhead.drift.hide_words import hide_words
from clearhead.drift.shortcuts import ALPHA, Audit, AuditedWord
from clearhead.drift.snapshot import Survey, choose_task
from clearhead.errors import BadInput
from clearhead.evaluation.corrected_t import RARE_OUTCOME
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model_diff import WORD, Reasons
from clearhead.validation import require_integer

MAX_WORDS = 20


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
    the number of others. Further keyword arguments are the method's options.

    >>> clearhead.audit("my-model", task="dev.tsv").sentence     # doctest: +SKIP
    "1 shortcut was found: '!' for 'positive'; 20 words tested on 872 texts."
    """
    require_integer("count", count, 0, is_flag=True)
    loaded = with_precision(as_model(model), precision)
    _require_classes(loaded)
    chosen = choose_task(inputs, task)
    survey = Survey(chosen, resolve_method(loaded, method, **options), batch_size, AUDIT_UNIT)
    reasons = survey.ask(loaded)
    _require_words(reasons)
    candidates = choose_candidates(reasons, count, words)
    hidden = hide_words(loaded, reasons, candidates, batch_size)
    data = AuditedData(chosen, reasons, tuple(loaded.labels))
    return Audit(
        loaded.name,
        chosen.name,
        survey.spec.text,
        len(reasons),
        _measure_accuracy(reasons),
        tuple(sorted(data.describe(candidates, hidden), key=_sort_key)),
        tuple(_write_notes(reasons, candidates, words)),
    )


def _sort_key(word: AuditedWord) -> tuple[bool, bool, float]:
    return not word.is_shortcut, not word.has_effect, -word.effect.value


def _require_classes(model: Model) -> None:
    if model.takes_images or model.problem != "single-label":
        raise BadInput(
            f"An audit hides words of texts and watches their class; {model.name} is no classifier of texts with one "
            "class per text."
        )


def _require_words(reasons: Sequence[Reasons]) -> None:
    if any(entry.kind != WORD for entry in reasons):
        raise BadInput("An audit hides words: give texts, not tensors, and load the model with its tokenizer.")


def _measure_accuracy(reasons: Sequence[Reasons]) -> float | None:
    labelled = [entry.prediction == entry.label for entry in reasons if entry.label is not None]
    # Without labels there is no accuracy, which is not the same as one of zero.
    if not labelled:
        return None
    return float(np.mean(labelled))


def _write_notes(reasons: Sequence[Reasons], candidates: Sequence[Candidate], words: Sequence[str]) -> Iterator[str]:
    tested = {candidate.word for candidate in candidates}
    missing = [word for word in words if normalise_unit(word) not in tested]
    if missing:
        yield f"Not in any text: {_quote(missing)}."
    # Not left out silently: the reader would take an untested word for a harmless one.
    rare = [candidate.word for candidate in candidates if _is_too_rare(candidate, len(candidates))]
    if rare:
        yield f"In too few texts to be told among so many words (test fewer): {_quote(rare)}."
    if all(entry.label is None for entry in reasons):
        yield "The data set has no labels, so nothing is known about accuracy."
    yield "What no test can tell is whether a word is evidence: look at the words that the model uses, too."


def _quote(words: Sequence[str]) -> str:
    # In quotes, because a comma may be one of the words.
    return ", ".join(f"'{word}'" for word in words)


def _is_too_rare(candidate: Candidate, tests: int) -> bool:
    """Return whether the smallest p-value of so few texts is none after correction."""
    smallest = (1 - RARE_OUTCOME) ** len(candidate.example_E)
    return tests * smallest >= ALPHA
