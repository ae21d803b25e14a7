"""Scripts written without blanks between words, such as Chinese and Thai: there, tokens are taken for words."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

# Thai and Lao, Burmese, Khmer, radicals, iteration marks, kana and their extension, ideographs, half-width kana.
RANGES = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
UNSPACED = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in RANGES)}]")
WORD = re.compile(r"\S+")


def find_word_spans(text: str, token_edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first character of every word between blanks, and the one after its last.

    Words of scripts without blanks are cut at the ascending `token_edges`, where tokens begin or end.
    """
    is_cut = UNSPACED.search(text) is not None
    for match in WORD.finditer(text):
        if is_cut:
            yield from _cut_word(text, *match.span(), token_edges)
        else:
            yield match.span()


def _cut_word(text: str, start: int, end: int, token_edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    inside = token_edges[bisect_right(token_edges, start) : bisect_left(token_edges, end)]
    # The bytes of a character may be tokens of their own.
    cuts = [position for position in dict.fromkeys(inside) if is_beside_unspaced(text, position)]
    return pairwise([start, *cuts, end])


def is_beside_unspaced(text: str, position: int) -> bool:
    """Return whether the character at a position, or the one before it, is of a script without blanks."""
    return UNSPACED.search(text, max(0, position - 1), position + 1) is not None
