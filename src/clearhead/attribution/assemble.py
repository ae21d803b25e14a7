"""From scores to explanations: what the model says of each input of a trace is fetched once for all methods."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.method import Attribution, MethodSpec
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.explanation import Explanation, copy_with
from clearhead.model.inputs import Item
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, target_probability
from clearhead.model.target import Target, make_seeds, shift_span, target_score


@dataclass(frozen=True)
class InputContext:
    """What the explanations of one input by every method have in common, and where its real tokens stand."""

    bare: Explanation
    real: list[slice]


_SAID: WeakKeyDictionary[Trace, list[InputContext]] = WeakKeyDictionary()


def explain_trace(trace: Trace, spelling: MethodSpec) -> list[Explanation]:
    """One method on a trace that is there already: an explanation per input."""
    return start_explanations(trace, [spelling])()[0]


def start_explanations(trace: Trace, spellings: Sequence[MethodSpec]) -> Callable[[], list[list[Explanation]]]:
    """Several methods, one after the other: answers with the way to wait for an explanation per method and input.

    A GPU is given everything to do; meanwhile the explanations are made, and their numbers are entered at the end. The
    trace is not needed any more by then.
    """
    with torch.inference_mode(False):
        started = [(spelling, scores := spelling(trace), scores.coming()) for spelling in spellings]
        sheets = [_sheet(trace, *one) for one in started]
    return lambda: [sheet.filled() for sheet in sheets]


@dataclass(frozen=True)
class PendingExplanations:
    """The explanations of one method, and what is still to be entered: `moves` into their arrays, and diagnostics."""

    explanations: list[Explanation]
    coming: list[HostCopy]
    moves: list[tuple[Array, Array]]
    diagnostics: Sequence[Mapping[str, Any]]

    def filled(self) -> list[Explanation]:
        for one in self.coming:
            one.wait()
        for room, arrived in self.moves:
            room[...] = arrived
        if self.diagnostics:
            for explanation, found in zip(self.explanations, self.diagnostics, strict=True):
                explanation.diagnostics.update(found)  # type: ignore[attr-defined]
        return self.explanations


def _sheet(trace: Trace, spelling: MethodSpec, scores: Attribution, coming: dict[str, HostCopy]) -> PendingExplanations:
    said, moves = _said(trace), list[tuple[Array, Array]]()
    _check_shapes(trace, spelling, coming)
    tokens_BT, layers_BLT, pixels_BPQ = (_array(coming.get(name)) for name in NUMBERS)
    changed_options = spelling.changed_options
    explanations = [
        copy_with(
            one.bare,
            relevance=_room(tokens_BT[place], one.real, moves),
            layers=None if layers_BLT is None else _room(layers_BLT[place], one.real, moves),
            pixels=None if pixels_BPQ is None else _room(pixels_BPQ[place], [slice(0, pixels_BPQ.shape[-1])], moves),
            method=spelling.method.name,
            options={**spelling.method.options, **spelling.options},
            changed_options=changed_options,
            diagnostics=dict(one.bare.diagnostics),
            special=one.bare.special.copy(),
        )
        for place, one in enumerate(said)
    ]
    return PendingExplanations(explanations, list(coming.values()), moves, scores.diagnostics)


def _array(coming: HostCopy | None) -> Any:
    return None if coming is None else coming.copy.numpy()


def _room(row: Array, real: list[slice], moves: list[tuple[Array, Array]]) -> Array:
    """Room for the real tokens of a row, which are moved there when they have arrived."""
    room, start = np.empty((*row.shape[:-1], sum(run.stop - run.start for run in real)), row.dtype), 0
    for run in real:
        end = start + run.stop - run.start
        moves.append((room[..., start:end], row[..., run]))
        start = end
    return room


NUMBERS = ("relevance_BT", "layers_BLT", "pixels_BPQ")


def _check_shapes(trace: Trace, spelling: MethodSpec, coming: dict[str, HostCopy]) -> None:
    """Refuses what cannot be shared among the inputs and their tokens."""
    trace.require_tokens(coming["relevance_BT"].copy.shape[-1])
    inputs, tokens = trace.real_BT.shape
    sizes = {"B": inputs, "T": tokens}
    for name, shape in ((name, tuple(one.copy.shape)) for name, one in coming.items()):
        expected = [sizes.get(letter) for letter in name.rpartition("_")[2]]
        pairs = zip(expected, shape, strict=False)
        if len(shape) != len(expected) or any(wanted not in (None, size) for wanted, size in pairs):
            raise UnsupportedModel(
                f"'{spelling.text}' answered with {name} of shape {shape} for {inputs} inputs of {tokens} tokens. "
                "B stands for inputs, L for layers, T for tokens, P and Q for pixels."
            )


def _said(trace: Trace) -> list[InputContext]:
    if trace not in _SAID:
        _SAID[trace] = _all_said(trace)
    return _SAID[trace]


def _all_said(trace: Trace) -> list[InputContext]:
    logits, labels = trace.forward.said, trace.model.labels
    scores = target_score(make_seeds(trace.targets, logits), logits).tolist()
    probabilities, predicted = _probabilities(trace, logits), predictions(trace.model, logits)
    precision, grid = str(logits.dtype).removeprefix("torch."), trace.grid if trace.is_image else None
    cells = _image_tokens(trace) if trace.is_image else None
    found = []
    rows = zip(_runs(trace.real_BT.numpy()), trace.inputs.items, trace.targets, scores, strict=True)
    for place, (real, item, target, score) in enumerate(rows):
        tokens, special = cells or (item.tokens, np.array(item.special, dtype=bool))
        target = _among(real, target)
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
            diagnostics={"score": score, "precision": precision, **predicted[place]},
        )
        found.append(InputContext(bare, real))
    return found


def _runs(mask_BT: Array) -> list[list[slice]]:
    """Where the real tokens of each input stand: most often in one run, at the beginning or at the end."""
    edges_BT = np.diff(mask_BT, prepend=False, append=False)
    edges = [np.flatnonzero(row).tolist() for row in edges_BT]
    return [[slice(*pair) for pair in zip(one[::2], one[1::2], strict=True)] for one in edges]


def _among(real: list[slice], target: Target) -> Target:
    """The target with the positions of a span told among the real tokens."""
    if target.span is None:
        return target
    places = [place for run in real for place in range(run.start, run.stop)]
    return shift_span(target, {place: number for number, place in enumerate(places)})


def _probabilities(trace: Trace, logits: Tensor) -> list[float | None]:
    """What the model says of each target. Padding cannot hold an answer, so it takes no share of a span's."""
    problem = trace.model.problem
    if logits.dim() == 3:
        real = logits.masked_fill(~trace.real_BT[:, None], -torch.inf)
        return [target_probability(target, row, problem) for target, row in zip(trace.targets, real, strict=True)]
    if problem == "regression":
        return [None] * len(logits)
    rows = class_probabilities(logits, problem).tolist()
    return [row[target.number] for row, target in zip(rows, trace.targets, strict=True)]


def predictions(model: Model, logits: Tensor) -> list[dict[str, Any]]:
    """What the model itself says, whatever is explained; nothing for spans and regressions."""
    problem, labels = model.problem, model.labels
    if problem in ("span", "regression", "one-logit"):
        return [{}] * len(logits)
    best, rows = logits.argmax(1).tolist(), class_probabilities(logits, problem).tolist()
    return [
        {"predicted": labels[number], "predicted_probability": row[number]}
        for number, row in zip(best, rows, strict=True)
    ]


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
