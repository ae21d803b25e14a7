"""From scores to explanations: what the model says of each input of a trace is fetched once for all methods."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from clearhead.explanation import Array, Explanation
from clearhead.inputs import Item
from clearhead.method import Scores, Spelling
from clearhead.target import Target, probability, shares_of
from clearhead.trace import Trace


@dataclass(frozen=True)
class Said:
    """What the explanations of one input by every method have in common."""

    mask_T: Array
    special_T: Array
    common: dict[str, Any]
    diagnostics: dict[str, Any]


_SAID: WeakKeyDictionary[Trace, list[Said]] = WeakKeyDictionary()


def explain_trace(trace: Trace, spelling: Spelling) -> list[Explanation]:
    """One method on a trace that is there already: an explanation per input."""
    return explanations(trace, spelling, spelling(trace))


def explanations(trace: Trace, spelling: Spelling, found: Scores) -> list[Explanation]:
    """The explanations that a method's scores come to."""
    scores = found.cpu()
    relevance_BT, layers_BLT, pixels_BPQ = map(_array, (scores.relevance_BT, scores.layers_BLT, scores.pixels_BPQ))
    if trace not in _SAID:
        _SAID[trace] = _said(trace)
    return [
        Explanation(
            relevance=relevance_BT[place][one.mask_T],
            layers=None if layers_BLT is None else layers_BLT[place][:, one.mask_T],
            pixels=None if pixels_BPQ is None else pixels_BPQ[place].copy(),
            method=spelling.method.name,
            options={**spelling.method.options, **spelling.options},
            diagnostics={**one.diagnostics, **(scores.diagnostics[place] if scores.diagnostics else {})},
            special=one.special_T.copy(),
            **one.common,
        )
        for place, one in enumerate(_SAID[trace])
    ]


def _said(trace: Trace) -> list[Said]:
    mask_BT, logits, labels = trace.mask_BT.cpu().numpy(), trace.logits.cpu(), trace.model.labels
    probabilities, predictions = _probabilities(trace, logits), _predictions(trace, logits, labels)
    precision, grid = str(logits.dtype).removeprefix("torch."), trace.grid if trace.is_image else None
    cells = _image_tokens(trace) if trace.is_image else None
    found = []
    for place, (item, target, score) in enumerate(
        zip(trace.inputs.items, trace.targets, trace.score_B.tolist(), strict=True)
    ):
        tokens, special = cells or (item.tokens, np.array(item.special, dtype=bool))
        common = {
            "tokens": tokens,
            "target": target,
            "label": _label(labels, target, item),
            "text": item.text,
            "offsets": item.offsets,
            "grid": grid,
            "image": item.image,
            "box": item.box,
            "probability": probabilities[place],
            "model": trace.model.name,
        }
        diagnostics = {"score": score, "precision": precision, **predictions[place]}
        found.append(Said(mask_BT[place], special, common, diagnostics))
    return found


def _probabilities(trace: Trace, logits: Tensor) -> list[float | None]:
    """What the model says of each target. Padding cannot hold an answer, so it takes no share of a span's."""
    problem = trace.model.problem
    if logits.dim() == 3:
        real = logits.masked_fill(~trace.mask_BT.cpu()[:, None], -torch.inf)
        return [probability(target, row, problem) for target, row in zip(trace.targets, real, strict=True)]
    if problem == "regression":
        return [None] * len(logits)
    rows = shares_of(logits, problem).tolist()
    return [row[target.number] for row, target in zip(rows, trace.targets, strict=True)]


def _predictions(trace: Trace, logits: Tensor, labels: list[str]) -> list[dict[str, Any]]:
    """What the model itself says, whatever is explained; nothing for spans and regressions."""
    problem = trace.model.problem
    if problem in ("span", "regression", "one-logit"):
        return [{}] * len(logits)
    best, rows = logits.argmax(1).tolist(), shares_of(logits, problem).tolist()
    return [
        {"predicted": labels[number], "predicted_probability": row[number]}
        for number, row in zip(best, rows, strict=True)
    ]


def _array(tensor: Tensor | None) -> Any:
    if tensor is None:
        return None
    return (tensor if tensor.dtype.itemsize >= 4 else tensor.float()).numpy()


def _image_tokens(trace: Trace) -> tuple[tuple[str, ...], Any]:
    rows, columns = trace.grid or (0, 0)
    leading = ["[CLS]", *(f"[REG{place}]" for place in range(1, trace.leading))][: trace.leading]
    cells = [f"patch {row},{column}" for row in range(rows) for column in range(columns)]
    return (*leading, *cells), np.arange(len(leading) + len(cells)) < len(leading)


def _label(labels: list[str], target: Target, item: Item) -> str:
    if target.span is not None:
        return " … ".join(item.tokens[place] for place in target.span if place is not None)
    name = labels[target.number]
    return name if target.versus is None else f"{name} rather than {labels[target.versus]}"  # type: ignore[index]
