"""Units of a prompt with their relevance, and the log-probability of its answer when some of them are removed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Example
from clearhead.errors import BadInput
from clearhead.evaluation.answer_tokens import answer_explanation, encoded_answer, ranked_tokens, stack_spans
from clearhead.evaluation.metric import ExplainedExample
from clearhead.model.inputs import Encoded, collate
from clearhead.model.model import Model
from clearhead.perturbation.answers import Ablation, ablate_rows, group_log_probs, require_answer
from clearhead.perturbation.features import group_features
from clearhead.validation import require_choice

UNITS = ("token", "word", "sentence", "source")


@dataclass(frozen=True, eq=False)
class PromptUnits:
    """The units of one prompt: each token's unit from 1, 0 for what is never removed (T), and their relevance (U)."""

    encoded: Encoded
    labels_T: Array
    relevance_U: Array

    @property
    def count(self) -> int:
        return len(self.relevance_U)

    def keep(self, present_KU: Array) -> Array:
        """Return which tokens are kept (K,T) if these units are present."""
        # Column 0 stands for what is never removed.
        is_present = np.insert(np.asarray(present_KU, dtype=bool), 0, True, axis=1)
        kept_KT: Array = is_present[:, self.labels_T]
        return kept_KT

    def ablate(self, present_KU: Array) -> list[Ablation]:
        """Return the prompt with the whole answer under each mask of units."""
        return ablate_rows(self.encoded, self.keep(present_KU), _list_steps(self.encoded))


def _list_steps(encoded: Encoded) -> tuple[int, ...]:
    return tuple(range(len(require_answer(encoded).ids)))


def list_units(model: Model, cases: Sequence[ExplainedExample], unit: str) -> list[PromptUnits]:
    """Return the units of each prompt."""
    return [make_units(model, case, unit) for case in cases]


def make_units(model: Model, case: ExplainedExample, unit: str) -> PromptUnits:
    """Group the ranked tokens of a prompt; the relevance of a unit is the sum over its tokens."""
    explanation = answer_explanation(case, "answer")
    encoded = encoded_answer(case)
    unit_T = _number_tokens(model, encoded, case.example, unit)
    # The label 0 of what is not ranked keeps it from being removed.
    labels_T = _renumber(np.where(ranked_tokens(model, explanation), unit_T, 0))
    return PromptUnits(encoded, labels_T, _sum_units(labels_T, explanation.relevance))


def _sum_units(labels_T: Array, relevance_T: Array) -> Array:
    # The first sum is that of what is never removed, which has no rank.
    return np.bincount(labels_T, relevance_T, minlength=1)[1:]


def _number_tokens(model: Model, encoded: Encoded, example: Example, unit: str) -> Array:
    require_choice("unit", unit, UNITS)
    if unit == "token":
        return np.arange(1, encoded.length + 1)
    if unit == "source":
        return _number_sources(encoded, example)
    return _number_words(model, encoded, unit)


def _number_words(model: Model, encoded: Encoded, unit: str) -> Array:
    """Return the number of the word or sentence of each token."""
    (features,) = group_features(model, collate(model, [encoded]), unit)
    return features.labels.numpy()


def _renumber(labels_T: Array) -> Array:
    """Return labels without gaps; 0 stays 0."""
    # With a 0 in front, because there may be none.
    _, inverse = np.unique(np.append(0, labels_T), return_inverse=True)
    numbers: Array = inverse[1:]
    return numbers


def _number_sources(encoded: Encoded, example: Example) -> Array:
    """Return the number of the source in which each token starts, 0 outside of all sources."""
    sources = _require_sources(example)
    starts_T = _token_starts(encoded, example)
    labels_T = np.zeros(len(starts_T), dtype=np.int64)
    for number, source in enumerate(sources, 1):
        labels_T[_starts_in(starts_T, encoded, source)] = number
    return labels_T


def _starts_in(starts_T: Array, encoded: Encoded, source: str) -> Array:
    """Return which tokens start in a source, by its first occurrence in the prompt."""
    prompt = encoded.item.text[0] if encoded.item.text else ""
    first = prompt.find(source)
    return (starts_T >= first) & (starts_T < first + len(source))


def _require_sources(example: Example) -> tuple[str, ...]:
    if example.writing is None or not example.writing.sources:
        raise BadInput(f"Example '{example.id}' has no sources: add the column 'sources', or use unit=sentence.")
    return example.writing.sources


def _token_starts(encoded: Encoded, example: Example) -> Array:
    """Return the first character of each token of the prompt, −1 for tokens of the answer."""
    spans = stack_spans(_require_offsets(encoded, example))
    # An answer may repeat a source, but only what the prompt says of it can be removed.
    return np.where(spans[:, 0] == 0, spans[:, 1], -1)


def _require_offsets(encoded: Encoded, example: Example) -> tuple[tuple[int, ...], ...]:
    if encoded.item.offsets is None:
        raise BadInput(f"The sources of example '{example.id}' are found by characters, which needs a fast tokenizer.")
    return encoded.item.offsets


def score_units(model: Model, prompts: Sequence[PromptUnits], masks: Sequence[Array], replacement: str) -> list[Array]:
    """Return for each prompt log p of every step of its answer under each mask of its units (K,N)."""
    groups = list(map(PromptUnits.ablate, prompts, masks))
    return list(map(np.stack, group_log_probs(model, groups, replacement=replacement)))
