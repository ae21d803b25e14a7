"""Many encoded texts as a few arrays, from one call of a fast tokenizer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.lazy import Selection
from clearhead.model.batches import (
    Encoded,
    EncodedRows,
    Inputs,
    Item,
    list_tensor_names,
    move_to_model,
    padding_value,
    validate_vocabulary,
)
from clearhead.model.model import Model, max_tokens
from clearhead.model.text_encodings import Encodings, tokenise_many
from clearhead.model.text_inputs import Text, knows_offsets, may_be_longer
from clearhead.model.word_columns import Characters, PlacedOffsets, TextWords, TokenColumns, WordColumns, shrink

TEXTS_PER_CALL = 256
"""Texts that the tokenizer gets at a time: what it returns is much larger than the arrays made of it.

To make arrays of many more would keep other threads, such as the one that launches kernels, waiting for milliseconds.
"""


@dataclass(frozen=True, eq=False)
class TextColumns(EncodedRows):
    """Encoded texts, or pairs of texts, one after the other.

    The tokens of text i are those from `starts[i]` to `starts[i + 1]`. `values` are the network's inputs per token,
    `offsets` the characters of each token (see `Item`), `names` what the ids are called, `words` where the words are.
    """

    texts: Sequence[Text]
    starts: Array
    values: Mapping[str, Array]
    special: Array
    offsets: Array
    names: Mapping[int, str]
    words: WordColumns

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> Array:
        return np.diff(self.starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return Encoded(self.make_item(number), self._list_values(self._span(number)))

    def _list_values(self, span: slice) -> dict[str, list[int]]:
        return {name: column[span].tolist() for name, column in self.values.items()}

    def _span(self, index: int) -> slice:
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def make_item(self, index: int) -> Item:
        """Return a text as a person sees it."""
        span = self._span(index)
        special = self.special[span]
        words = TextWords(self.words, index, self.texts[index], special.tobytes())
        offsets = PlacedOffsets(zip(*self.offsets[span].T.tolist(), strict=True), words)
        return Item(self._list_tokens(span), tuple(special.tolist()), self.texts[index], offsets)

    def _list_tokens(self, span: slice) -> tuple[str, ...]:
        ids = self.values["input_ids"][span].tolist()
        return tuple(map(self.names.__getitem__, ids))

    def collate(self, model: Model, indices: Sequence[int]) -> Inputs:
        rows = np.asarray(indices)
        layout = _PaddedLayout.of(self.starts[rows], self.lengths[rows])
        tensors = {}
        for name in list_tensor_names(model, self.values):
            tensors[name] = layout.pad(self.values.get(name), padding_value(model, name))
        validate_vocabulary(model, tensors)
        return move_to_model(Inputs(tensors, Selection(TextItems(self), indices)), model)


@dataclass(frozen=True, eq=False)
class TextItems(Sequence[Item]):
    """The texts of columns as a person sees them, made when they are read."""

    columns: TextColumns

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: Any) -> Any:
        return self.columns.make_item(range(len(self))[index])


@dataclass(frozen=True)
class _PaddedLayout:
    """Where the tokens of some texts stand in the columns, and in a padded batch."""

    real_BT: Array
    positions: Array

    @classmethod
    def of(cls, starts: Array, lengths: Array) -> "_PaddedLayout":
        real_BT = np.arange(lengths.max()) < lengths[:, None]
        # The number of a token among all of the batch, plus how far its text is from where it would then begin.
        shifts = starts - (np.cumsum(lengths) - lengths)
        return cls(real_BT, np.arange(lengths.sum()) + np.repeat(shifts, lengths))

    def pad(self, column: Array | None, fill: int) -> Tensor:
        """Return the values of a batch, padded on the right; a missing column marks every token as real."""
        padded_BT = np.full(self.real_BT.shape, fill, np.int64)
        padded_BT[self.real_BT] = 1 if column is None else column[self.positions]
        return torch.from_numpy(padded_BT)


def go_on() -> None:
    """Do not pause."""


@dataclass
class TextEncoder:
    """Encodes many texts at a time, with a pause before every call; what ids are called is looked up once."""

    model: Model
    overflow: str
    pause: Callable[[], None] = go_on
    names: dict[int, str] = field(default_factory=dict)

    def encode(self, texts: Sequence[Text]) -> TextColumns | None:
        """Return the columns of texts, or None if one of them is invalid or the tokenizer cannot do it."""
        if not can_use_columns(self.model, texts):
            return None
        chunks = []
        for start in range(0, len(texts), TEXTS_PER_CALL):
            self.pause()
            chunk = self._encode_chunk(texts[start : start + TEXTS_PER_CALL])
            if chunk is None:
                return None
            chunks.append(chunk)
        return _join(chunks)

    def _encode_chunk(self, texts: Sequence[Text]) -> TextColumns | None:
        characters = _read_characters(texts)
        if characters is None:
            return None
        encodings = tokenise_many(self.model, _split_segments(texts), self.overflow)
        if encodings is None:
            return None
        columns = _make_columns(texts, encodings, characters, self.names)
        if not _is_valid(self.model, columns, self.overflow):
            return None
        self._name_ids(columns.values["input_ids"])
        return columns

    def _name_ids(self, ids: Array) -> None:
        # Counted, which is faster than sorting.
        occurring = np.flatnonzero(np.bincount(ids)).tolist()
        unnamed = [index for index in occurring if index not in self.names]
        self.names.update(zip(unnamed, self.model.processor.convert_ids_to_tokens(unnamed), strict=True))


def can_use_columns(model: Model, texts: Sequence[Any]) -> bool:
    """Return whether these are texts, or pairs of texts, and the tokenizer knows where tokens come from."""
    if _has_no_columns(model, texts):
        return False
    # Their inputs have more than the columns of a tokenizer.
    if model.is_encoder_decoder or model.has_focus:
        return False
    return all(type(text) is str for text in texts) or all(map(_is_pair, texts))


def _has_no_columns(model: Model, texts: Sequence[Any]) -> bool:
    return not texts or model.takes_images or not knows_offsets(model.processor)


def _is_pair(source: Any) -> bool:
    return type(source) is tuple and list(map(type, source)) == [str, str]


def _read_characters(texts: Sequence[Text]) -> Characters | None:
    """Return the characters of texts; None if a text is blank or not valid Unicode."""
    segments = list(_list_segments(texts))
    if not all(map(str.strip, segments)):
        return None
    return Characters.of(segments)


def _split_segments(texts: Sequence[Text]) -> list[list[Any]]:
    """Return the texts, or the first and the second texts of pairs, as lists."""
    if isinstance(texts[0], str):
        return [list(texts)]
    return list(map(list, zip(*texts, strict=True)))


def _list_segments(texts: Sequence[Text]) -> Iterator[str]:
    for text in texts:
        if isinstance(text, str):
            yield text
        else:
            yield from text


def _make_columns(
    texts: Sequence[Text], encodings: Encodings, characters: Characters, names: dict[int, str]
) -> TextColumns:
    tokens = _read_tokens(texts, encodings, characters)
    offsets = shrink(_number_segments(texts, tokens))
    words = WordColumns.of(tokens, characters)
    return TextColumns(texts, tokens.starts, encodings.read_inputs(), tokens.special, offsets, names, words)


def _read_tokens(texts: Sequence[Text], encodings: Encodings, characters: Characters) -> TokenColumns:
    lengths = encodings.lengths
    text = np.repeat(np.arange(len(texts)), lengths)
    segment = text if isinstance(texts[0], str) else 2 * text + encodings.read_segments()
    spans = _skip_spaces(encodings.read_spans(), segment, characters)
    return TokenColumns(_sum_before(lengths), text, segment, spans, encodings.read_special())


def _number_segments(texts: Sequence[Text], tokens: TokenColumns) -> Array:
    """Return (start, end) of every token, or (segment, start, end) in pairs."""
    if isinstance(texts[0], str):
        return tokens.spans
    return np.column_stack([tokens.segment - 2 * tokens.text, tokens.spans])


def _sum_before(counts: Array) -> Array:
    """Return the sum of what comes before each number, and that of all at the end."""
    return np.concatenate([[0], np.cumsum(counts)])


def _skip_spaces(spans: Array, segment: Array, characters: Characters) -> Array:
    """Return (start, end) of every token, without leading spaces."""
    start, end = spans.T
    return np.stack([characters.skip_spaces(segment, start, end), end], 1)


def _is_valid(model: Model, columns: TextColumns, overflow: str) -> bool:
    """Return whether every text has tokens of its own, and not more than the model takes."""
    if not may_be_longer(model, columns.texts[0], overflow) and _is_too_long(model, columns):
        return False
    # Sums from start to start: texts without any token have none of their own either.
    own = _sum_before(~columns.special)
    return bool(np.diff(own[columns.starts]).min() > 0)


def _is_too_long(model: Model, columns: TextColumns) -> bool:
    limit = max_tokens(model)
    return limit is not None and int(columns.lengths.max()) > limit


def _join(chunks: Sequence[TextColumns]) -> TextColumns:
    if len(chunks) == 1:
        return chunks[0]
    first = chunks[0]
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    return TextColumns(
        texts=_join_texts(chunks),
        starts=_sum_before(lengths),
        values={name: _join_values(chunks, name) for name in first.values},
        special=np.concatenate([chunk.special for chunk in chunks]),
        offsets=np.concatenate([chunk.offsets for chunk in chunks]),
        names=first.names,
        words=WordColumns.join([chunk.words for chunk in chunks]),
    )


def _join_texts(chunks: Sequence[TextColumns]) -> list[Text]:
    return list(chain.from_iterable(chunk.texts for chunk in chunks))


def _join_values(chunks: Sequence[TextColumns], name: str) -> Array:
    return np.concatenate([chunk.values[name] for chunk in chunks])
