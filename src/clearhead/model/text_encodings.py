"""What a fast tokenizer returns for many texts, read text by text into arrays."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.model.model import Model
from clearhead.model.text_inputs import NETWORK_INPUTS, tokenise


@dataclass(frozen=True, eq=False)
class Encodings:
    """The encodings of texts, or of pairs of texts, and the inputs that the network takes of them.

    `encodings` are those of the tokenizers library, which makes Python lists of a text's numbers when they are read. An
    array is made of each list at once: to hold those of many texts takes longer than to make them.
    """

    encodings: Sequence[Any]
    inputs: Sequence[str]

    @property
    def lengths(self) -> Array:
        """The number of tokens of each text."""
        return np.fromiter(map(len, self.encodings), np.int64, len(self.encodings))

    def read_inputs(self) -> dict[str, Array]:
        """Return the network's inputs, those of all texts one after the other."""
        return {name: self._read_input(name) for name in self.inputs}

    def _read_input(self, name: str) -> Array:
        if name == "attention_mask":
            # Nothing is padded here.
            return np.ones(self.lengths.sum(), np.int8)
        if name == "token_type_ids":
            return self._read(lambda encoding: encoding.type_ids, np.int8)
        return self._read(lambda encoding: encoding.ids, np.int32)

    def read_special(self) -> Array:
        """Return which tokens are special."""
        return self._read(lambda encoding: encoding.special_tokens_mask, np.int8).astype(bool)

    def read_spans(self) -> Array:
        """Return the start and the end of every token in its text."""
        return self._read(_list_spans, np.int32).reshape(-1, 2)

    def read_segments(self) -> Array:
        """Return for every token of pairs which text it is of; special tokens, with empty spans, count to the first."""
        # As floats, None becomes NaN.
        segments = self._read(lambda encoding: np.array(encoding.sequence_ids, dtype=float), np.float64)
        return np.nan_to_num(segments).astype(np.int64)

    def _read(self, read: Callable[[Any], Iterable[Any]], dtype: Any) -> Array:
        return np.concatenate([np.fromiter(read(encoding), dtype) for encoding in self.encodings])


def _list_spans(encoding: Any) -> Iterator[int]:
    return chain.from_iterable(encoding.offsets)


def tokenise_many(model: Model, segments: Sequence[Sequence[str]], overflow: str) -> Encodings | None:
    """Call the tokenizer with texts, or the first and the second texts of pairs; None if it does not tell how it read.

    Only the ids are asked for: the rest is read from the encodings.
    """
    result = tokenise(model, segments, overflow, ids_only=True)
    encodings = result.encodings
    if encodings is None or list(map(len, encodings)) != list(map(len, result["input_ids"])):
        return None
    return Encodings(encodings, _list_inputs(model))


def _list_inputs(model: Model) -> list[str]:
    """Return the names of what the tokenizer makes for the network."""
    return [name for name in NETWORK_INPUTS if name in model.processor.model_input_names]
