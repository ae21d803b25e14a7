"""Memory and time of a request, estimated before it is run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clearhead.attribution.answers import explain_steps
from clearhead.attribution.batch import (
    AttributionRequest,
    can_go_blockwise,
    explain_batch,
    read_gradients_only,
)
from clearhead.attribution.batch_sizes import cut_rows
from clearhead.attribution.method import MethodSpec
from clearhead.attribution.plan_time import Batch, count_tokens, estimate_seconds
from clearhead.attribution.windows import batch_windows, is_too_long, window_logits, windows_of
from clearhead.engine.memory import UNKNOWN, ConfigSizes, MemoryEstimate, estimate_memory, read_sizes
from clearhead.model.answer_inputs import DEFAULT_NEW_TOKENS, add_answer, encode_prompt, tokenise_answer
from clearhead.model.inputs import Encoded, collate, encode_all
from clearhead.model.model import Model
from clearhead.model.sources import find_sources
from clearhead.model.target import AnswerTarget

ATTENTION_COST = 2.0
"""How much longer a product of attention takes than one of a linear layer, whose kernels are better."""


@dataclass(frozen=True)
class PlannedBatches:
    """The batches of a request: those of inputs that fit the model, and those of the windows of longer texts.

    `lengths` are those of all inputs, sorted.
    """

    lengths: list[int]
    whole: list[Batch]
    windows: list[Batch]

    @property
    def all(self) -> list[Batch]:
        return [*self.whole, *self.windows]

    @property
    def largest(self) -> Batch:
        """The batch with the most tokens, padding included."""
        return max(self.all, key=count_tokens)

    @property
    def median_length(self) -> int:
        # The lengths are sorted.
        return self.lengths[len(self.lengths) // 2]


def estimate_request(
    model: Model,
    inputs: Sequence[Any],
    methods: Sequence[MethodSpec],
    *,
    batch_size: int | None = None,
    overflow: str = "error",
    answer: str | None = None,
    matrix: bool = False,
) -> dict[str, Any]:
    """Return the sizes of a request, the memory of its largest batch, and its time, extrapolated from short runs.

    A language model is not run to write answers: without an `answer` it stands for one of the usual length. With
    `matrix` every step of the answers is explained.
    """
    planned = plan_batches(model, inputs, batch_size=batch_size, overflow=overflow, answer=answer)
    largest = collate(model, planned.largest)
    memory = estimate_memory(model, largest, gradients_only=read_gradients_only(methods))
    return {
        "model": model.name,
        "device": str(model.device),
        "methods": [spec.text for spec in methods],
        "inputs": len(planned.lengths),
        "windows": sum(map(len, planned.windows)),
        "pictures": model.takes_images,
        "longest": planned.lengths[-1],
        "median": planned.median_length,
        "batch": max(map(len, planned.all)),
        **_describe_memory(memory),
        # By the estimate of the loop, which always counts attention maps.
        "way": _choose_strategy(model, estimate_memory(model, largest), methods),
        "seconds": _estimate_time(model, planned, methods, matrix=matrix),
    }


def _describe_memory(memory: MemoryEstimate) -> dict[str, int | None]:
    is_known = memory.free != UNKNOWN
    return {
        "memory_whole": memory.whole,
        "memory_blockwise": memory.blockwise,
        "memory_free": memory.free if is_known else None,
    }


def plan_batches(
    model: Model,
    inputs: Sequence[Any],
    *,
    batch_size: int | None = None,
    overflow: str = "error",
    answer: str | None = None,
) -> PlannedBatches:
    """Encode the inputs and cut them, sorted by length, into batches."""
    if model.writes:
        encoded = [_encode_with_answer(model, prompt, answer) for prompt in inputs]
    else:
        encoded = list(encode_all(model, inputs, overflow=overflow))
    encoded.sort(key=lambda row: row.length)
    lengths = [row.length for row in encoded]
    short = [row for row in encoded if not is_too_long(model, row)]
    # Sorted by length, so what is too long comes last.
    windows = _batch_windows(model, encoded[len(short) :], batch_size)
    whole: list[Batch] = [short[rows] for rows in cut_rows(model, lengths[: len(short)], batch_size)]
    return PlannedBatches(lengths, whole, windows)


def _encode_with_answer(model: Model, prompt: Any, answer: str | None) -> Encoded:
    """Return a prompt with its answer, or with as many tokens as a generated answer has at most."""
    encoded = encode_prompt(model, prompt)
    row = add_answer(model, encoded, _choose_tokens(model, encoded, answer))
    return replace(row, item=replace(row.item, sources=find_sources(encoded.item, prompt, None)))


def _choose_tokens(model: Model, prompt: Encoded, answer: str | None) -> list[int]:
    if answer is None:
        tokens: list[int] = prompt.values["input_ids"][:1] * DEFAULT_NEW_TOKENS
        return tokens
    return tokenise_answer(model, prompt, answer)


def _make_target(row: Encoded) -> AnswerTarget | None:
    """Return the whole answer of a prompt as the target; None for other inputs, whose prediction is explained."""
    answer = row.item.answer
    if answer is None:
        return None
    return AnswerTarget(steps=tuple(range(len(answer.ids))), tokens=answer.ids)


def _batch_windows(model: Model, encoded: Sequence[Encoded], batch_size: int | None) -> list[Batch]:
    batches: list[Batch] = []
    # Windows of different texts do not share batches.
    for row in encoded:
        batches += batch_windows(model, windows_of(model, row), batch_size)
    return batches


def _choose_strategy(model: Model, memory: MemoryEstimate, methods: Sequence[MethodSpec]) -> str:
    """Return how a batch of this size is traced."""
    if memory.fits:
        return "whole"
    if can_go_blockwise(model, methods):
        return "block by block"
    return "in smaller batches"


def _measure_load(sizes: ConfigSizes, tokens: int) -> float:
    """Return the work per token of an input so long, attention included, relative to that of the linear layers."""
    # Per token and block 4 width² and, with a gate, 3 width × wide products in linear layers, 2 tokens × width in maps.
    return 1 + ATTENTION_COST * 2 * tokens / max(1, 4 * sizes.width + 3 * sizes.wide)


def _estimate_time(model: Model, planned: PlannedBatches, methods: Sequence[MethodSpec], *, matrix: bool) -> float:
    """Return the seconds to explain all batches; the class of a text in windows takes a forward pass of its own."""

    def explain(batch: Batch) -> None:
        explain_batch(model, collate(model, batch), [_make_target(row) for row in batch], methods)

    def explain_every_step(batch: Batch) -> None:
        for row in batch:
            explain_steps(AttributionRequest(model, methods, [_make_target(row)]), 0, row)

    def predict(batch: Batch) -> None:
        window_logits(model, batch)

    work = explain_every_step if matrix and model.writes else explain
    seconds = estimate_seconds(work, planned.all, partial(_measure_load, read_sizes(model.config)))
    if planned.windows:
        seconds += estimate_seconds(predict, planned.windows)
    return seconds
