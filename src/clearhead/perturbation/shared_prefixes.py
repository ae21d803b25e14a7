"""Run a decoder on rows that begin alike, so that the tokens they share are computed once.

A token of a decoder depends on those before it alone. Rows are the paths of a tree of prefixes: each starts from the
keys and values of a row that was run before, from the first token on in which they differ, and rows run together whose
beginnings are ready.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.language import ANSWER_POSITIONS, AnswerNetwork, make_prefix_cache
from clearhead.progress import progress

LEAST_SAVED = 0.15
"""Of the tokens, after the cost of calls: to copy keys and values takes time too."""
CALL_TOKENS = 64
"""The tokens that take as long as a call of a small language model on a CPU: calls wait for those before."""
MAX_KEPT_TOKENS = 16384
"""Tokens whose keys and values are kept for other rows, and are stacked for those of a batch."""
END = -1
"""What follows the last token of a prefix."""
TEXT_TENSORS = {"input_ids", "attention_mask", ANSWER_POSITIONS}

KeysAndValues = list[tuple[Tensor, Tensor]]
"""Those of one row in each block (1,H,S,D)."""


@dataclass(frozen=True, eq=False)
class PrefixRow:
    """The tokens of a row (1,T), and where its answer's tokens are predicted (1,N)."""

    input_ids: Tensor
    answer_positions: Tensor

    @property
    def length(self) -> int:
        return self.input_ids.shape[1]

    def answers_as_many(self, other: "PrefixRow") -> bool:
        """Return whether the answers of two rows have as many tokens."""
        return self.answer_positions.shape == other.answer_positions.shape

    @cached_property
    def prefix(self) -> list[int]:
        """The tokens that another row may have computed: not those that predict the answer."""
        tokens: list[int] = self.input_ids[0, : int(self.answer_positions.min())].tolist()
        return tokens

    def token_at(self, depth: int) -> int:
        """Return a token of the prefix, END after the last."""
        return self.prefix[depth] if depth < len(self.prefix) else END


@dataclass(frozen=True)
class PrefixTree:
    """For each row the number of the row that it continues, None for the first, and how many tokens they share."""

    rows: Sequence[PrefixRow]
    parents: Sequence[int | None]
    shared: Sequence[int]

    @cached_property
    def children(self) -> dict[int | None, list[int]]:
        """The numbers of the rows that continue each row."""
        children = defaultdict(list)
        for number, parent in enumerate(self.parents):
            children[parent].append(number)
        return dict(children)

    @property
    def generations(self) -> int:
        """How many rows, one after the other, the last row waits for, itself included."""
        generation = self.children[None]
        count = 0
        while generation:
            count += 1
            generation = [child for number in generation for child in self.children.get(number, [])]
        return count

    @property
    def saves_time(self) -> bool:
        """Whether shared tokens outweigh the calls that wait for others."""
        saved = sum(self.shared) - CALL_TOKENS * (self.generations - 1)
        return saved >= LEAST_SAVED * self._count_tokens()

    def _count_tokens(self) -> int:
        return sum(row.length for row in self.rows)

    def new_tokens(self, number: int) -> int:
        """Return how many tokens of a row are not shared."""
        return self.rows[number].length - self.shared[number]

    def first_shared(self) -> int:
        """Return the number of the first row that shares tokens with another."""
        return next(number for number, shared in enumerate(self.shared) if shared)


def build_tree(rows: Sequence[PrefixRow]) -> PrefixTree:
    """Find for each row the one that it continues.

    From every branch of the tree the path with most rows is followed first, so that others wait for few rows.
    """
    parents: list[int | None] = [None] * len(rows)
    shared = [0] * len(rows)
    branches: list[tuple[int | None, int, list[int]]] = [(None, 0, list(range(len(rows))))]
    while branches:
        parent, depth, members = branches.pop()
        path = _follow_path(rows, members, depth)
        parents[path.row] = parent
        shared[path.row] = depth
        branches += [(path.row, branch_depth, branch) for branch_depth, branch in path.branches]
    return PrefixTree(rows, parents, shared)


