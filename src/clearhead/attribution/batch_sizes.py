"""Which inputs share a batch: as many of similar length as keep the device busy and fit into memory."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.engine.memory import count_fitting_rows, free_bytes, image_tokens
from clearhead.lazy import Selection
from clearhead.model.inputs import EncodedRows, Inputs, longest_text
from clearhead.model.model import Model

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 131072}
"""From here on, larger batches do not explain more tokens per second; on a CPU they would leave its caches."""
MAX_ANSWERS = 16
"""Answers that share a batch: the logits of each of their tokens are as wide as the vocabulary."""
MEMORY_SHARE = 0.5
"""Share of the free memory that a batch may take by estimate: methods need some besides the trace."""


@dataclass(frozen=True)
class Batch:
    """Inputs that go through the network together, and their indices among all inputs of a run."""

    indices: Sequence[int]
    inputs: Inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, rows: Sequence[int]) -> "Batch":
        indices = [self.indices[row] for row in rows]
        return Batch(indices, select_rows(self.inputs, list(rows)))

    def halve(self) -> tuple["Batch", "Batch"]:
        rows = range(len(self))
        half = len(self) // 2
        return self.select(rows[:half]), self.select(rows[half:])


def select_rows(inputs: Inputs, rows: list[int]) -> Inputs:
    """Return some rows of a batch, or the batch itself if these are all."""
    # Indexing copies, also on the GPU.
    if _are_all_rows(inputs, rows):
        return inputs
    return Inputs(_index_tensors(inputs, rows), Selection(inputs.items, rows))


def _are_all_rows(inputs: Inputs, rows: list[int]) -> bool:
    return rows == list(range(len(inputs)))


def _index_tensors(inputs: Inputs, rows: list[int]) -> dict[str, torch.Tensor]:
    return {name: tensor[rows] for name, tensor in inputs.tensors.items()}


def make_batches(
    model: Model, encoded: EncodedRows, batch_size: int | None = None, indices: Sequence[int] | None = None
) -> Iterator[Batch]:
    """Yield batches of inputs of similar length, the shortest first; `indices` chooses some of the inputs."""
    chosen = _list_indices(encoded, indices)
    lengths = encoded.lengths[chosen]
    # Sorted, because the longest input of a batch decides how much padding the others get.
    order = np.argsort(lengths, kind="stable")
    for rows in cut_rows(model, lengths[order], batch_size):
        numbers = chosen[order[rows]].tolist()
        yield Batch(numbers, encoded.collate(model, numbers))


def _list_indices(encoded: EncodedRows, indices: Sequence[int] | None) -> Array:
    """Return the chosen indices as an array, by default those of all inputs."""
    if indices is None:
        return np.arange(len(encoded))
    return np.asarray(indices, dtype=np.int64)


def split_inputs(model: Model, inputs: Inputs, batch_size: int | None = None) -> Iterator[Batch]:
    """Yield batches of the rows of tensors, in order."""
    rows = range(len(inputs))
    batch = Batch(rows, inputs)
    for selected in cut_rows(model, np.full(len(rows), longest_text(inputs)), batch_size):
        yield batch.select(rows[selected])


def cut_rows(model: Model, lengths: Any, batch_size: int | None = None) -> Iterator[slice]:
    """Yield slices of consecutive inputs that share a batch, given their lengths in ascending order."""
    limit = _limit_rows(model, batch_size)
    budget = _make_budget(model, batch_size)
    start = 0
    while start < len(lengths):
        count = _count_rows(lengths[start : start + limit], budget)
        yield slice(start, start + count)
        start += count


def _make_budget(model: Model, batch_size: int | None) -> "BatchBudget | None":
    """Return the budget of a batch, None if the user has chosen its size."""
    if batch_size is None:
        return BatchBudget.of(model)
    return None


def _count_rows(lengths: Any, budget: "BatchBudget | None") -> int:
    if budget is None:
        return len(lengths)
    return budget.count_rows(lengths)


def _limit_rows(model: Model, batch_size: int | None) -> int:
    """Return how many inputs may share a batch whatever their length: one if the model cannot pad."""
    if not model.can_pad:
        return 1
    if batch_size is None and model.writes:
        return MAX_ANSWERS
    return batch_size or sys.maxsize


@dataclass(frozen=True)
class BatchBudget:
    """The tokens that keep a device busy, and the memory for them."""

    model: Model
    tokens: int
    free: int

    @classmethod
    def of(cls, model: Model) -> "BatchBudget":
        return cls(model, _choose_tokens(model.device.type), free_bytes(model.device))

    def count_rows(self, lengths: Any) -> int:
        """Return how many of the first inputs share a batch, at least one."""
        widths = self._measure_widths(lengths)
        # Padded to the longest, which is the last.
        padded = np.arange(1, len(widths) + 1) * widths
        count = max(1, int(np.searchsorted(padded, self.tokens, side="right")))
        fitting = count_fitting_rows(self.model, int(widths[count - 1]), int(MEMORY_SHARE * self.free))
        return max(1, min(count, fitting))

    def _measure_widths(self, lengths: Any) -> Array:
        """Return the tokens of each input; at least one, also where an image does not tell."""
        widths: Array = np.asarray(lengths)
        if self.model.takes_images:
            widths = np.full(len(widths), image_tokens(getattr(self.model.network, "config", None)))
        return widths.clip(min=1)


def _choose_tokens(device: str) -> int:
    """Return how many tokens keep a type of device busy."""
    if device == "cpu":
        return _choose_cpu_tokens()
    # Other accelerators get the CPU's size, which is small enough for any of them.
    return TOKENS_PER_BATCH.get(device, TOKENS_PER_BATCH["cpu"])


def _choose_cpu_tokens() -> int:
    return TOKENS_PER_BATCH["cpu"] * max(1, torch.get_num_threads() // 4)
