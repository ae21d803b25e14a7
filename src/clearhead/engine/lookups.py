"""Look-ups of the input's words in the embedding tables: one for a single sequence, two for a source and an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.language import SOURCE_LENGTH
from clearhead.model.model import input_embedding


def looked_up_table(args: Any, kwargs: Any) -> Any:
    """Return the table of a call of `embedding`."""
    return args[1] if len(args) > 1 else kwargs.get("weight")


class WordLookups:
    """The look-ups of the input's words in the order in which a network makes them, each for a part of the tokens."""

    def __init__(self, tables: Sequence[Tensor | None], lengths: Sequence[int]) -> None:
        self._tables = list(tables)
        self._lengths = list(lengths)
        self._count = 0

    @property
    def are_done(self) -> bool:
        """Whether the network has made them all."""
        return self._count == len(self._tables)

    def is_next(self, args: Any, kwargs: Any) -> bool:
        """Return whether a call of `embedding` is the next look-up."""
        # Positions and token types are looked up as well, in tables of their own.
        return not self.are_done and looked_up_table(args, kwargs) is self._tables[self._count]

    def advance(self) -> tuple[int, int]:
        """Return the first token and the number of tokens of the next look-up, and go on to the one after it."""
        *before, length = self._lengths[: self._count + 1]
        self._count += 1
        return sum(before), length

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Return the embeddings of all tokens, each from the table of its part."""
        # Encoder and decoder may have tables of their own.
        sequences = torch.split(ids_BT, self._lengths, 1)
        pairs = zip(sequences, self._tables, strict=True)
        return torch.cat([F.embedding(ids, table) for ids, table in pairs if table is not None], 1)


def list_lookups(network: Any, tensors: Mapping[str, Tensor], tokens: int) -> WordLookups:
    """Return the look-ups of a network for inputs of this many tokens."""
    if SOURCE_LENGTH not in tensors:
        return WordLookups([input_embedding(network)], [tokens])
    source = source_tokens(tensors)
    return WordLookups(network.word_tables, [source, tokens - source])


def source_tokens(tensors: Mapping[str, Tensor]) -> int:
    """Return how many of the tokens an encoder reads, and not the decoder; 0 if there is one sequence."""
    lengths = tensors.get(SOURCE_LENGTH)
    return 0 if lengths is None else int(lengths[0, 0])
