"""A tokenizer without a vocabulary: words and punctuation marks, whose texts can be put together again exactly."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

PADDING = 0
SEPARATOR = 1
RESERVED = ("", "|")
# Scripts without blanks between words: kana and Han.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A word begins with the blanks before it, and the last also has those after it, so that nothing is lost.
_PIECE = re.compile(rf"\s*(?:[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+(?:['’\-][^\W{_IDEOGRAPHS}]+)*|[^\w\s])(?:\s+\Z)?")

Segments = tuple[str, ...]


class Token(NamedTuple):
    """A word or separator: its id, where it stands, and the text of a pair that it is of; none for a separator."""

    input_ids: int
    offset_mapping: tuple[int, int]
    segment: int | None

    @property
    def special_tokens_mask(self) -> int:
        return int(self.segment is None)


@dataclass(frozen=True)
class WordEncoding:
    """The tokens of a text, by the names of the tokenizers library."""

    tokens: Sequence[Token]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def ids(self) -> list[int]:
        return [token.input_ids for token in self.tokens]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [token.offset_mapping for token in self.tokens]

    @property
    def special_tokens_mask(self) -> list[int]:
        return [token.special_tokens_mask for token in self.tokens]

    @property
    def sequence_ids(self) -> list[int | None]:
        """Which segment of a pair each token is of; None for the separator."""
        return [token.segment for token in self.tokens]


class WordTokens(dict[str, list[Any]]):
    """The tokens of a text, or lists of those of several texts, as tokenizers return them."""

    encodings: list[WordEncoding]

    def sequence_ids(self, index: int = 0) -> list[int | None]:
        """Return for each token of a text which segment of a pair it is of; None for the separator."""
        return self.encodings[index].sequence_ids


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
            return self._encode_single(_list_segments(text, text_pair))
        seconds = text_pair or [None] * len(text)
        return _join_rows([self._encode(_list_segments(*pair)) for pair in zip(text, seconds, strict=True)])

    def _encode_single(self, segments: Segments) -> WordTokens:
        """Return the tokens of one text, which are in no list."""
        batch = _join_rows([self._encode(segments)])
        tokens = WordTokens({name: rows[0] for name, rows in batch.items()})
        tokens.encodings = batch.encodings
        return tokens

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

    def _encode(self, segments: Segments) -> list[Token]:
        """Return the tokens of a text, or of a pair with a separator in between."""
        tokens: list[Token] = []
        for number, segment in enumerate(segments):
            if number:
                tokens.append(Token(SEPARATOR, (0, 0), None))
            tokens += self._split(segment, number)
        return tokens

    def _split(self, segment: str, number: int) -> Iterator[Token]:
        for match in _PIECE.finditer(segment):
            yield Token(self._number(match.group()), _trim(match), number)


def _list_segments(text: str, second: str | None) -> Segments:
    if second is None:
        return (text,)
    return text, second


def _trim(match: re.Match[str]) -> tuple[int, int]:
    """Return the characters of a word without the blanks around it."""
    piece = match.group()
    start = match.end() - len(piece.lstrip())
    return start, start + len(piece.strip())


def _join_rows(rows: Sequence[Sequence[Token]]) -> WordTokens:
    """Return the tokens of texts by name, as tokenizers do."""
    encodings = list(map(WordEncoding, rows))
    tokens = WordTokens(
        input_ids=[encoding.ids for encoding in encodings],
        offset_mapping=[encoding.offsets for encoding in encodings],
        special_tokens_mask=[encoding.special_tokens_mask for encoding in encodings],
    )
    tokens.encodings = encodings
    return tokens
