"""Run a decoder on rows that begin alike, so that the tokens they share are computed once.

A token of a decoder depends on those before it alone. Rows in the order of their tokens are the leaves of a tree of
prefixes from left to right: each starts from the keys and values that it shares with the row before.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clearhead.model.language import ANSWER_POSITIONS, AnswerNetwork, make_prefix_cache
from clearhead.progress import progress

# Rows run one by one, which loses the benefit of batches unless enough is shared and enough is left to compute.
LEAST_SAVED = 0.15
LEAST_NEW_TOKENS = 32
TEXT_TENSORS = {"input_ids", "attention_mask", ANSWER_POSITIONS}


@dataclass(frozen=True, eq=False)
class PrefixRow:
    """The tokens of a row (1,T), and where its answer's tokens are predicted (1,N)."""

    input_ids: Tensor
    answer_positions: Tensor

    @property
    def tokens(self) -> list[int]:
        values: list[int] = self.input_ids[0].tolist()
        return values

    def count_shared(self, before: "PrefixRow") -> int:
        """Return how many tokens need not be computed after another row: those that predict answers do."""
        length = min(self.input_ids.shape[1], before.input_ids.shape[1], int(self.answer_positions.min()))
        is_equal_T = self.input_ids[0, :length] == before.input_ids[0, :length]
        return int(is_equal_T.int().cumprod(0).sum())


@dataclass(frozen=True)
class PrefixOrder:
    """Rows in the order of their tokens: the number of each, and how many tokens it shares with the one before."""

    rows: Sequence[PrefixRow]
    numbers: Sequence[int]
    shared: Sequence[int]

    @property
    def saves_time(self) -> bool:
        """Whether rows one by one are faster than whole rows in batches."""
        total = sum(row.input_ids.shape[1] for row in self.rows)
        new = total - sum(self.shared)
        return new <= (1 - LEAST_SAVED) * total and new >= LEAST_NEW_TOKENS * len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.numbers, self.shared, strict=True)

    def first_shared(self) -> int:
        """Return the number of the first row that shares tokens with another."""
        return next(number for number, shared in self if shared)


def order_rows(rows: Sequence[PrefixRow]) -> PrefixOrder:
    """Sort rows by their tokens."""
    numbers = sorted(range(len(rows)), key=lambda number: rows[number].tokens)
    shared = [0]
    for before, number in pairwise(numbers):
        shared.append(rows[number].count_shared(rows[before]))
    return PrefixOrder(rows, numbers, shared)


def read_row(tensors: dict[str, Tensor]) -> PrefixRow | None:
    """Return one row of a network's input, None if it has more than text, padding, or tokens without attention."""
    if not _is_unpadded_text(tensors):
        return None
    return PrefixRow(tensors["input_ids"], tensors[ANSWER_POSITIONS])


def _is_unpadded_text(tensors: dict[str, Tensor]) -> bool:
    return set(tensors) == TEXT_TENSORS and bool(tensors["attention_mask"].all())


def can_share_prefixes(network: Any, device: torch.device) -> bool:
    """Return whether rows may run one by one: not on accelerators, which a single row does not fill."""
    return device.type == "cpu" and isinstance(network, AnswerNetwork) and make_prefix_cache(network) is not None


def iterate_logits(network: AnswerNetwork, order: PrefixOrder) -> Iterator[tuple[int, Tensor]]:
    """Yield the number and the logits (1,N,V) of each row."""
    cache: Any = make_prefix_cache(network)
    for number, shared in order:
        row = order.rows[number]
        # Negative: how many tokens to forget.
        cache.crop(shared - cache.get_seq_length())
        yield number, network.resume(row.input_ids, row.answer_positions, cache)


def run_in_order(network: AnswerNetwork, order: PrefixOrder, read: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
    """Return what is read from the logits of each row, given its number."""
    outputs: dict[int, Tensor] = {}
    with progress(len(order.rows), "inputs") as advance:
        for number, logits in iterate_logits(network, order):
            outputs[number] = read(logits, number)
            advance(1)
    return [outputs[number] for number in range(len(order.rows))]
