"""From scores to explanations: what the model says of each input of a trace is fetched once for all methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from clearhead.explanation import Array, Explanation, like
from clearhead.inputs import Item
from clearhead.method import Scores, Spelling
from clearhead.target import Target, probability, score_of, seeds, shares_of
from clearhead.trace import Trace


@dataclass(frozen=True)
class Said:
    """What the explanations of one input by every method have in common, and where its real tokens stand."""

    bare: Explanation
    real: slice | Array


_SAID: WeakKeyDictionary[Trace, list[Said]] = WeakKeyDictionary()


def explain_trace(trace: Trace, spelling: Spelling) -> list[Explanation]:
    """One method on a trace that is there already: an explanation per input."""
    return explaining(trace, [spelling])()[0]


def explaining(trace: Trace, spellings: Sequence[Spelling]) -> Callable[[], list[list[Explanation]]]:
    """Several methods, one after the other: answers with the way to wait for an explanation per method and input.

    A GPU is given everything to do; meanwhile the explanations are made, and their numbers are entered at the end. The
    trace is not needed any more by then.
    """
    scores = [spelling(trace) for spelling in spellings]
    coming = [one.fetched() for one in scores]
    sheets = [_sheet(trace, *pair) for pair in zip(spellings, scores, strict=True)]

    def finish() -> list[list[Explanation]]:
        for sheet, arrived in zip(sheets, coming, strict=True):
            sheet.fill(arrived())
        return [sheet.explanations for sheet in sheets]

    return finish


@dataclass(frozen=True)
class Sheet:
    """The explanations of one method, and the arrays of which they show a row each."""

    said: list[Said]
    explanations: list[Explanation]
    arrays: dict[str, Array]

    def fill(self, scores: Scores) -> None:
        """Enters the numbers, which have arrived on the CPU."""
        for name, array in self.arrays.items():
            array[...] = _array(getattr(scores, name))
        for place, (one, explanation) in enumerate(zip(self.said, self.explanations, strict=True)):
            if not isinstance(one.real, slice):  # what is picked from a row with gaps is a copy
                explanation.relevance[:] = self.arrays["relevance_BT"][place, one.real]
                if explanation.layers is not None:
                    explanation.layers[:] = self.arrays["layers_BLT"][place][:, one.real]
            if scores.diagnostics:
                explanation.diagnostics.update(scores.diagnostics[place])  # type: ignore[attr-defined]


def _sheet(trace: Trace, spelling: Spelling, scores: Scores) -> Sheet:
    trace.require_tokens(scores.relevance_BT.shape[1])
    said, arrays = _said(trace), _rooms(scores)
    nothing = [None] * len(said)
    columns = [arrays.get(name, nothing) for name in NUMBERS]
    explanations = [
        like(
            one.bare,
            relevance=tokens_T[one.real],
            layers=None if layers_LT is None else layers_LT[:, one.real],
            pixels=pixels_PQ,
            method=spelling.method.name,
            options={**spelling.method.options, **spelling.options},
            diagnostics=dict(one.bare.diagnostics),
            special=one.bare.special.copy(),
        )
        for one, tokens_T, layers_LT, pixels_PQ in zip(said, *columns, strict=True)
    ]
    return Sheet(said, explanations, arrays)


NUMBERS = ("relevance_BT", "layers_BLT", "pixels_BPQ")


def _rooms(scores: Scores) -> dict[str, Array]:
    """Arrays for the scores that are still on their way."""
    present = {name: values for name in NUMBERS if (values := getattr(scores, name)) is not None}
    return {
        name: _array(torch.empty(values.shape, dtype=values.dtype, device="cpu")) for name, values in present.items()
    }


def _said(trace: Trace) -> list[Said]:
    if trace not in _SAID:
        _SAID[trace] = _all_said(trace)
    return _SAID[trace]


def _all_said(trace: Trace) -> list[Said]:
    logits, labels = trace.forward.said, trace.model.labels
    scores = score_of(seeds(trace.targets, logits), logits).tolist()
    probabilities, predictions = _probabilities(trace, logits), _predictions(trace, logits, labels)
    precision, grid = str(logits.dtype).removeprefix("torch."), trace.grid if trace.is_image else None
    cells = _image_tokens(trace) if trace.is_image else None
    found = []
    rows = zip(_places(trace.real_BT.numpy()), trace.inputs.items, trace.targets, scores, strict=True)
    for place, (real, item, target, score) in enumerate(rows):
        tokens, special = cells or (item.tokens, np.array(item.special, dtype=bool))
        bare = Explanation(
            tokens=tokens,
            relevance=np.empty(0),
            special=special,
            target=target,
            label=_label(labels, target, item),
            method="",
            text=item.text,
            offsets=item.offsets,
            grid=grid,
            image=item.image,
            box=item.box,
            probability=probabilities[place],
            model=trace.model.name,
            diagnostics={"score": score, "precision": precision, **predictions[place]},
        )
        found.append(Said(bare, real))
    return found


def _places(mask_BT: Array) -> list[slice | Array]:
    """Where the real tokens of each input stand: most often in a row, at the beginning or at the end."""
    starts, ends = mask_BT.argmax(1), mask_BT.shape[1] - mask_BT[:, ::-1].argmax(1)
    in_a_row = (ends - starts == mask_BT.sum(1)).tolist()
    rows = zip(mask_BT, in_a_row, starts.tolist(), ends.tolist(), strict=True)
    return [slice(start, end) if simple else mask_T for mask_T, simple, start, end in rows]


def _probabilities(trace: Trace, logits: Tensor) -> list[float | None]:
    """What the model says of each target. Padding cannot hold an answer, so it takes no share of a span's."""
    problem = trace.model.problem
    if logits.dim() == 3:
        real = logits.masked_fill(~trace.real_BT[:, None], -torch.inf)
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
