"""The steps of an answer: tokens, probabilities, and the name of what is explained."""

from collections.abc import Sequence

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
    start, end = answer.offsets[index]
    probability = _probability(logits_V, answer.ids[index])
    if foil is None:
        return Step(answer.tokens[index], start, end, probability)
    (name,) = model.processor.convert_ids_to_tokens([foil])
    return Step(answer.tokens[index], start, end, probability, name, _probability(logits_V, foil))


def _probability(logits_V: Tensor, token: int) -> float:
    scores_V = logits_V.double()
    return float((scores_V[token] - scores_V.logsumexp(-1)).exp())


def label_answer(model: Model, answer: Answer, target: AnswerTarget) -> str:
    """Return the explained words of an answer, and those it is contrasted with."""
    label = name_steps(answer.text, _place_steps(answer), target.steps)
    if target.foil is None:
        return label
    return f"{label} rather than {model.processor.decode(list(target.foil)).strip()}"


def _place_steps(answer: Answer) -> Sequence[Step]:
    pairs = zip(answer.tokens, answer.offsets, strict=True)
    return [Step(token, start, end, 0.0) for token, (start, end) in pairs]
