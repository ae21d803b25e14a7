"""Masks of all examples stacked to rows, digests by which equal rows are found, and what builds inputs from rows."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Protocol

import torch
from torch import Tensor

ROWS_PER_CHUNK = 1024


@dataclass(frozen=True)
class Rows:
    """Masks of all examples stacked (R rows of U features).

    Column 0 of `present_RU` stands for what is never removed; features that an example does not have are present.
    """

    example_R: Tensor
    present_RU: Tensor
    labels_EX: Tensor

    def keep(self, rows: Tensor, device: torch.device) -> Tensor:
        """Return which tokens or pixels of some rows stay (N,X)."""
        return self.present_RU[rows].to(device).gather(1, self._labels(rows, device))

    def _labels(self, rows: Tensor, device: torch.device) -> Tensor:
        # Labels of an image are large: each example's are moved to the device once, not once per row.
        examples, inverse_N = torch.unique(self.example_R[rows], return_inverse=True)
        # Kept as small numbers, but `gather` takes long ones.
        return self.labels_EX[examples].to(device).long()[inverse_N.to(device)]


def chunk_rows(count: int) -> list[Tensor]:
    """Return the row numbers 0 … count − 1 in chunks, so that what is built of a chunk fits into memory."""
    return list(torch.split(torch.arange(count), ROWS_PER_CHUNK))


def select_rows(tensors: Mapping[str, Tensor], example_N: Tensor) -> dict[str, Tensor]:
    """Return the rows of some examples, an example once per row of masks."""
    return {name: tensor[example_N] for name, tensor in tensors.items()}


def move_tensors(tensors: Mapping[str, Tensor], device: torch.device | str) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def digest_arrays(arrays: Iterable[Any]) -> bytes:
    """Return a digest of the bytes of these arrays."""
    content = b"".join(map(methodcaller("tobytes"), arrays))
    # 16 bytes: short keys for many rows, and a collision is out of reach.
    return hashlib.blake2b(content, digest_size=16).digest()


class Replacement(Protocol):
    """Builds the network's input from rows of masks."""

    @property
    def removes_attention(self) -> bool:
        """Return whether removed features are removed from attention."""

    def lengths(self, rows: Rows) -> Tensor:
        """Return how many tokens each row costs."""

    def keys(self, rows: Rows, chosen: Tensor, lengths_N: Tensor) -> list[bytes]:
        """Return a digest per row, equal for equal inputs of the network."""

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """Return the network's input for some rows, no wider than the longest of them."""

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        """Return the logits in a shape that all batches share."""
