"""What the explanations of one input share: tokens, target, label, probability and diagnostics of the outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from clearhead.model.coverage import describe_coverage, find_unknown_token
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


@dataclass(frozen=True)
class AnswerContext:
    """The name of what is explained of a language model's answer, and the fields that only its explanation has."""

    label: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


NO_ANSWER = AnswerContext()


@dataclass(frozen=True, eq=False)
class BatchContext(Sequence[InputContext]):
    """The contexts of all inputs of a batch, as columns; that of an input is made when it is read."""

    model: str
    labels: Sequence[str]
    items: Sequence[Item]
    targets: Sequence[Target]
    real: "RealTokens"
    probabilities: Array | None
    outputs: "OutputColumns"
    answers: Sequence["AnswerContext"]
    image: "ImageTokens | None"
    unknown_token: str | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: Any) -> Any:
        item = self.items[row]
        real = self.real.find_runs(row)
        tokens, special = _text_tokens(item) if self.image is None else self.image.tokens
        target = _shift_to_real(self.targets[row], real)
        answer = self.answers[row] if self.answers else NO_ANSWER
        return InputContext(
            item=item,
            tokens=tokens,
            special=special,
            target=target,
            label=self._label(target, tokens, item) if answer.label is None else answer.label,
            grid=None if self.image is None else self.image.grid,
            probability=_read_number(self.probabilities, row),
            model=self.model,
            diagnostics={
                **self.outputs.describe(row),
                **_describe_focus(item),
                **describe_coverage(item, self.unknown_token),
            },
            real=real,
            answer_fields=answer.fields,
        )

    def _label(self, target: Target, tokens: Sequence[str], item: Item) -> str:
        label = _label_target(self.labels, target, tokens)
        if item.focus is None:
            return label
        return f"{label} {item.focus.name}"


def _describe_focus(item: Item) -> dict[str, Any]:
    """Return which part of the output is explained, as plain data; nothing if there is one output only."""
    if item.focus is None:
        return {}
    described = {name: value for name, value in asdict(item.focus).items() if value}
    return {"focus": described}


@dataclass(frozen=True)
class RealTokens:
    """Where the tokens of each input stand: their number, or a mask if not all stand at the beginning."""

    length_B: Array
    mask_BT: Array | None

    @classmethod
    def of(cls, real_BT: Array) -> "RealTokens":
        # Nothing real comes after padding.
        is_right_padded = bool((real_BT[:, :-1] >= real_BT[:, 1:]).all())
        return cls(real_BT.sum(1), None if is_right_padded else real_BT)

    def find_runs(self, row: int) -> list[slice]:
        """Return the runs of real tokens of an input: usually one, at the beginning or at the end."""
        if self.mask_BT is None:
            return [slice(0, int(self.length_B[row]))]
        return _find_runs(self.mask_BT[row])


@dataclass(frozen=True)
class ImageTokens:
    """The tokens that all images of a batch have."""

    tokens: Tokens
    grid: tuple[int, int] | None


@dataclass(frozen=True)
class OutputColumns:
    """The explained score and the prediction of each input of a batch; no prediction where there are no classes."""

    precision: str
    score_B: Array
    labels: Sequence[str]
    best_B: Array | None
    probability_B: Array | None

    def describe(self, row: int) -> dict[str, Any]:
        described = {"score": self.score_B[row].item(), "precision": self.precision}
        if self.best_B is None or self.probability_B is None:
            return described
        predicted = self.labels[self.best_B[row]]
        return {**described, "predicted": predicted, "predicted_probability": self.probability_B[row].item()}


def _read_number(values: Array | None, row: int) -> Any:
    return None if values is None else values[row].item()


# Contexts are kept as long as their trace, since the page runs one method after the other on a cached trace.
_CONTEXTS: WeakKeyDictionary[Trace, BatchContext] = WeakKeyDictionary()


def describe_inputs(trace: Trace) -> BatchContext:
    """Return what the explanations of each input share; computed once for a trace."""
    if trace not in _CONTEXTS:
        _CONTEXTS[trace] = _make_context(trace)
    return _CONTEXTS[trace]


def _make_context(trace: Trace) -> BatchContext:
    return BatchContext(
        model=trace.model.name,
        labels=trace.model.labels,
        items=trace.inputs.items,
        targets=trace.targets,
        real=RealTokens.of(trace.real_BT.numpy()),
        probabilities=_target_probabilities(trace),
        outputs=_describe_outputs(trace),
        answers=_describe_answers(trace),
        image=_name_image(trace),
        unknown_token=find_unknown_token(trace.model),
    )


def _describe_answers(trace: Trace) -> list[AnswerContext]:
    """Return what only explanations of answers have; nothing for classes."""
    # At once: the logits of an answer, as wide as the vocabulary, are not kept.
    if not trace.model.writes:
        return []
    return [_describe_answer(trace, row) for row in range(len(trace.targets))]