@dataclass(frozen=True)
class _Path:
    """A row, and the groups of rows that leave its path, with the number of tokens they share with it."""

    row: int
    branches: list[tuple[int, list[int]]]


def _follow_path(rows: Sequence[PrefixRow], members: list[int], depth: int) -> _Path:
    branches: list[tuple[int, list[int]]] = []
    while len(members) > 1:
        groups = _group_by_token(rows, members, depth)
        # Rows that end here share nothing more with others: one of them is followed if all do.
        ended = groups.pop(END, [])
        if not groups:
            return _Path(ended[0], [*branches, *_leave(depth, _list_singly(ended[1:]))])
        *others, members = sorted(groups.values(), key=len)
        branches += _leave(depth, [*_list_singly(ended), *others])
        depth += 1
    return _Path(members[0], branches)


def _list_singly(members: Sequence[int]) -> list[list[int]]:
    return [[member] for member in members]


def _leave(depth: int, groups: Iterable[list[int]]) -> list[tuple[int, list[int]]]:
    return [(depth, group) for group in groups]


def _group_by_token(rows: Sequence[PrefixRow], members: Sequence[int], depth: int) -> dict[int, list[int]]:
    """Return the rows by their next token, END for those without one."""
    groups = defaultdict(list)
    for member in members:
        groups[rows[member].token_at(depth)].append(member)
    return groups


def read_row(tensors: dict[str, Tensor]) -> PrefixRow | None:
    """Return one row of a network's input, None if it has more than text, padding, or tokens without attention."""
    if not _is_unpadded_text(tensors):
        return None
    return PrefixRow(tensors["input_ids"], tensors[ANSWER_POSITIONS])


def _is_unpadded_text(tensors: dict[str, Tensor]) -> bool:
    return set(tensors) == TEXT_TENSORS and bool(tensors["attention_mask"].all())


def can_share_prefixes(network: Any, device: torch.device) -> bool:
    """Return whether rows may start from others' tokens: not on accelerators, where that was not measured."""
    return device.type == "cpu" and isinstance(network, AnswerNetwork) and make_prefix_cache(network) is not None


