"""Look-ups of the input's words in the embedding tables: one for a single sequence, two for a source and an answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.word_layout import WordLayout, find_layout
from clearhead.model.language import SOURCE_LENGTH
from clearhead.model.model import input_embedding


def looked_up_table(args: Any, kwargs: Any) -> Any:
    """Return the table of a call of `embedding`."""
    return args[1] if len(args) > 1 else kwargs.get("weight")


def looked_up_ids(args: Any, kwargs: Any) -> Any:
    """Return the indices of a call of `embedding`."""
    return args[0] if args else kwargs.get("input")


class WordLookups:
    """The look-ups of the input's words in the order in which a network makes them, each for a part of the tokens."""

    def __init__(self, tables: Sequence[Tensor | None], sequences: Sequence[Tensor]) -> None:
        self._tables = list(tables)
        self._sequences = list(sequences)
        self._lengths = [ids_BT.shape[1] for ids_BT in sequences]
        self._count = 0

    @property
    def are_done(self) -> bool:
        """Whether the network has made them all."""
        return self._count == len(self._tables)

    def is_next(self, args: Any, kwargs: Any) -> bool:
        """Return whether a call of `embedding` is the next look-up."""
        # Positions and token types are looked up as well, in tables of their own.
        if self.are_done or looked_up_table(args, kwargs) is not self._tables[self._count]:
            return False
        # LED looks up padding between its source and its answer.
        return _is_same(looked_up_ids(args, kwargs), self._sequences[self._count])

    def advance(self) -> tuple[int, int]:
        """Return the first token and the number of tokens of the next look-up, and go on to the one after it."""
        *before, length = self._lengths[: self._count + 1]
        self._count += 1
        return sum(before), length

    def arrange(self, words_BTD: Tensor, args: Any, kwargs: Any) -> Tensor:
        """Return the part of the words that the next look-up stands for."""
        return words_BTD.narrow(1, *self.advance())

    def embed(self) -> Tensor:
        """Return the embeddings of all tokens, each from the table of its part."""
        # Encoder and decoder may have tables of their own.
        pairs = zip(self._sequences, self._tables, strict=True)
        return torch.cat([F.embedding(ids, table) for ids, table in pairs if table is not None], 1)


def _is_same(looked_up: Tensor, ids_BT: Tensor) -> bool:
    # The same memory first: comparing values waits for the device.
    return _share_memory(looked_up, ids_BT) or torch.equal(looked_up, ids_BT)


def _share_memory(looked_up: Tensor, ids_BT: Tensor) -> bool:
    return looked_up.shape == ids_BT.shape and looked_up.data_ptr() == ids_BT.data_ptr()


class InputLookups:
    """The look-ups of one sequence, in whatever layout and however often a network makes them."""

    def __init__(self, table: Tensor | None, ids_BT: Tensor | None) -> None:
        self._table = table
        self._ids_BT = ids_BT
        self.are_done = False

    def is_next(self, args: Any, kwargs: Any) -> bool:
        """Return whether a call of `embedding` looks up the words of the input."""
        if looked_up_table(args, kwargs) is not self._table:
            return False
        return self._find_layout(args, kwargs) is not None

    def _find_layout(self, args: Any, kwargs: Any) -> WordLayout | None:
        return find_layout(looked_up_ids(args, kwargs), self._ids_BT, is_first=not self.are_done)

    def arrange(self, words_BTD: Tensor, args: Any, kwargs: Any) -> Tensor:
        """Return the words in the layout of the next look-up."""
        layout = self._find_layout(args, kwargs)
        assert layout is not None
        self.are_done = True
        # Padding and start tokens keep their own embeddings.
        return layout.arrange(words_BTD, F.embedding(*args, **kwargs), _call)


def _call(function: Callable[..., Tensor], *args: Any) -> Tensor:
    return function(*args)


def list_lookups(network: Any, tensors: Mapping[str, Tensor]) -> InputLookups | WordLookups:
    """Return the look-ups of a network for these inputs."""
    if SOURCE_LENGTH not in tensors:
        return InputLookups(input_embedding(network), tensors.get("input_ids"))
    return list_sequence_lookups(network, tensors)


def list_sequence_lookups(network: Any, tensors: Mapping[str, Tensor]) -> WordLookups:
    """Return the look-ups of an encoder–decoder for a source and an answer."""
    source = source_tokens(tensors)
    ids_BT = tensors["input_ids"]
    return WordLookups(network.word_tables, [ids_BT[:, :source], ids_BT[:, source:]])


def source_tokens(tensors: Mapping[str, Tensor]) -> int:
    """Return how many of the tokens an encoder reads, and not the decoder; 0 if there is one sequence."""
    lengths = tensors.get(SOURCE_LENGTH)
    return 0 if lengths is None else int(lengths[0, 0])
