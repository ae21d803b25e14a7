"""What a fast tokenizer returns for many texts, read text by text into arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, eq
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from clearhead.arrays import Array
from clearhead.model.model import Model
from clearhead.model.text_inputs import select_inputs, tokenise
from clearhead.model.word_tokenizer import WordTokenizer


@dataclass(frozen=True, eq=False)
class Encodings:
    """The encodings of texts, or of pairs of texts, and what the network takes of each.

    `encodings` are those of the tokenizers library, which makes Python lists of a text's numbers when they are read. An
    array is made of each list at once: to hold those of many texts takes longer than to make them.
    """

    encodings: Sequence[Any]
    inputs: Mapping[str, Sequence[Sequence[int]]]

    @property
    def lengths(self) -> Array:
        """The number of tokens of each text."""
        return np.fromiter(map(len, self.encodings), np.int64, len(self.encodings))

    def read_inputs(self) -> dict[str, Array]:
        """Return the network's inputs, those of all texts one after the other."""
        return {name: np.fromiter(chain.from_iterable(rows), _choose_type(name)) for name, rows in self.inputs.items()}

    def read_special(self) -> Array:
        """Return which tokens are special."""
        return self._read(attrgetter("special_tokens_mask"), np.int8).astype(bool)

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


def _choose_type(name: str) -> Any:
    # Masks and the numbers of segments are small.
    return np.int32 if name == "input_ids" else np.int8


def tokenise_many(model: Model, segments: Sequence[Sequence[str]], overflow: str) -> Encodings | None:
    """Call the tokenizer with texts, or the first and the second texts of pairs; None if it may not be read this way.

    The tokenizer is asked for the network's inputs alone, which it may change: the rest is read from the encodings.
    """
    if not isinstance(model.processor, PreTrainedTokenizerBase | WordTokenizer):
        return None
    result = tokenise(model, segments, overflow, inputs_only=True)
    inputs = select_inputs(result)
    if result.encodings is None or not _are_of(result.encodings, inputs["input_ids"]):
        return None
    return Encodings(result.encodings, inputs)


def _are_of(encodings: Sequence[Any], ids: Sequence[Sequence[int]]) -> bool:
    """Return whether encodings have these ids."""
    return len(encodings) == len(ids) and all(map(eq, map(attrgetter("ids"), encodings), ids))