@dataclass
class _Kept:
    """Keys and values of rows that others continue, until all of them have run."""

    tree: PrefixTree
    by_row: dict[int, KeysAndValues] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)

    def find(self, number: int) -> KeysAndValues | None:
        """Return the keys and values of the tokens that a row shares, None if it has to start anew."""
        parent = self.tree.parents[number]
        shared = self.tree.shared[number]
        if parent not in self.by_row or not shared:
            return None
        return _cut_all(self.by_row[parent], shared)

    def add(self, number: int, layers: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Keep what other rows will continue, as far as there is room."""
        children = self.tree.children.get(number, [])
        length = max((self.tree.shared[child] for child in children), default=0)
        if length and self._count_tokens() + length <= MAX_KEPT_TOKENS:
            self.by_row[number] = [_copy_start(*layer, length) for layer in layers]
            self.waiting[number] = len(children)

    def _count_tokens(self) -> int:
        return sum(layers[0][0].shape[2] for layers in self.by_row.values())

    def release(self, number: int) -> None:
        """Forget the row that a finished one continued, if no other waits for it."""
        parent = self.tree.parents[number]
        if parent not in self.waiting:
            return
        self.waiting[parent] -= 1
        if not self.waiting[parent]:
            del self.by_row[parent], self.waiting[parent]


def _copy_start(keys: Tensor, values: Tensor, length: int) -> tuple[Tensor, Tensor]:
    # Cloned, since a view would keep the whole batch in memory.
    return _cut(keys, length).clone(), _cut(values, length).clone()


def _cut(states: Tensor, length: int) -> Tensor:
    return states[:, :, :length]


def _cut_all(layers: KeysAndValues, length: int) -> KeysAndValues:
    return [(_cut(keys, length), _cut(values, length)) for keys, values in layers]


def iterate_logits(network: AnswerNetwork, tree: PrefixTree, tokens: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the number and the logits (1,N,V) of each row, from batches of so many tokens."""
    kept = _Kept(tree)
    ready = list(tree.children[None])
    while ready:
        # Of similar length, so that little is padded.
        ready.sort(key=tree.new_tokens)
        batch = _take_batch(tree, ready, tokens)
        pasts = list(map(kept.find, batch))
        yield from zip(batch, _run_batch(network, tree, batch, pasts, kept), strict=True)
        for number in batch:
            kept.release(number)
            ready += tree.children.get(number, [])


def _take_batch(tree: PrefixTree, ready: list[int], tokens: int) -> list[int]:
    """Take the rows with most new tokens that fit into a batch; all have answers of one length."""
    batch = [ready.pop()]
    first = tree.rows[batch[0]]
    width = tree.new_tokens(batch[0])
    most_rows = min(tokens // width, MAX_KEPT_TOKENS // first.length)
    padding = 0
    while ready and len(batch) < most_rows:
        padding += width - tree.new_tokens(ready[-1])
        # More padding would take longer than another call.
        if padding > CALL_TOKENS or not first.answers_as_many(tree.rows[ready[-1]]):
            break
        batch.append(ready.pop())
    return batch


def _run_batch(
    network: AnswerNetwork, tree: PrefixTree, batch: list[int], pasts: list[KeysAndValues | None], kept: _Kept
) -> list[Tensor]:
    """Return the logits of each row, and keep what other rows will continue."""
    starts = list(map(_count_past, pasts))
    rows = [tree.rows[number] for number in batch]
    positions_BN = torch.cat([row.answer_positions for row in rows])
    cache = _stack_pasts(network, pasts, max(starts))
    logits_BNV = network.resume(_stack_new(rows, starts), positions_BN, cache, torch.tensor(starts))
    for index, number in enumerate(batch):
        kept.add(number, _read_cache(cache, index, max(starts) - starts[index]))
    return list(torch.split(logits_BNV, 1))


def _stack_new(rows: Sequence[PrefixRow], starts: Sequence[int]) -> Tensor:
    """Return the tokens of each row that are not in the cache, padded on the right."""
    new_ids = [row.input_ids[0, start:] for row, start in zip(rows, starts, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(new_ids, batch_first=True)


def _count_past(past: KeysAndValues | None) -> int:
    if past is None:
        return 0
    return past[0][0].shape[2]


def _stack_pasts(network: AnswerNetwork, pasts: list[KeysAndValues | None], width: int) -> Any:
    """Return a cache with the keys and values of all rows, padded on the left."""
    cache: Any = make_prefix_cache(network)
    template = next(filter(None, pasts), None)
    if template is None:
        return cache
    empty = _cut_all(template, 0)
    for block, layers in enumerate(zip(*[past or empty for past in pasts], strict=True)):
        keys, values = zip(*layers, strict=True)
        cache.update(_pad_left(keys, width), _pad_left(values, width), block)
    return cache


def _pad_left(tensors: Sequence[Tensor], width: int) -> Tensor:
    return torch.cat([F.pad(tensor, (0, 0, width - tensor.shape[2], 0)) for tensor in tensors])


def _read_cache(cache: Any, row: int, padding: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the keys and values of one row in each block, without the padding before them."""
    for layer in cache.layers:
        yield _read_row(layer.keys, row, padding), _read_row(layer.values, row, padding)


def _read_row(states: Tensor, row: int, padding: int) -> Tensor:
    return states[row : row + 1, :, padding:]


def run_tree(
    network: AnswerNetwork, tree: PrefixTree, tokens: int, read: Callable[[Tensor, int], Tensor]
) -> list[Tensor]:
    """Return what is read from the logits of each row, given its number."""
    outputs: dict[int, Tensor] = {}
    with progress(len(tree.rows), "inputs") as advance:
        for number, logits in iterate_logits(network, tree, tokens):
            outputs[number] = read(logits, number)
            advance(1)
    return [outputs[number] for number in range(len(tree.rows))]