def _describe_answer(trace: Trace, row: int) -> AnswerContext:
    item = trace.inputs.items[row]
    target = trace.targets[row]
    if item.answer is None or not isinstance(target, AnswerTarget):
        return NO_ANSWER
    steps = describe_steps(trace.model, item.answer, target, trace.forward.host_output[row])
    fields = {"steps": steps, "explained": target.steps, "source_spans": item.sources, "picture_spans": item.pictures}
    described = {"answer": item.answer.text, "prompt_length": item.answer.start, **fields}
    described["has_encoder"] = trace.model.is_encoder_decoder
    return AnswerContext(label_answer(trace.model, item.answer, target), described)


def _describe_outputs(trace: Trace) -> OutputColumns:
    """Return the explained score, the precision and the prediction of each input."""
    logits = trace.forward.host_output
    score_B = explained_score(trace.targets, logits).double().numpy()
    # "float32", not "torch.float32": explanations are read without torch too.
    precision = str(logits.dtype).removeprefix("torch.")
    return OutputColumns(precision, score_B, *_predict(trace.model, logits))


def _find_runs(real_T: Array) -> list[slice]:
    # The difference of booleans is True at both ends of a run.
    edges_T = np.diff(real_T, prepend=False, append=False)
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


def _target_probabilities(trace: Trace) -> Array | None:
    """Return the probability of each input's target; None for regressions, whose value is no probability."""
    problem = trace.model.problem
    if problem == "regression":
        return None
    if problem == "span":
        return _score_each(trace, _mask_padding(trace))
    if problem == "answer":
        return _score_each(trace, trace.forward.host_output)
    return _class_target_probabilities(trace)


def _score_each(trace: Trace, logits: Tensor) -> Array:
    """Return the probability of each input's target, one input after the other."""
    pairs = zip(trace.targets, logits, strict=True)
    return np.array([target_probability(target, own_logits, trace.model.problem) for target, own_logits in pairs])


def _mask_padding(trace: Trace) -> Tensor:
    # Padding cannot hold an answer, so it takes no share of the probability.
    return trace.forward.host_output.masked_fill(~trace.real_BT[:, None], -torch.inf)


def _class_target_probabilities(trace: Trace) -> Array:
    # Probabilities of all inputs at once: a call per input would dominate the time of large batches.
    rows = class_probabilities(trace.forward.host_output, trace.model.problem)
    numbers = [target.number for target in trace.targets]
    return _pick_columns(rows, torch.tensor(numbers))


def _pick_columns(rows_BC: Tensor, column_B: Tensor) -> Array:
    picked: Array = rows_BC.gather(1, column_B[:, None])[:, 0].numpy()
    return picked


def describe_predictions(model: Model, logits: Tensor) -> list[dict[str, Any]]:
    """Return the predicted label of each input and its probability; nothing for spans and regressions."""
    labels, best_B, probability_B = _predict(model, logits)
    if best_B is None or probability_B is None:
        return [{}] * len(logits)
    pairs = zip(best_B.tolist(), probability_B.tolist(), strict=True)
    return [{"predicted": labels[best], "predicted_probability": probability} for best, probability in pairs]


def _predict(model: Model, logits: Tensor) -> tuple[list[str], Array | None, Array | None]:
    """Return the labels, and for each input the best of them and its probability."""
    if model.problem in WITHOUT_CLASSES:
        return [], None, None
    best_B = logits.argmax(1)
    return model.labels, best_B.numpy(), _pick_columns(class_probabilities(logits, model.problem), best_B)


def _name_image(trace: Trace) -> ImageTokens | None:
    if not trace.is_image:
        return None
    return ImageTokens(_image_tokens(trace), trace.grid)


def _text_tokens(item: Item) -> Tokens:
    return item.tokens, np.array(item.special, dtype=bool)


def _image_tokens(trace: Trace) -> Tokens:
    """Name the tokens of an image and mark those that are no patches: class and register tokens, and boxes."""
    patches = list(_patch_tokens(*trace.grid or (0, 0)))
    leading = _leading_tokens(trace.leading)
    boxes = list(map("[BOX{}]".format, range(trace.patch_grid.trailing)))
    special = [True] * len(leading) + [False] * len(patches) + [True] * len(boxes)
    return (*leading, *patches, *boxes), np.array(special)


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
    label = _find_label(labels, target.number)
    if not isinstance(target.versus, int):
        return label
    return f"{label} rather than {_find_label(labels, target.versus)}"


def _find_label(labels: Sequence[str], number: int) -> str:
    # A head may have more outputs than its config has labels.
    return labels[number] if number < len(labels) else f"LABEL_{number}"


def _label_span(span: Sequence[int | None], tokens: Sequence[str]) -> str:
    # An end of the span that is not explained has no position.
    return " … ".join(tokens[position] for position in span if position is not None)
