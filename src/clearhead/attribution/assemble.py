"""Explanation objects from the attributions of a trace."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.attribution.input_context import BatchContext, InputContext, describe_inputs
from clearhead.attribution.method import Attribution, MethodSpec
from clearhead.engine.retrace import FLOAT64
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel, UnsupportedOperation
from clearhead.explanation import Explanation

REFUSALS = (UnsupportedModel, UnsupportedOperation)
"""Errors by which a method refuses a model."""


@dataclass(frozen=True)
class ExplanationBuilder:
    """The explanations of a batch by one method, while their numbers may still be on their way from the GPU."""

    spec: MethodSpec
    contexts: BatchContext
    copies: dict[str, HostCopy]
    diagnostics: Sequence[Mapping[str, Any]]

    def build(self) -> "ExplanationRows":
        """Wait for the numbers and return one explanation per input."""
        # Copied, because memory that the GPU writes to is scarce.
        arrays = {name: copy.wait().numpy().copy() for name, copy in self.copies.items()}
        return ExplanationRows(self.spec, self.contexts, arrays, _make_columns(self.diagnostics))


@dataclass(frozen=True, eq=False)
class ExplanationRows(Sequence[Explanation]):
    """The explanations of a batch by one method: arrays of the whole batch, from which each is made when it is read.

    An explanation that is still in use is returned again, so that items of a list are the same every time.
    """

    spec: MethodSpec
    contexts: BatchContext
    arrays: Mapping[str, Array]
    diagnostics: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
    _in_use: WeakValueDictionary[int, Explanation] = field(default_factory=WeakValueDictionary)

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = range(len(self))[row]
        explanation = self._in_use.get(number)
        if explanation is None:
            explanation = self._make(number)
            self._in_use[number] = explanation
        return explanation

    def _make(self, row: int) -> Explanation:
        rows = {name: values[row] for name, values in self.arrays.items()}
        return _build_explanation(self.spec, self.contexts[row], rows, _read_row(self.diagnostics, row))


def _make_columns(diagnostics: Sequence[Mapping[str, Any]]) -> Any:
    """Return diagnostics of inputs by name, if all inputs have the same: a dict per input takes much more memory."""
    if not diagnostics:
        return {}
    names = diagnostics[0].keys()
    if any(entry.keys() != names for entry in diagnostics):
        return diagnostics
    return {name: _make_column([entry[name] for entry in diagnostics]) for name in names}


def _make_column(values: list[Any]) -> Sequence[Any]:
    # Arrays return the same numbers, in a quarter of the memory.
    if set(map(type, values)) == {float}:
        return array("d", values)
    return values


def _read_row(diagnostics: Any, row: int) -> Mapping[str, Any]:
    if isinstance(diagnostics, Mapping):
        return {name: column[row] for name, column in diagnostics.items()}
    entry: Mapping[str, Any] = diagnostics[row]
    return entry


def _build_explanation(
    spec: MethodSpec, context: InputContext, rows: Mapping[str, Array], diagnostics: Mapping[str, Any]
) -> Explanation:
    item = context.item
    # Arrays and dicts are copied: explanations are their owner's to change, and the rows are views of a whole batch.
    return context.explanation_type(
        tokens=context.tokens,
        relevance=_select_real(rows["relevance_BT"], context.real),
        special=context.special.copy(),
        target=context.target,
        label=context.label,
        method=spec.method.name,
        text=item.text,
        offsets=item.offsets,
        layers=_copy_layers(rows.get("layers_BLT"), context.real),
        heads=_copy(rows.get("heads_BLH")),
        grid=context.grid,
        pixels=_copy(rows.get("pixels_BPQ")),
        image=item.image,
        box=item.box,
        probability=context.probability,
        options=spec.all_options,
        model=context.model,
        diagnostics={**context.diagnostics, **diagnostics, **spec.diagnostics, **_describe_precision(spec)},
        changed_options=spec.changed_options,
        **context.answer_fields,
    )


def _describe_precision(spec: MethodSpec) -> dict[str, str]:
    """Return the precision of a method that was not computed in that of the trace."""
    return {"precision": FLOAT64} if spec.rounding == FLOAT64 else {}


def _copy_layers(layers_LT: Array | None, real: list[slice]) -> Array | None:
    if layers_LT is None:
        return None
    return _select_real(layers_LT, real)


def _copy(values: Array | None) -> Array | None:
    if values is None:
        return None
    return values.copy()


def _select_real(values: Array, real: list[slice]) -> Array:
    """Copy the numbers of the real tokens, which stand on the last axis."""
    if len(real) == 1:
        return values[..., real[0]].copy()
    return np.concatenate([values[..., run] for run in real], axis=-1)


def explain_trace(trace: Trace, spec: MethodSpec) -> list[Explanation]:
    """Run one method on an existing trace and return one explanation per input."""
    (builder,) = start_explanations(trace, [spec])
    return _finish(builder)


def explain_attribution(trace: Trace, spec: MethodSpec, attribution: Attribution) -> list[Explanation]:
    """Return one explanation per input from what a method has computed already."""
    return _finish(_make_builder(trace, _start_copies(spec, attribution), None))


def _finish(builder: ExplanationBuilder | None) -> list[Explanation]:
    # Without a dict of refusals, a method that refuses the model has raised.
    assert builder is not None
    return list(builder.build())


def start_explanations(
    trace: Trace, specs: Sequence[MethodSpec], refused: dict[str, str] | None = None
) -> list[ExplanationBuilder | None]:
    """Run methods on a trace and return their builders, which no longer need the trace.

    A method that refuses the model raises; with `refused`, its reason is added there and its builder is None.
    """
    # A caller's inference mode would make tensors that autograd cannot use.
    with torch.inference_mode(False):
        started = [_start_method(trace, spec, refused) for spec in specs]
        # Every method is launched before contexts are computed, so the GPU works during this Python code.
        return [_make_builder(trace, method, refused) for method in started]


@dataclass(frozen=True)
class _StartedMethod:
    """A method that was run on a trace; without attribution if it refused the model."""

    spec: MethodSpec
    attribution: Attribution | None = None
    copies: dict[str, HostCopy] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(copy.copy.shape) for name, copy in self.copies.items()}


def _start_method(trace: Trace, spec: MethodSpec, refused: dict[str, str] | None) -> _StartedMethod:
    with collect_refusal(spec, refused):
        # Copied at once, before the kernels of other methods stand between these numbers and their copy.
        return _start_copies(spec, spec(trace))
    return _StartedMethod(spec)


def _start_copies(spec: MethodSpec, attribution: Attribution) -> _StartedMethod:
    return _StartedMethod(spec, attribution, attribution.start_host_copies())


@contextmanager
def collect_refusal(spec: MethodSpec, refused: dict[str, str] | None) -> Iterator[None]:
    """Note in `refused` why a method refuses the model; without it let the error pass."""
    try:
        yield
    except REFUSALS as error:
        if refused is None:
            raise
        refused[spec.text] = str(error)


def _make_builder(trace: Trace, started: _StartedMethod, refused: dict[str, str] | None) -> ExplanationBuilder | None:
    """Return a builder for the numbers of a method, or None if it refused the model or has other tokens."""
    if started.attribution is None:
        return None
    diagnostics = started.attribution.diagnostics
    with collect_refusal(started.spec, refused):
        _check_shapes(trace, started)
        return ExplanationBuilder(started.spec, describe_inputs(trace), started.copies, diagnostics)
    return None


def _check_shapes(trace: Trace, started: _StartedMethod) -> None:
    # Shapes are known before the numbers have arrived. Tokens first, because that error says what to do.
    shapes = started.shapes
    trace.require_tokens(shapes["relevance_BT"][-1])
    for name, shape in shapes.items():
        _check_shape(trace, started.spec, name, shape)


def _check_shape(trace: Trace, spec: MethodSpec, name: str, shape: tuple[int, ...]) -> None:
    """Raise UnsupportedModel unless a tensor has the axes in its name's suffix: B inputs, T tokens."""
    inputs, tokens = trace.real_BT.shape
    axes = name.rpartition("_")[2]
    if not _has_axes(shape, axes, {"B": inputs, "T": tokens}):
        raise UnsupportedModel(
            f"'{spec.text}' answered with {name} of shape {shape} for {inputs} inputs of {tokens} tokens. "
            "B stands for inputs, L for layers, H for heads, T for tokens, P and Q for pixels."
        )


def _has_axes(shape: tuple[int, ...], axes: str, sizes: Mapping[str, int]) -> bool:
    """Return whether a shape has one number per axis, and the sizes that are prescribed."""
    # Axes without a prescribed size may have any.
    return len(shape) == len(axes) and tuple(map(sizes.get, axes, shape)) == shape
