"""From a network's output to logits, probabilities and resolved targets."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput, NotFinite, UnsupportedModel
from clearhead.model.batches import Inputs, Item
from clearhead.model.masked_words import index_words
from clearhead.model.model import Model
from clearhead.model.target import (
    AnswerTarget,
    Span,
    Target,
    TargetLike,
    list_targets,
    resolve_span,
    resolve_target,
    shift_span,
    span_sides,
)


def finite_logits(model: Model, output: Any) -> Tensor:
    """Return the logits; raise NotFinite if any is NaN or infinite."""
    logits = extract_logits(model, output)
    check_finite(model, logits)
    return logits


def extract_logits(model: Model, output: Any) -> Tensor:
    """Return the logits of a network's output: (B,C), (B,2,T) for answer spans, (B,N,V) for generated answers."""
    if model.problem == "span":
        return _require_axes(model, _stack_span_logits(output), 3)
    if model.writes:
        return _require_axes(model, output, 3)
    logits = _require_axes(model, _find_logits(output), 2)
    _validate_class_count(model, logits.shape[1])
    return logits


def _require_axes(model: Model, logits: Any, axes: int) -> Tensor:
    if not isinstance(logits, Tensor) or logits.dim() != axes:
        raise UnsupportedModel(
            f"{model.name} does not return one row of logits per input. Clearhead explains classifiers, regressions, "
            "answer spans, labels of words, masked words and the answers of language models."
        )
    return logits


def check_finite(model: Model, logits: Tensor) -> None:
    """Raise NotFinite if any logit is NaN or infinite."""
    if not torch.isfinite(logits).all():
        raise NotFinite(f"{model.name} returned NaN or infinite logits: check the weights, dtype and input.")


def class_probabilities(logits: Tensor, problem: str) -> Tensor:
    """Return the probabilities of all classes in float64: softmax for single-label problems, else sigmoid.

    The classes are the last axis of the logits.
    """
    scores = logits.double()
    if problem != "single-label":
        return scores.sigmoid()
    return _softmax(scores)


def _softmax(scores: Tensor) -> Tensor:
    # Not torch.softmax: it wakes every CPU thread of torch, which then compete with other work.
    odds = (scores - scores.amax(-1, keepdim=True)).exp()
    return odds / odds.sum(-1, keepdim=True)


def target_probability(target: Target, logits: Tensor, problem: str) -> float | None:
    """Return the probability of a resolved target from the logits (C or 2,T) of one input; None for a regression."""
    # Start and end each have a softmax over tokens, whatever the problem of the config is.
    if target.span is not None:
        return _span_probability(target.span, logits)
    if isinstance(target, AnswerTarget):
        return float(answer_log_probability(target, logits).exp())
    if problem == "regression":
        return None
    return float(class_probabilities(logits, problem)[target.number])


def answer_log_probability(target: AnswerTarget, logits_NV: Tensor) -> Tensor:
    """Return the log-probability of the explained tokens of an answer, in float64."""
    # Step by step: a whole distribution over the vocabulary in float64 would be large.
    terms = []
    for step, token in zip(target.steps, target.tokens, strict=True):
        scores_V = logits_NV[step].double()
        terms.append(scores_V[token] - scores_V.logsumexp(-1))
    return torch.stack(terms).sum()


def resolve_targets(
    model: Model, inputs: Inputs, logits: Tensor, target: TargetLike | Sequence[TargetLike]
) -> tuple[Target, ...]:
    """Return one resolved target per row of the logits (on the CPU), from one target for all or a list."""
    targets = list_targets(target, len(logits))
    if model.writes:
        return _resolve_answers(inputs, targets)
    if logits.dim() == 3:
        return _resolve_spans(inputs, logits, targets)
    return _resolve_classes(model, logits, targets)


def _validate_class_count(model: Model, count: int) -> None:
    # A config without class names counts 0 classes: nothing to compare.
    if model.classes not in (0, count):
        raise UnsupportedModel(
            f"{model.name} returns {count} logits, but its config names {model.classes} classes: "
            "set config.id2label to the classes of its head."
        )


def _find_logits(output: Any) -> Any:
    """Return the logits of a tuple, tensor or ModelOutput; None if there are none."""
    # Networks with config.return_dict=False return tuples, which start with the logits.
    if isinstance(output, tuple) and output:
        return output[0]
    if isinstance(output, Tensor):
        return output
    return getattr(output, "logits", None)


def _stack_span_logits(output: Any) -> Tensor:
    return torch.stack(_find_span_logits(output), 1)


def _find_span_logits(output: Any) -> Any:
    if isinstance(output, tuple):
        return output[:2]
    return output.start_logits, output.end_logits


def _span_probability(span: Span, logits_2T: Tensor) -> float:
    """Return P(start) · P(end), or the one of them that the span names."""
    scores_2T = logits_2T.double()
    probabilities = [scores_2T[side].softmax(-1)[position] for side, position in span_sides(span)]
    return float(torch.stack(probabilities).prod())


def _resolve_classes(model: Model, logits_BC: Tensor, targets: Sequence[TargetLike]) -> tuple[Target, ...]:
    labels = model.labels
    if model.names_words:
        targets = [index_words(model, target) for target in targets]
    # Most batches share one target, so each combination of target and prediction is resolved once. Keyed by identity,
    # because a target need not be hashable before it is validated.
    cache: dict[tuple[int, int], Target] = {}
    resolved = []
    for target, predicted in zip(targets, logits_BC.argmax(1).tolist(), strict=True):
        key = (id(target), predicted)
        if key not in cache:
            cache[key] = resolve_target(target, predicted, labels)
        resolved.append(cache[key])
    return tuple(resolved)


def _resolve_answers(inputs: Inputs, targets: Sequence[TargetLike]) -> tuple[Target, ...]:
    return tuple(_resolve_answer(item, target) for item, target in zip(inputs.items, targets, strict=True))


def _resolve_answer(item: Item, target: TargetLike) -> Target:
    """Return a target of an answer as it is; None stands for the whole answer."""
    if isinstance(target, AnswerTarget):
        return target
    if target is not None or item.answer is None:
        raise BadInput("A language model has no classes: say what to explain by 'answer', 'versus' and 'focus'.")
    return AnswerTarget(steps=tuple(range(len(item.answer.ids))), tokens=item.answer.ids)


def _resolve_spans(inputs: Inputs, logits_B2T: Tensor, targets: Sequence[TargetLike]) -> tuple[Target, ...]:
    rows = zip(targets, logits_B2T, _token_mask(inputs, logits_B2T), strict=True)
    return tuple(_resolve_row_span(target, logits_2T, mask_T) for target, logits_2T, mask_T in rows)


def _resolve_row_span(target: TargetLike, logits_2T: Tensor, mask_T: Tensor) -> Target:
    """Resolve a span given among the real tokens, since padding holds no answer, to positions in the padded row."""
    positions = mask_T.nonzero().flatten()
    span = resolve_span(target, logits_2T[:, positions])
    return shift_span(span, dict(enumerate(positions.tolist())))


def _token_mask(inputs: Inputs, logits_B2T: Tensor) -> Tensor:
    """Return a mask (B,T) on the CPU that is True at real tokens."""
    mask = inputs.tensors.get("attention_mask")
    if mask is None:
        return torch.ones_like(logits_B2T[:, 0], dtype=torch.bool)
    return mask.bool().cpu()
