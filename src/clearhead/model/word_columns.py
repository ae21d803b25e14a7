"""The words of many texts at once: which characters, and which tokens, each of them consists of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from clearhead.arrays import Array
from clearhead.model.unspaced import UNSPACED

LAST_SPACE = 0x3000
"""The highest code point for which `str.isspace` is true."""
IS_SPACE = np.array([chr(code).isspace() for code in range(LAST_SPACE + 2)])


@dataclass(frozen=True, eq=False)
class Characters:
    """The characters of all segments of texts, one after the other: where segments begin, and what is no blank.

    `has_unspaced` tells which segments have words of scripts without blanks between them.
    """

    begins: Array
    is_visible: Array
    has_unspaced: Array

    @classmethod
    def of(cls, segments: Sequence[str]) -> "Characters | None":
        """Return the characters of segments that are not empty; None if one is not valid Unicode."""
        try:
            encoded = "".join(segments).encode("utf-32-le")
        except UnicodeEncodeError:
            return None
        codes = np.frombuffer(encoded, np.uint32)
        lengths = np.fromiter(map(len, segments), np.int64, len(segments))
        has_unspaced = np.fromiter(map(_has_unspaced, segments), bool, len(segments))
        return cls(np.cumsum(lengths) - lengths, ~IS_SPACE[np.minimum(codes, LAST_SPACE + 1)], has_unspaced)

    def skip_spaces(self, segment: Array, start: Array, end: Array) -> Array:
        """Return the starts of tokens without the leading spaces that byte-level tokenizers count to them."""
        begin = self.begins[segment]
        blank = np.flatnonzero(start < end)
        blank = blank[~self.is_visible[(begin + start)[blank]]]
        # Most tokenizers leave blanks out.
        if not len(blank):
            return start
        visible = start.copy()
        visible[blank] = np.minimum(self._next_visible[(begin + start)[blank]] - begin[blank], end[blank])
        return visible

    @cached_property
    def _next_visible(self) -> Array:
        """For each character the position of the first that is no blank, from there on."""
        # One more than there are characters: tokens may begin after the last.
        positions = np.arange(len(self.is_visible) + 1)
        positions[:-1][~self.is_visible] = len(self.is_visible)
        visible: Array = np.minimum.accumulate(positions[::-1])[::-1]
        return visible

    @cached_property
    def begins_word(self) -> Array:
        """Which characters are the first of a word."""
        follows = np.append(False, self.is_visible[:-1])
        follows[self.begins] = False
        begins: Array = self.is_visible & ~follows
        return begins

    @cached_property
    def ends_word(self) -> Array:
        """Which characters are the last of a word."""
        is_followed = np.append(self.is_visible[1:], False)
        is_followed[self.begins[1:] - 1] = False
        ends: Array = self.is_visible & ~is_followed
        return ends

    @cached_property
    def word_numbers(self) -> Array:
        """For each character the number of the word that it is in, or that is before it."""
        return _count_up_to(self.begins_word) - 1

    @cached_property
    def visible_before(self) -> Array:
        """How many characters before each one, and before the end, are no blanks."""
        return np.append(np.int32(0), _count_up_to(self.is_visible))


def _has_unspaced(text: str) -> bool:
    # Most texts are ASCII, which a text knows of itself.
    return not text.isascii() and UNSPACED.search(text) is not None


def _count_up_to(is_counted: Array) -> Array:
    """Return how many are true up to each one."""
    # As bytes, which are summed twenty times faster than booleans.
    counts: Array = np.cumsum(is_counted.view(np.int8), dtype=np.int32)
    return counts


@dataclass(frozen=True, eq=False)
class TokenColumns:
    """The tokens of texts, one after the other: the text and the segment of each, its characters, and if it is special.

    Segments are numbered over all texts, each of which has as many.
    """

    starts: Array
    text: Array
    segment: Array
    spans: Array
    special: Array

    @property
    def count(self) -> int:
        """The number of texts."""
        return len(self.starts) - 1

    @cached_property
    def has_characters(self) -> Array:
        # Some tokenizers emit tokens for nothing but a blank, whose span is empty.
        return self.spans[:, 0] < self.spans[:, 1]

    @cached_property
    def own(self) -> Array:
        """The numbers of the tokens that stand for characters of a text."""
        return np.flatnonzero(self.has_characters & ~self.special)


@dataclass(frozen=True, eq=False)
class WordColumns:
    """The words of texts that have tokens, one after the other.

    Those of text i are from `starts[i]` to `starts[i + 1]`. Rows of `spans` are the first character of each word, the
    one after its last, its first token within the text, and how many tokens it has. Where `is_regular` is false this
    does not hold: then words have to be searched for. `read_shares` are the shares of characters, without blanks,
    between the first and the last token.
    """

    starts: Array
    spans: Array
    is_regular: Array
    read_shares: Array

    @classmethod
    def of(cls, tokens: TokenColumns, characters: Characters) -> "WordColumns":
        begin = characters.begins[tokens.segment[tokens.own]]
        word = characters.word_numbers[begin + tokens.spans[tokens.own, 0]]
        first = np.flatnonzero(np.diff(word, prepend=-1))
        token = tokens.own[first]
        text = tokens.text[token]
        spans = [
            np.flatnonzero(characters.begins_word)[word[first]] - begin[first],
            np.flatnonzero(characters.ends_word)[word[first]] + 1 - begin[first],
            token - tokens.starts[text],
            np.diff(first, append=len(tokens.own)),
        ]
        return cls(
            starts=np.searchsorted(text, np.arange(tokens.count + 1)),
            spans=shrink(np.stack(spans)),
            is_regular=_find_regular(tokens, word) & ~_sum_segments(characters.has_unspaced, tokens.count).astype(bool),
            read_shares=_measure_read(tokens, characters),
        )

    @classmethod
    def join(cls, chunks: "Sequence[WordColumns]") -> "WordColumns":
        """Return the words of several lists of texts as those of one list."""
        counts = [np.diff(chunk.starts) for chunk in chunks]
        return cls(
            starts=np.append(0, np.cumsum(np.concatenate(counts))),
            spans=np.concatenate([chunk.spans for chunk in chunks], axis=1),
            is_regular=np.concatenate([chunk.is_regular for chunk in chunks]),
            read_shares=np.concatenate([chunk.read_shares for chunk in chunks]),
        )


def shrink(numbers: Array) -> Array:
    """Return numbers, none of which is negative, in the smallest type that holds them: texts may be many."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def _find_regular(tokens: TokenColumns, word: Array) -> Array:
    """Return for which texts the tokens of each word follow each other, and no special token stands for characters."""
    is_regular = np.ones(tokens.count, bool)
    steps = np.diff(word)
    # Back to an earlier word, or on in the same word after a token without characters.
    is_odd = (steps < 0) | ((steps == 0) & (np.diff(tokens.own) > 1))
    is_regular[tokens.text[tokens.own[1:][is_odd]]] = False
    is_regular[tokens.text[tokens.has_characters & tokens.special]] = False
    return is_regular


