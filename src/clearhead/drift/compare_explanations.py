"""Two explanations of one input, by two models: what changed unit by unit, and in a sentence."""

from dataclasses import dataclass

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Example
from clearhead.drift.agreement import align_shares, compare_reasons
from clearhead.drift.reasons import extract_reasons
from clearhead.drift.verdict import DEFAULT_EXAMPLE_BOUND, SAME_SHIFT
from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.model_diff import Agreement, Reasons, Span

MAX_NAME = 40


@dataclass(frozen=True, eq=False)
class InputDiff:
    """How the reasons of two models for one input differ.

    `first_U` and `second_U` are the shares of the units that both have: the words at `spans`, or the patches of `grid`.
    """

    agreement: Agreement
    kind: str
    spans: tuple[Span, ...]
    grid: tuple[int, int] | None
    first_U: Array
    second_U: Array
    sentence: str

    @property
    def change_U(self) -> Array:
        return self.second_U - self.first_U


def compare_explanations(first: Explanation, second: Explanation) -> InputDiff:
    """Compare two explanations of the same input by the same method."""
    _require_same_question(first, second)
    pair = _extract(first), _extract(second)
    shares = align_shares(*pair, pair[0].shares, pair[1].shares)
    agreement = compare_reasons(*pair)
    sentence = _write_sentence((first, second), agreement.shift, _name_most(*pair, *shares))
    return InputDiff(agreement, pair[0].kind, _find_common(*pair), _choose_grid(*pair), *shares, sentence)


def _extract(explanation: Explanation) -> Reasons:
    # Images have no text.
    source = explanation.text if explanation.image is None else explanation.image
    return extract_reasons(explanation, Example("input", source), ())


def _require_same_question(first: Explanation, second: Explanation) -> None:
    if _differ_in_method(first, second):
        raise BadInput(
            f"One explanation is by {first.method}, the other by {second.method}, or their options differ: explain "
            "both models by the same method."
        )


def _differ_in_method(first: Explanation, second: Explanation) -> bool:
    return first.method != second.method or dict(first.options) != dict(second.options)


def _find_common(first: Reasons, second: Reasons) -> tuple[Span, ...]:
    common = set(second.spans)
    return tuple(span for span in first.spans if span in common)


def _choose_grid(first: Reasons, second: Reasons) -> tuple[int, int] | None:
    """Return the coarser grid, on which patches are compared."""
    # Only pictures have one.
    if first.grid is None or second.grid is None:
        return None
    return min(first.grid, second.grid, key=lambda grid: grid[0] * grid[1])


def _name_most(first: Reasons, second: Reasons, first_U: Array, second_U: Array) -> str:
    """Name the word that moved most; empty for patches and tokens, which have no names."""
    spans = _find_common(first, second)
    if not spans:
        return ""
    change_U = second_U - first_U
    most = int(np.abs(change_U).argmax())
    return f", most on {_quote(_read_word(first, spans[most]))} ({change_U[most]:+.0%})"


def _read_word(reasons: Reasons, span: Span) -> str:
    return reasons.words[reasons.spans.index(span)]


def _write_sentence(pair: tuple[Explanation, Explanation], shift: float, most: str) -> str:
    moved = f"{shift:.0%} of the relevance moved"
    # Of reasons that are the same, the largest change is rounding.
    if shift > SAME_SHIFT:
        moved += most
    return f"{_compare_predictions(*pair)}{_name_reasons(*pair, _judge_shift(shift))}: {moved}."


def _judge_shift(shift: float) -> str:
    """Say how far reasons moved, by the bounds that stand in for noise where none was measured."""
    if shift <= SAME_SHIFT:
        return "the same"
    if shift <= DEFAULT_EXAMPLE_BOUND:
        return "similar"
    return "other"


def _compare_predictions(first: Explanation, second: Explanation) -> str:
    name, other = name_prediction(first), name_prediction(second)
    if name == other:
        return f"Both {_choose_verb(first)} {_quote(name)}"
    return f"They {_choose_verb(first)} different things, {_quote(name)} and {_quote(other)}"


def _choose_verb(explanation: Explanation) -> str:
    return "write" if isinstance(explanation, AnswerExplanation) else "predict"


def name_prediction(explanation: Explanation) -> str:
    """Return what the model predicts, which may be another class than the one that is explained."""
    if isinstance(explanation, AnswerExplanation):
        return explanation.answer
    return str(explanation.diagnostics.get("predicted", explanation.label))


def _name_reasons(first: Explanation, second: Explanation, adjective: str) -> str:
    # Otherwise the reasons are for a class that somebody chose.
    if _explains_prediction(first) and _explains_prediction(second):
        return f", for {adjective} reasons"
    labels = dict.fromkeys([_quote(first.label), _quote(second.label)])
    return f"; {adjective} reasons for {' and '.join(labels)}"


def _explains_prediction(explanation: Explanation) -> bool:
    return isinstance(explanation, AnswerExplanation) or name_prediction(explanation) == explanation.label


def _quote(name: str) -> str:
    # Answers of language models may be long, and have line breaks.
    line = " ".join(name.split())
    if len(line) > MAX_NAME:
        line = f"{line[:MAX_NAME]}…"
    return f"'{line}'"
