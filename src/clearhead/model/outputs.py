"""What a model answers: its logits, and the targets that they resolve to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput, NotFinite, UnsupportedModel
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.target import Target, TargetLike, resolve_span, resolve_target, shift_span


def finite_logits(model: Model, output: Any) -> Tensor:
    """The head's output, which holds numbers only."""
    logits = extract_logits(model, output)
    check_finite(model, logits)
    return logits


def extract_logits(model: Model, output: Any) -> Tensor:
    """The head's output: (B,C), or start and end stacked to (B,2,T)."""
    logits = _plain(model, output)
    if not isinstance(logits, Tensor) or logits.dim() != (3 if model.problem == "span" else 2):
        raise UnsupportedModel(
            f"{model.name} does not return one row of logits per input. Clearhead explains classifiers, regressions "
            "and answer spans; token classification and generation are not covered."
        )
    if logits.dim() == 2 and model.classes not in (0, logits.shape[1]):
        raise UnsupportedModel(
            f"{model.name} answers with {logits.shape[1]} numbers, but its config names {model.classes} classes: "
            "set config.id2label to the classes of its head."
        )
    return logits


def _plain(model: Model, output: Any) -> Any:
    """What the network returned, by name, or as a tuple where its config asks for tuples."""
    if model.problem == "span":
        start, end = output[:2] if isinstance(output, tuple) else (output.start_logits, output.end_logits)
        return torch.stack([start, end], 1)
    if isinstance(output, tuple) and output:
        return output[0]
    return output if isinstance(output, Tensor) else getattr(output, "logits", None)


def check_finite(model: Model, logits: Tensor) -> None:
    if not torch.isfinite(logits).all():
        raise NotFinite(f"{model.name} returned NaN or infinite logits: check the weights, dtype and input.")


def resolve_targets(
    model: Model, inputs: Inputs, logits: Tensor, target: TargetLike | Sequence[TargetLike]
) -> tuple[Target, ...]:
    """One target per row of the logits, which are on the CPU, from one for all or a list."""
    rows = len(logits)
    wanted: list[Any] = list(target) if isinstance(target, list | tuple) else [target] * rows
    if len(wanted) != rows:
        raise BadInput(f"{len(wanted)} targets were given for {rows} inputs: give one for all, or one for each.")
    if logits.dim() == 3:
        return tuple(_span(*row) for row in zip(wanted, logits, _real(inputs, logits), strict=True))
    best = logits.argmax(1).tolist()
    distinct = {(id(one), predicted): one for one, predicted in zip(wanted, best, strict=True)}
    known = {key: resolve_target(one, key[1], model.labels) for key, one in distinct.items()}
    return tuple(known[id(one), predicted] for one, predicted in zip(wanted, best, strict=True))


def _span(target: TargetLike, logits_2T: Tensor, real_T: Tensor) -> Target:
    """Positions are given among the real tokens, since padding can hold no answer, and kept among all of the row."""
    places = real_T.nonzero().flatten()
    return shift_span(resolve_span(target, logits_2T[:, places]), dict(enumerate(places.tolist())))


def _real(inputs: Inputs, logits_B2T: Tensor) -> Tensor:
    mask = inputs.tensors.get("attention_mask")
    return torch.ones_like(logits_B2T[:, 0], dtype=torch.bool) if mask is None else mask.bool().cpu()


def target_probability(target: Target, logits: Tensor, problem: str) -> float | None:
    """What the model itself says of the target: None for a regression."""
    scores = logits.double()
    if target.span is not None:
        chosen: list[Any] = [
            scores[place].softmax(-1)[position] for place, position in enumerate(target.span) if position is not None
        ]
        return float(torch.stack(chosen).prod())
    if problem == "regression":
        return None
    return float(class_probabilities(logits, problem)[target.number])


def class_probabilities(logits: Tensor, problem: str) -> Tensor:
    """Probabilities of all classes, in float64."""
    scores = logits.double()
    if problem != "single-label":
        return scores.sigmoid()
    # Written out: torch's softmax wakes every thread of the processor, which then get in the way of other work.
    odds = (scores - scores.amax(-1, keepdim=True)).exp()
    return odds / odds.sum(-1, keepdim=True)
