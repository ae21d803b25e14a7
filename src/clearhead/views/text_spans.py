"""Pieces: the original text cut where relevance changes, every character kept; and how hidden characters show."""

import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.errors import BadInput
from clearhead.explanation import Explanation

LEVELS = ("word", "token")
TOKENS_PER_WORD = 4
JOINERS = "\u200c\u200d"
# Controls, soft hyphen, fillers, zero widths, bidi marks, surrogates, byte order mark, annotations, tags.
HIDDEN = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xDFFF),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE00FF),
)


@dataclass(frozen=True)
class Piece:
    """A stretch of text; `relevance` is None between words, `rank` 1 is the most relevant."""

    text: str
    relevance: float | None = None
    tokens: tuple[str, ...] = ()
    rank: int = 0


def require_explanations(given: Collection[Explanation]) -> None:
    """Refuses what a view of several explanations cannot show."""
    if not isinstance(given, Collection) or not all(isinstance(one, Explanation) for one in given):
        raise BadInput("This view takes a list of explanations: put a single one in a list, show many inputs in turn.")
    if not given:
        raise BadInput("There is nothing to show: give at least one explanation.")


def level_for(explanation: Explanation) -> str:
    """Words where the script has blanks between them, tokens where it has not or where there is no text."""
    if explanation.text is None or explanation.offsets is None:
        return "token"
    words = max(1, sum(len(segment.split()) for segment in segments(explanation)))
    return "word" if (~explanation.special).sum() / words <= TOKENS_PER_WORD else "token"


def segments(explanation: Explanation) -> tuple[str, ...]:
    text = explanation.text
    return text if isinstance(text, tuple) else () if text is None else (text,)


def pieces(explanation: Explanation, level: str | None = None) -> list[list[Piece]]:
    """Per text of the input its pieces in order; joined they are the original text."""
    if explanation.text is None or explanation.offsets is None:
        return [_bare(explanation)]
    spans = _word_spans(explanation) if (level or level_for(explanation)) == "word" else _token_spans(explanation)
    return [
        _filled(segment, [span for span in spans if span[0] == number])
        for number, segment in enumerate(segments(explanation))
    ]


def scored(explanation: Explanation, level: str | None = None) -> list[Piece]:
    """Only the pieces that carry relevance, in reading order."""
    return [piece for part in pieces(explanation, level) for piece in part if piece.relevance is not None]


def strongest(explanation: Explanation, count: int, level: str | None = None) -> list[Piece]:
    """The pieces with the largest relevance of either sign; ties by position."""
    return sorted(scored(explanation, level), key=lambda piece: -abs(piece.relevance or 0.0))[:count]


def largest(several: Iterable[Piece]) -> float:
    """The largest size of any relevance: what the full colour stands for."""
    sizes = [abs(piece.relevance) for piece in several if piece.relevance is not None and np.isfinite(piece.relevance)]
    return max(sizes, default=0.0)


def aside(explanation: Explanation) -> list[tuple[str, float]]:
    """Tokens that are no part of the text: special ones, and those without characters."""
    empty = [offset[-1] <= offset[-2] for offset in explanation.offsets or ()] or [False] * len(explanation.tokens)
    return [
        (token, float(relevance))
        for token, relevance, special, nothing in zip(
            explanation.tokens, explanation.relevance, explanation.special, empty, strict=True
        )
        if special or nothing
    ]


# --- cutting ---------------------------------------------------------------------------------------------------

Span = tuple[int, int, int, Piece]


def _bare(explanation: Explanation) -> list[Piece]:
    """Tokens with blanks between them, where the original text is not known."""
    kept = np.flatnonzero(~explanation.special)
    ranks = _ranks([float(explanation.relevance[place]) for place in kept])
    found: list[Piece] = []
    for place, rank in zip(kept, ranks, strict=True):
        token = explanation.tokens[place]
        found += [Piece(" ")] if found else []
        found.append(Piece(token, float(explanation.relevance[place]), (token,), rank))
    return found


def _word_spans(explanation: Explanation) -> list[Span]:
    """Words between blanks with the sum of the tokens that begin in them, like `Explanation.words`, in one pass."""
    words = [
        (number, *match.span())
        for number, segment in enumerate(segments(explanation))
        for match in re.finditer(r"\S+", segment)
    ]
    owned: dict[int, list[int]] = {}
    for place, (segment, start, _) in _placed(explanation):
        word = bisect_right(words, (segment, start, sys.maxsize)) - 1
        if word >= 0 and words[word][0] == segment and start < words[word][2]:
            owned.setdefault(word, []).append(place)
    found = sorted(owned.items())
    return _spans(explanation, [(words[word], places) for word, places in found])


def _spans(explanation: Explanation, owned: Sequence[tuple[tuple[int, int, int], list[int]]]) -> list[Span]:
    """Stretches of text with the tokens they own, as pieces with their sums and ranks."""
    sums = [float(explanation.relevance[places].sum()) for _, places in owned]
    return [
        (*span, Piece("", total, tuple(explanation.tokens[place] for place in places), rank))
        for (span, places), total, rank in zip(owned, sums, _ranks(sums), strict=True)
    ]


def _placed(explanation: Explanation) -> list[tuple[int, tuple[int, int, int]]]:
    """Tokens with characters of their own: place, and (segment, start, end)."""
    return [
        (place, (offset[0] if len(offset) == 3 else 0, offset[-2], offset[-1]))
        for place, offset in enumerate(explanation.offsets or ())
        if not explanation.special[place] and offset[-1] > offset[-2]
    ]


def _token_spans(explanation: Explanation) -> list[Span]:
    """Tokens that share characters, as the bytes of an emoji do, become one span with their sum."""
    merged: list[tuple[tuple[int, int, int], list[int]]] = []
    for place, (segment, start, end) in sorted(_placed(explanation), key=lambda entry: entry[1]):
        if merged and merged[-1][0][0] == segment and start < merged[-1][0][2]:
            (_, before, until), places = merged[-1]
            merged[-1] = ((segment, before, max(until, end)), [*places, place])
        else:
            merged.append(((segment, start, end), [place]))
    return _spans(explanation, merged)


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda place: -values[place])
    ranks = [0] * len(values)
    for rank, place in enumerate(order, 1):
        ranks[place] = rank
    return ranks


def _filled(text: str, spans: Sequence[Span]) -> list[Piece]:
    found: list[Piece] = []
    at = 0
    for _, start, end, piece in spans:
        found += [Piece(text[at:start])] if start > at else []
        found.append(Piece(text[start:end], piece.relevance, piece.tokens, piece.rank))
        at = end
    return found + ([Piece(text[at:])] if at < len(text) else [])


# --- characters that do not show themselves --------------------------------------------------------------------


def is_hidden(text: str, place: int) -> bool:
    """Whether the character cannot be seen or reorders others; joiners inside emoji and scripts are left alone."""
    character = text[place]
    if character in JOINERS:
        return not (place + 1 < len(text) and ord(text[place + 1]) > 0x7F)
    code = ord(character)
    return any(first <= code <= last for first, last in HIDDEN) and character not in "\n\t\r"


def visible(text: str) -> str:
    """The text with hidden characters spelled out as ⟨U+202E⟩; never an escape sequence."""
    return "".join(shown(character) if is_hidden(text, place) else character for place, character in enumerate(text))


def shown(character: str) -> str:
    """How one hidden character is spelled."""
    return f"⟨U+{ord(character):04X}⟩"
