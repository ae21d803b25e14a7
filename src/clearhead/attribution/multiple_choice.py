"""Multiple choice: a context with several choices as one example, explained from the explanation of each pair.

The logit of a choice depends on its own pair alone, so the relevance for a choice is that of its pair. A contrast adds
the relevance of the other choices with their sign; the words of the context, which all pairs share, are added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.attribution.method import METHODS
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.model.target import Target, TargetLike, class_index, list_targets

OTHERS = "others"
"""The value of `versus` that contrasts a choice with all others."""
CHOICE_FIELDS = ("text", "score", "probability")
UNCHECKED_CONTRAST = "Words are hidden in the pair of one choice: explain the choices one by one for their checks."

Row = Sequence[Explanation]
"""The explanations of the choices of one example by one method."""


@dataclass(frozen=True)
class ChoiceInput:
    """A context and the choices that a model chooses from."""

    context: str
    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_texts([self.context, *self.choices])
        if len(self.choices) < 2:
            raise BadInput(f"The context {self.context!r} has {len(self.choices)} choices: give two or more.")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.context, choice) for choice in self.choices]


def is_choice_input(inputs: Any) -> bool:
    """Return whether this is one context with a list of choices."""
    return isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], list)


def has_choices(inputs: Any) -> bool:
    """Return whether inputs are contexts with choices, one or a list, instead of pairs of a context and one choice."""
    if is_choice_input(inputs):
        return True
    return isinstance(inputs, list) and any(map(is_choice_input, inputs))


def parse_choices(inputs: Any) -> list[ChoiceInput]:
    """Return contexts with their choices; raise BadInput for anything else."""
    sources = [inputs] if is_choice_input(inputs) else inputs
    return list(map(_parse_example, sources))


def _parse_example(source: Any) -> ChoiceInput:
    _require_choices(source)
    context, choices = source
    return ChoiceInput(context, tuple(choices))


def _require_choices(source: Any) -> None:
    if not is_choice_input(source):
        raise BadInput(f"{source!r} is no context with choices: give (context, [choice, choice, …]).")


def _require_texts(texts: Sequence[Any]) -> None:
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("A context and its choices are texts: give (context, [choice, choice, …]).")


def split_rows(examples: Sequence[ChoiceInput], explanations: Sequence[Explanation]) -> list[Row]:
    """Return the explanations of the pairs of each example."""
    # Pairs were explained in one list, so that they share batches.
    rows = []
    start = 0
    for example in examples:
        stop = start + len(example.choices)
        rows.append(explanations[start:stop])
        start = stop
    return rows


def combine_rows(
    examples: Sequence[ChoiceInput], explanations: Sequence[Explanation], target: TargetLike | Sequence[TargetLike]
) -> list[Explanation]:
    """Return one explanation per example from those of all pairs."""
    rows = split_rows(examples, explanations)
    targets = list_targets(target, len(examples))
    return [_combine(example, row, own) for example, row, own in zip(examples, rows, targets, strict=True)]


def _combine(example: ChoiceInput, row: Row, target: TargetLike) -> Explanation:
    outcome = Outcome(example, _read_scores(row))
    index, versus = _resolve(example, target, outcome.best)
    merged = _contrast(example, row, index, versus)
    return replace(
        merged,
        target=Target(index, versus=versus),
        label=_label(example, index, versus),
        probability=float(outcome.probability_K[index]),
        diagnostics={**merged.diagnostics, "score": outcome.contrast(index, versus), **outcome.describe()},
    )


def _read_scores(row: Row) -> Array:
    return np.array([explanation.diagnostics["score"] for explanation in row])


@dataclass(frozen=True)
class Outcome:
    """The scores of all choices of an example (K)."""

    example: ChoiceInput
    score_K: Array

    @property
    def best(self) -> int:
        return int(self.score_K.argmax())

    @property
    def probability_K(self) -> Array:
        return _softmax(self.score_K)

    def contrast(self, index: int, versus: int | str | None) -> float:
        """Return the explained score: that of a choice, less that of what it is contrasted with."""
        return float(_weigh(len(self.score_K), index, versus) @ self.score_K)

    def describe(self) -> dict[str, Any]:
        """Return the choice that wins, and the score and probability of every choice, as plain data."""
        return {
            "predicted": self.example.choices[self.best],
            "predicted_probability": float(self.probability_K[self.best]),
            "choices": list(map(_describe_choice, *self._columns())),
        }

    def _columns(self) -> tuple[Sequence[Any], ...]:
        return self.example.choices, self.score_K.tolist(), self.probability_K.tolist()


def _describe_choice(*values: Any) -> dict[str, Any]:
    return dict(zip(CHOICE_FIELDS, values, strict=True))


def _softmax(score_K: Array) -> Array:
    # Without the largest score, so that no exponential overflows.
    odds_K: Array = np.exp(score_K - score_K.max())
    return odds_K / float(odds_K.sum())


def _resolve(example: ChoiceInput, target: TargetLike, predicted: int) -> tuple[int, int | str | None]:
    """Return the index of the choice that is explained, and what it is contrasted with."""
    if not isinstance(target, Target):
        target = Target(target)
    _refuse_span(target)
    index = _resolve_index(example, target, predicted)
    return index, _resolve_versus(example, target, index)


def _refuse_span(target: Target) -> None:
    if target.span is not None:
        raise BadInput("A span target needs a question-answering model; give the index or the text of a choice.")


def _resolve_index(example: ChoiceInput, target: Target, predicted: int) -> int:
    if target.index is None:
        return predicted
    return class_index(target.index, example.choices)


def _resolve_versus(example: ChoiceInput, target: Target, index: int) -> int | str | None:
    if _names_no_choice(target):
        return target.versus
    versus = class_index(target.versus, example.choices)
    _refuse_itself(example, index, versus)
    return versus


def _names_no_choice(target: Target) -> bool:
    return target.versus is None or target.versus == OTHERS


def _refuse_itself(example: ChoiceInput, index: int, versus: int) -> None:
    # Compared as indices: a choice may be named by its text or its number.
    if versus == index:
        raise BadInput(f"The choice '{example.choices[index]}' cannot be contrasted with itself: choose another.")


def _weigh(count: int, index: int, versus: int | str | None) -> Array:
    """Return the weight of each choice in the explained score."""
    # Others share the weight of the chosen one, so that the score is a difference.
    weight_K = np.zeros(count)
    if versus == OTHERS:
        weight_K -= 1 / (count - 1)
    elif isinstance(versus, int):
        weight_K[versus] = -1
    weight_K[index] = 1
    return weight_K


def _label(example: ChoiceInput, index: int, versus: int | str | None) -> str:
    if versus is None:
        return example.choices[index]
    return f"{example.choices[index]} rather than {_name_foil(example, versus)}"


def _name_foil(example: ChoiceInput, versus: int | str) -> str:
    if isinstance(versus, int):
        return example.choices[versus]
    return "the others"


def _contrast(example: ChoiceInput, row: Row, index: int, versus: int | str | None) -> Explanation:
    """Return the explanation of a choice, with the words of those that it is contrasted with behind it."""
    if versus is None:
        return row[index]
    _require_signed(row[index])
    others = _list_others(len(row), index, versus)
    numbers = [index, *(number for number, _ in others)]
    return _leave_unchecked(_add_others(row, index, others), _list_texts(example, numbers))


def _add_others(row: Row, index: int, others: Sequence[tuple[int, float]]) -> Explanation:
    """Add the explanations of other choices, with their weights, to that of the chosen one."""
    merged = row[index]
    # The context is the first text, the chosen one the second.
    for segment, (number, weight) in enumerate(others, start=2):
        merged = _add(merged, row[number], weight, segment)
    return merged


def _list_texts(example: ChoiceInput, numbers: Sequence[int]) -> tuple[str, ...]:
    """Return the context and some choices."""
    return (example.context, *(example.choices[number] for number in numbers))


def _leave_unchecked(merged: Explanation, texts: tuple[str, ...]) -> Explanation:
    # A check would hide words in the pair of one choice alone.
    diagnostics = {**merged.diagnostics, "unchecked": UNCHECKED_CONTRAST}
    return replace(merged, text=texts, check=None, diagnostics=diagnostics)


def _list_others(count: int, index: int, versus: int | str | None) -> list[tuple[int, float]]:
    """Return the other choices of a contrast with their weights."""
    weight_K = _weigh(count, index, versus)
    # The chosen one stands first already.
    weight_K[index] = 0
    return [(number, float(weight_K[number])) for number in np.flatnonzero(weight_K).tolist()]


def _require_signed(explanation: Explanation) -> None:
    # Relevance without a sign does not tell what speaks for the other choice.
    if not METHODS[explanation.method].signed:
        raise BadOption(
            f"{explanation.method} has no sign, so it cannot contrast choices: leave out versus, or choose a signed "
            "method such as balanced-cat or attn-lrp."
        )


def _add(merged: Explanation, other: Explanation, weight: float, segment: int) -> Explanation:
    """Add the relevance of another choice: to the words of the context, and its own words behind all others."""
    # Tokenizers give the context the same tokens in every pair.
    shared = _count_shared(other)
    return replace(
        merged,
        tokens=merged.tokens + other.tokens[shared:],
        special=np.concatenate([merged.special, other.special[shared:]]),
        offsets=_join_offsets(merged, other, shared, segment),
        relevance=_add_values(merged.relevance, weight * other.relevance, shared),
        layers=_add_layers(merged.layers, other.layers, weight, shared),
        heads=_add_heads(merged.heads, other.heads, weight),
    )


def _add_heads(heads: Array | None, added: Array | None, weight: float) -> Array | None:
    if heads is None or added is None:
        return None
    return heads + weight * added


def _count_shared(explanation: Explanation) -> int:
    """Return how many tokens come before the choice: the context, and special tokens around it."""
    for index, offset in enumerate(explanation.offsets or ()):
        if offset[0] == 1 and not explanation.special[index]:
            return index
    raise BadInput("Choices can be contrasted only by a tokenizer that tells where its tokens stand: use a fast one.")


def _add_values(values: Array, added: Array, shared: int) -> Array:
    """Add values of shared tokens, on the last axis, and append the others."""
    # Copied, because explanations own their arrays.
    summed = values.copy()
    summed[..., :shared] += added[..., :shared]
    return np.concatenate([summed, added[..., shared:]], axis=-1)


def _add_layers(layers: Array | None, added: Array | None, weight: float, shared: int) -> Array | None:
    if layers is None or added is None:
        return None
    return _add_values(layers, weight * added, shared)


def _join_offsets(merged: Explanation, other: Explanation, shared: int, segment: int) -> tuple[tuple[int, ...], ...]:
    added = [(segment, *offset[-2:]) for offset in (other.offsets or ())[shared:]]
    return (*(merged.offsets or ()), *added)
