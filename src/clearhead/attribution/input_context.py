"""What the explanations of one input share: tokens, target, label, probability and diagnostics of the outputs."""

from collections.abc import Iterator, Mapping, Sequence
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
from clearhead.engine.trace import Trace
from clearhead.explanation import Explanation
from clearhead.model.inputs import Item
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, target_probability
from clearhead.model.target import AnswerTarget, Target, explained_score, shift_span

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


# Contexts are kept as long as their trace, since the page runs one method after the other on a cached trace.
_CONTEXTS: WeakKeyDictionary[Trace, list[InputContext]] = WeakKeyDictionary()


def describe_inputs(trace: Trace) -> list[InputContext]:
    """Return what the explanations of each input share; computed once for a trace."""
    if trace not in _CONTEXTS:
        _CONTEXTS[trace] = _make_contexts(trace)
    return _CONTEXTS[trace]


def _make_contexts(trace: Trace) -> list[InputContext]:
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
    # Words of an answer, where there is one; its targets have no class.
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
    # "float32", not "torch.float32": explanations are read without torch too.
    precision = str(logits.dtype).removeprefix("torch.")
    predictions = describe_predictions(trace.model, logits)
    return list(map(partial(_describe_output, precision), score_B.tolist(), predictions))


def _describe_output(precision: str, score: float, prediction: Mapping[str, Any]) -> dict[str, Any]:
    return {"score": score, "precision": precision, **prediction}


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
    return {position: number for number, position in enumerate(_list_positions(real))}


def _list_positions(real: list[slice]) -> Iterator[int]:
    """Yield the position in the padded row of each real token."""
    for run in real:
        yield from range(run.start, run.stop)


def _target_probabilities(trace: Trace) -> list[float | None]:
    problem = trace.model.problem
    # The value of a regression is no probability.
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
    return _label_class(labels, target)


def _label_class(labels: Sequence[str], target: Target) -> str:
    label = labels[target.number]
    if not isinstance(target.versus, int):
        return label
    return f"{label} rather than {labels[target.versus]}"


def _label_span(span: Sequence[int | None], tokens: Sequence[str]) -> str:
    # An end of the span that is not explained has no position.
    return " … ".join(tokens[position] for position in span if position is not None)
