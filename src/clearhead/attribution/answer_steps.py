"""The steps of an answer: tokens, probabilities, and the name of what is explained."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from clearhead.answer_explanation import Step, name_steps
from clearhead.model.batches import Answer
from clearhead.model.model import Model
from clearhead.model.target import AnswerTarget


def describe_steps(model: Model, answer: Answer, target: AnswerTarget, logits_NV: Tensor) -> tuple[Step, ...]:
    """Return every step of an answer with its probability; explained ones also with their foil's."""
    foils = dict(zip(target.steps, target.foil or (), strict=False))
    return tuple(
        _describe_step(model, answer, index, logits_NV[index], foils.get(index)) for index in range(len(answer.ids))
    )


def _describe_step(model: Model, answer: Answer, index: int, logits_V: Tensor, foil: int | None) -> Step:
    # In float64, as probabilities are computed.
    scores_V = logits_V.double()
    step = Step(answer.tokens[index], *answer.offsets[index], _probability(scores_V, answer.ids[index]))
    if foil is None:
        return step
    return _add_foil(model, step, foil, _probability(scores_V, foil))


def _add_foil(model: Model, step: Step, foil: int, probability: float) -> Step:
    (name,) = model.processor.convert_ids_to_tokens([foil])
    return replace(step, versus=name, versus_probability=probability)


def _probability(scores_V: Tensor, token: int) -> float:
    return float((scores_V[token] - scores_V.logsumexp(-1)).exp())


def label_answer(model: Model, answer: Answer, target: AnswerTarget) -> str:
    """Return the explained words of an answer, and those it is contrasted with."""
    label = name_steps(answer.text, _place_steps(answer), target.steps)
    if target.foil is None:
        return label
    return f"{label} rather than {_decode_foil(model, target.foil)}"


def _decode_foil(model: Model, foil: Sequence[int]) -> str:
    text: str = model.processor.decode(list(foil))
    return text.strip()


def _place_steps(answer: Answer) -> Sequence[Step]:
    return list(map(_place_step, answer.tokens, answer.offsets))


def _place_step(token: str, offsets: tuple[int, int]) -> Step:
    # A name needs no probabilities.
    return Step(token, *offsets, 0.0)
