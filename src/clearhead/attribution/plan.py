"""Memory and time of a request, estimated before it is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.attribution.batch import can_go_blockwise, explain_batch, rows_per_batch
from clearhead.attribution.method import MethodSpec
from clearhead.attribution.windows import is_too_long, window_logits, windows_of
from clearhead.engine.memory import UNKNOWN, MemoryEstimate, estimate_memory, estimate_seconds
from clearhead.model.inputs import Encoded, collate, encode
from clearhead.model.model import Model

Batch = Sequence[Encoded]


@dataclass(frozen=True)
class PlannedBatches:
    """The batches of a request: those of inputs that fit the model, and those of the windows of longer texts."""

    lengths: list[int]
    whole: list[Batch]
    windows: list[Batch]

    @property
    def all(self) -> list[Batch]:
        return [*self.whole, *self.windows]


def estimate_request(
    model: Model,
    inputs: Sequence[Any],
    methods: Sequence[MethodSpec],
    *,
    batch_size: int | None = None,
    overflow: str = "error",
) -> dict[str, Any]:
    """Return the sizes of a request, the memory of its largest batch, and its time from three batches that are run."""
    planned = plan_batches(model, inputs, batch_size=batch_size, overflow=overflow)
    batches = planned.all
    memory = estimate_memory(model, collate(model, max(batches, key=_count_tokens)))
    return {
        "model": model.name,
        "device": str(model.device),
        "methods": [spec.text for spec in methods],
        "inputs": len(planned.lengths),
        "windows": sum(len(batch) for batch in planned.windows),
        "pictures": model.takes_images,
        "longest": planned.lengths[-1],
        "median": planned.lengths[len(planned.lengths) // 2],
        "batch": max(len(batch) for batch in batches),
        "memory_whole": memory.whole,
        "memory_blockwise": memory.blockwise,
        "memory_free": None if memory.free == UNKNOWN else memory.free,
        "way": _choose_strategy(model, memory, methods),
        "seconds": _estimate_time(model, planned, methods),
    }


def plan_batches(
    model: Model, inputs: Sequence[Any], *, batch_size: int | None = None, overflow: str = "error"
) -> PlannedBatches:
    """Encode the inputs and cut them, sorted by length, into batches."""
    size = rows_per_batch(model, batch_size)
    encoded = [encode(model, raw, overflow=overflow) for raw in inputs]
    encoded.sort(key=lambda row: row.length)
    whole = [row for row in encoded if not is_too_long(model, row)]
    windows: list[Batch] = []
    # Sorted by length, so what is too long comes last. Windows of different texts do not share batches.
    for row in encoded[len(whole) :]:
        windows += _cut(windows_of(model, row), size)
    return PlannedBatches([row.length for row in encoded], _cut(whole, size), windows)


def _cut(rows: Batch, size: int) -> list[Batch]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _choose_strategy(model: Model, memory: MemoryEstimate, methods: Sequence[MethodSpec]) -> str:
    """Return how a batch of this size is traced."""
    if memory.fits:
        return "whole"
    if can_go_blockwise(model, methods):
        return "block by block"
    return "in smaller batches"


def _estimate_time(model: Model, planned: PlannedBatches, methods: Sequence[MethodSpec]) -> float:
    """Return the seconds to explain all batches; the class of a text in windows takes a forward pass of its own."""
    batches = planned.all

    def explain(index: int) -> None:
        batch = batches[index]
        explain_batch(model, collate(model, batch), [None] * len(batch), methods)

    def predict(index: int) -> None:
        window_logits(model, planned.windows[index])

    seconds = estimate_seconds(explain, [_count_tokens(batch) for batch in batches])
    if planned.windows:
        seconds += estimate_seconds(predict, [_count_tokens(batch) for batch in planned.windows])
    return seconds


def _count_tokens(batch: Batch) -> int:
    """Return the tokens of a batch with its padding; an image, which has no length, counts as one."""
    longest = max(row.length for row in batch)
    return len(batch) * max(1, longest)