def _measure_read(tokens: TokenColumns, characters: Characters) -> Array:
    """Return for each text the share of characters, without blanks, between the first and the last of its tokens."""
    segment = tokens.segment[tokens.own]
    count = len(characters.begins)
    first = np.full(count, len(characters.is_visible))
    last = np.zeros(count, np.int64)
    np.minimum.at(first, segment, characters.begins[segment] + tokens.spans[tokens.own, 0])
    np.maximum.at(last, segment, characters.begins[segment] + tokens.spans[tokens.own, 1])
    before = characters.visible_before
    # A segment without tokens begins behind its end.
    read = np.where(first < last, before[last] - before[first], 0)
    total = np.diff(np.append(before[characters.begins], before[-1]))
    return _sum_segments(read, tokens.count) / np.maximum(1, _sum_segments(total, tokens.count))


def _sum_segments(values: Array, texts: int) -> Array:
    sums: Array = values.reshape(texts, -1).sum(1)
    return sums


class TextWords(NamedTuple):
    """Which words of the columns are those of a text, and with which special tokens they were found."""

    columns: WordColumns
    row: int
    text: Any
    special: bytes

    def list_spans(self, text: Any, special: Array) -> list[list[int]] | None:
        """Return the rows of `WordColumns.spans`; None if they are unknown, or this is no longer the text."""
        if not self.columns.is_regular[self.row] or text is not self.text or special.tobytes() != self.special:
            return None
        start, end = self.columns.starts[self.row : self.row + 2]
        spans: list[list[int]] = self.columns.spans[:, start:end].tolist()
        return spans


class PlacedOffsets(tuple[tuple[int, ...], ...]):
    """The characters of each token of a text, with the words of the text."""

    words: TextWords

    def __new__(cls, offsets: Iterable[tuple[int, ...]], words: TextWords) -> Self:
        placed = super().__new__(cls, offsets)
        placed.words = words
        return placed

    def __reduce__(self) -> Any:
        # The columns hold the words of many other texts.
        return tuple, (tuple(self),)

    @property
    def read_share(self) -> float:
        """The share of the text, without blanks, between its first and its last token."""
        return float(self.words.columns.read_shares[self.words.row])
