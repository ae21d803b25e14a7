"""A tokenizer without a vocabulary: words and punctuation marks, whose texts can be put together again exactly."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

PADDING = 0
SEPARATOR = 1
RESERVED = ("", "|")
# Scripts without blanks between words: kana and Han.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A word begins with the blanks before it, and the last also has those after it, so that nothing is lost.
_PIECE = re.compile(rf"\s*(?:[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+(?:['’\-][^\W{_IDEOGRAPHS}]+)*|[^\w\s])(?:\s+\Z)?")

Segments = tuple[str, ...]


class WordTokens(dict[str, list[Any]]):
    """The tokens of a text, or lists of those of several texts, as tokenizers return them."""

    segments: list[list[int | None]]

    def sequence_ids(self, index: int = 0) -> list[int | None]:
        """Return for each token of a text which segment of a pair it is of; None for the separator."""
        return self.segments[index]


class WordTokenizer:
    """Splits texts into words for functions that read texts; words get numbers as they come.

    The two texts of a pair are separated by a special token. `decode` is exact: all tokens give the text itself.
    """

    is_fast = True
    pad_token_id = PADDING
    unk_token_id = None
    mask_token_id = None
    all_special_ids = (PADDING, SEPARATOR)

    def __init__(self) -> None:
        self._pieces = list(RESERVED)
        # Without the reserved ones: a text may contain the mark that stands for the separator.
        self._ids: dict[str, int] = {}

    def __call__(self, text: Any, text_pair: Any = None, **options: Any) -> WordTokens:
        """Tokenise a text or pair, or a list of texts with a list of their seconds; options are ignored."""
        if isinstance(text, str):
            return _join_rows([self._encode(_list_segments(text, text_pair))], single=True)
        seconds = text_pair or [None] * len(text)
        rows = [self._encode(_list_segments(*pair)) for pair in zip(text, seconds, strict=True)]
        return _join_rows(rows, single=False)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return words without the blanks around them."""
        return [self._pieces[index].strip() for index in ids]

    def decode(self, ids: Sequence[int]) -> str | Segments:
        """Return the text of words, or the pair of texts if there is a separator."""
        if SEPARATOR not in ids:
            return self._join(ids)
        end = list(ids).index(SEPARATOR)
        return self._join(ids[:end]), self._join(ids[end + 1 :])

    def _join(self, ids: Sequence[int]) -> str:
        return "".join(self._pieces[index] for index in ids)

    def _number(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]

    def _encode(self, segments: Segments) -> list[tuple[int, tuple[int, int], int | None]]:
        """Return the id, the characters and the segment of each token."""
        tokens: list[tuple[int, tuple[int, int], int | None]] = []
        for number, segment in enumerate(segments):
            if number:
                tokens.append((SEPARATOR, (0, 0), None))
            for match in _PIECE.finditer(segment):
                tokens.append((self._number(match.group()), _trim(match), number))
        return tokens


def _list_segments(text: str, second: str | None) -> Segments:
    if second is None:
        return (text,)
    return text, second


def _trim(match: re.Match[str]) -> tuple[int, int]:
    """Return the characters of a word without the blanks around it."""
    piece = match.group()
    start = match.end() - len(piece.lstrip())
    return start, start + len(piece.strip())


def _join_rows(rows: Sequence[Sequence[tuple[int, tuple[int, int], int | None]]], *, single: bool) -> WordTokens:
    tokens = WordTokens()
    columns: dict[str, list[Any]] = {"input_ids": [], "offset_mapping": [], "special_tokens_mask": []}
    tokens.segments = []
    for row in rows:
        columns["input_ids"].append([number for number, _, _ in row])
        columns["offset_mapping"].append([span for _, span, _ in row])
        tokens.segments.append([segment for _, _, segment in row])
        columns["special_tokens_mask"].append([int(segment is None) for segment in tokens.segments[-1]])
    for name, values in columns.items():
        tokens[name] = list(chain.from_iterable(values)) if single else values
    return tokens
