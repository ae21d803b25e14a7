"""Explanation objects from the attributions of a trace."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.attribution.answer_steps import describe_steps, label_answer
from clearhead.attribution.method import Attribution, MethodSpec
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel, UnsupportedOperation
from clearhead.explanation import Explanation
from clearhead.model.inputs import Item
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, target_probability
from clearhead.model.target import AnswerTarget, Target, explained_score, shift_span

REFUSALS = (UnsupportedModel, UnsupportedOperation)
"""Errors by which a method refuses a model."""
WITHOUT_CLASSES = ("span", "regression", "one-logit", "answer")
"""Problems whose outputs have no class that is predicted."""

Tokens = tuple[tuple[str, ...], Array]
"""The names of an input's tokens, and which of them are special."""


@dataclass(frozen=True)
class InputContext:
    """What the explanations of one input share, whatever the method; `real` are the positions of its own tokens."""

    item: Item
    tokens: tuple[str, ...]
    special: Array
    target: Target
    label: str
    grid: tuple[int, int] | None
    probability: float | None
    model: str
    diagnostics: Mapping[str, Any]
    real: list[slice]
    answer_fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def explanation_type(self) -> type[Explanation]:
        return AnswerExplanation if self.answer_fields else Explanation


@dataclass(frozen=True)
class ExplanationBuilder:
    """The explanations of a batch by one method, while their numbers may still be on their way from the GPU."""

    spec: MethodSpec
    contexts: list[InputContext]
    copies: dict[str, HostCopy]
    diagnostics: Sequence[Mapping[str, Any]]

    def build(self) -> list[Explanation]:
        """Wait for the numbers and construct one explanation per input."""
        arrays = {name: copy.wait().numpy() for name, copy in self.copies.items()}
        explanations = []
        for row, (context, diagnostics) in enumerate(self._pair_diagnostics()):
            rows = {name: array[row] for name, array in arrays.items()}
            explanations.append(_build_explanation(self.spec, context, rows, diagnostics))
        return explanations

    def _pair_diagnostics(self) -> Iterator[tuple[InputContext, Mapping[str, Any]]]:
        # Most methods report nothing about single inputs.
        diagnostics = self.diagnostics or [{}] * len(self.contexts)
        return zip(self.contexts, diagnostics, strict=True)


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
        diagnostics={**context.diagnostics, **diagnostics},
        changed_options=spec.changed_options,
        **context.answer_fields,
    )


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
    # Concatenation copies as well.
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
    return builder.build()


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
        return ExplanationBuilder(started.spec, _contexts(trace), started.copies, diagnostics)
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
    if len(shape) != len(axes):
        return False
    return all(sizes.get(axis, size) == size for axis, size in zip(axes, shape, strict=True))


# Contexts are kept as long as their trace, since the page runs one method after the other on a cached trace.
_CONTEXTS: WeakKeyDictionary[Trace, list[InputContext]] = WeakKeyDictionary()


def _contexts(trace: Trace) -> list[InputContext]:
    if trace not in _CONTEXTS:
        _CONTEXTS[trace] = _describe_inputs(trace)
    return _CONTEXTS[trace]


def _describe_inputs(trace: Trace) -> list[InputContext]:
    probabilities = _target_probabilities(trace)
    diagnostics = _describe_outputs(trace)
    runs = _find_runs(trace.real_BT.numpy())
    contexts = []
    for row, (tokens, special) in enumerate(_name_tokens(trace)):
        target = _shift_to_real(trace.targets[row], runs[row])
        context = InputContext(
            item=trace.inputs.items[row],
            tokens=tokens,
            special=special,
            target=target,
            label=_label_row(trace, row, target, tokens),
            grid=trace.grid if trace.is_image else None,
            probability=probabilities[row],
            model=trace.model.name,
            diagnostics=diagnostics[row],
            real=runs[row],
            answer_fields=_describe_answer(trace, row),
        )
        contexts.append(context)
    return contexts


def _label_row(trace: Trace, row: int, target: Target, tokens: Sequence[str]) -> str:
    answer = trace.inputs.items[row].answer
    if answer is not None and isinstance(target, AnswerTarget):
        return label_answer(trace.model, answer, target)
    return _label_target(trace.model.labels, target, tokens)


def _describe_answer(trace: Trace, row: int) -> dict[str, Any]:
    """Return the fields that only the explanation of an answer has."""
    item = trace.inputs.items[row]
    target = trace.targets[row]
    if item.answer is None or not isinstance(target, AnswerTarget):
        return {}
    steps = describe_steps(trace.model, item.answer, target, trace.forward.host_output[row])
    fields = {"steps": steps, "explained": target.steps, "source_spans": item.sources}
    return {"answer": item.answer.text, "prompt_length": item.answer.start, **fields}


