"""Units larger than words: the sentences or sources that a method hid as wholes, and scores as wholes."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from clearhead.explanation import Explanation

LARGER_UNITS = ("sentence", "source")
SENTENCE_PATTERN = r"\S.*?(?:[.!?]+(?=\s|$)|$)"


_Position = tuple[int, int]
"""A text of the input, and one of its characters."""


class _Span(NamedTuple):
    """Characters of one text of the input; ordered by where they stand."""

    segment: int
    start: int
    end: int
    name: str = ""


@dataclass(frozen=True)
class TextUnit:
    """Characters of one text of the input that were hidden together, and the indices of their tokens.

    `name` is that of a source, "" for a sentence.
    """

    name: str
    text: str
    segment: int
    start: int
    end: int
    tokens: list[int]

    @property
    def label(self) -> str:
        """The name, if there is one, and the text."""
        return ": ".join(filter(None, [self.name, self.text]))


def find_larger_unit(explanation: "Explanation") -> str:
    """Return "sentence" or "source" if the method scored these as wholes, else ""."""
    unit = explanation.diagnostics.get("unit")
    return str(unit) if unit in LARGER_UNITS and _has_text(explanation) else ""


def _has_text(explanation: "Explanation") -> bool:
    return explanation.text is not None and bool(explanation.offsets)


def list_units(explanation: "Explanation") -> list[TextUnit]:
    """Return the sentences or sources of an explanation that has them, in reading order."""
    owned = _assign_tokens(explanation, _list_spans(explanation))
    # Those of a text that was cut have no tokens.
    return [_make_unit(explanation, span, tokens) for span, tokens in sorted(owned.items())]


def _assign_tokens(explanation: "Explanation", spans: Sequence[_Span]) -> dict[_Span, list[int]]:
    """Return the tokens that start in each span, but for special ones."""
    owned: dict[_Span, list[int]] = defaultdict(list)
    for index, offset in enumerate(explanation.offsets or ()):
        span = _find_owner(spans, _read_start(offset))
        if span is not None and not explanation.special[index]:
            owned[span].append(index)
    return owned


def _list_spans(explanation: "Explanation") -> list[_Span]:
    if find_larger_unit(explanation) == "source":
        return sorted(_list_sources(explanation))
    return list(_find_sentences(_list_texts(explanation)))


def _list_sources(explanation: "Explanation") -> Iterator[_Span]:
    for source in getattr(explanation, "source_spans", ()):
        yield _Span(0, source.start, source.end, source.name)


def _find_sentences(texts: Iterable[str]) -> Iterator[_Span]:
    for segment, text in enumerate(texts):
        for match in re.finditer(SENTENCE_PATTERN, text, re.S):
            yield _Span(segment, *match.span())


def _list_texts(explanation: "Explanation") -> tuple[str, ...]:
    if isinstance(explanation.text, tuple):
        return explanation.text
    return (explanation.text or "",)


def _read_start(offset: tuple[int, ...]) -> _Position:
    # Offsets of a single text do not name it.
    return (0, *offset)[-3], offset[-2]


def _get_position(span: _Span) -> _Position:
    return span.segment, span.start


def _find_owner(spans: Sequence[_Span], position: _Position) -> _Span | None:
    """Return the span that holds a character, None if none does."""
    following = bisect_right(spans, position, key=_get_position)
    if following and position < (spans[following - 1].segment, spans[following - 1].end):
        return spans[following - 1]
    return None


def _make_unit(explanation: "Explanation", span: _Span, tokens: list[int]) -> TextUnit:
    start, end = _find_characters(explanation, span, tokens)
    text = _list_texts(explanation)[span.segment][start:end]
    return TextUnit(span.name, text, span.segment, start, end, tokens)


def _find_characters(explanation: "Explanation", span: _Span, tokens: list[int]) -> tuple[int, int]:
    """Return where a source stands, or the tokens of a sentence, without the template of a chat around them."""
    if span.name:
        return span.start, span.end
    offsets = explanation.offsets or ()
    return offsets[tokens[0]][-2], offsets[tokens[-1]][-1]