def _describe_outputs(trace: Trace) -> list[dict[str, Any]]:
    """Return the explained score, the precision and the prediction of each input."""
    logits = trace.forward.host_output
    score_B = explained_score(trace.targets, logits)
    precision = str(logits.dtype).removeprefix("torch.")
    pairs = zip(score_B.tolist(), describe_predictions(trace.model, logits), strict=True)
    return [{"score": score, "precision": precision, **prediction} for score, prediction in pairs]


def _find_runs(mask_BT: Array) -> list[list[slice]]:
    """Return the runs of real tokens of each input: usually one, at the beginning or at the end."""
    # The difference of booleans is True at both ends of a run.
    edges_BT = np.diff(mask_BT, prepend=False, append=False)
    return list(map(_pair_edges, edges_BT))


def _pair_edges(edges_T: Array) -> list[slice]:
    """Return the slices between the first edge and the second, the third and the fourth, and so on."""
    return list(starmap(slice, np.flatnonzero(edges_T).reshape(-1, 2).tolist()))


def _shift_to_real(target: Target, real: list[slice]) -> Target:
    """Count the positions of a span among the real tokens instead of the padded row."""
    if target.span is None:
        return target
    return shift_span(target, _number_positions(real))


def _number_positions(real: list[slice]) -> dict[int, int]:
    """Return the number of each real token by its position in the padded row."""
    numbers: dict[int, int] = {}
    for run in real:
        for position in range(run.start, run.stop):
            numbers[position] = len(numbers)
    return numbers


def _target_probabilities(trace: Trace) -> list[float | None]:
    problem = trace.model.problem
    if problem == "regression":
        return [None] * len(trace.targets)
    if problem == "span":
        return _score_each(trace, _mask_padding(trace))
    if problem == "answer":
        return _score_each(trace, trace.forward.host_output)
    return _class_target_probabilities(trace)


def _score_each(trace: Trace, logits: Tensor) -> list[float | None]:
    """Return the probability of each input's target, one input after the other."""
    pairs = zip(trace.targets, logits, strict=True)
    return [target_probability(target, own_logits, trace.model.problem) for target, own_logits in pairs]


def _mask_padding(trace: Trace) -> Tensor:
    # Padding cannot hold an answer, so it takes no share of the probability.
    return trace.forward.host_output.masked_fill(~trace.real_BT[:, None], -torch.inf)


def _class_target_probabilities(trace: Trace) -> list[float | None]:
    # Probabilities of all inputs at once: a call per input would dominate the time of large batches.
    rows = class_probabilities(trace.forward.host_output, trace.model.problem).tolist()
    return [row[target.number] for row, target in zip(rows, trace.targets, strict=True)]


def describe_predictions(model: Model, logits: Tensor) -> list[dict[str, Any]]:
    """Return the predicted label of each input and its probability; nothing for spans and regressions."""
    if model.problem in WITHOUT_CLASSES:
        return [{}] * len(logits)
    best = logits.argmax(1).tolist()
    rows = class_probabilities(logits, model.problem).tolist()
    return list(map(partial(_describe_class, model.labels), best, rows))


def _describe_class(labels: Sequence[str], index: int, probabilities: Sequence[float]) -> dict[str, Any]:
    return {"predicted": labels[index], "predicted_probability": probabilities[index]}


def _name_tokens(trace: Trace) -> list[Tokens]:
    if trace.is_image:
        # All images of a batch have the same patches.
        return [_image_tokens(trace)] * len(trace.inputs)
    return [_text_tokens(item) for item in trace.inputs.items]


def _text_tokens(item: Item) -> Tokens:
    return item.tokens, np.array(item.special, dtype=bool)


def _image_tokens(trace: Trace) -> Tokens:
    """Name the tokens of an image and mark the class and register tokens, which come before the patches."""
    tokens = [*_leading_tokens(trace.leading), *_patch_tokens(*trace.grid or (0, 0))]
    return tuple(tokens), np.arange(len(tokens)) < trace.leading


def _patch_tokens(rows: int, columns: int) -> Iterator[str]:
    for row in range(rows):
        for column in range(columns):
            yield f"patch {row},{column}"


def _leading_tokens(count: int) -> list[str]:
    names = ["[CLS]", *map("[REG{}]".format, range(1, count))]
    # Some vision models have no class token: then nothing comes before the patches.
    return names[:count]


def _label_target(labels: Sequence[str], target: Target, tokens: Sequence[str]) -> str:
    """Return the name of what is explained: tokens of an answer, a class, or a class rather than another."""
    if target.span is not None:
        return _label_span(target.span, tokens)
    label = labels[target.number]
    if not isinstance(target.versus, int):
        return label
    return f"{label} rather than {labels[target.versus]}"


def _label_span(span: Sequence[int | None], tokens: Sequence[str]) -> str:
    # An end of the span that is not explained has no position.
    return " … ".join(tokens[position] for position in span if position is not None)
