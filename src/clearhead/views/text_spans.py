"""Split the original text of an explanation into scored spans, keeping every character.

Also spells out characters that are invisible or that reorder the text around them.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clearhead.errors import BadInput
from clearhead.explanation import Explanation

LEVELS = ("word", "token")
# More tokens than this per whitespace-separated word mean a script that has no spaces between words.
MAX_TOKENS_PER_WORD = 4
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
class TextSpan:
    """A stretch of text; `relevance` is None between words, `rank` 1 is the most relevant."""

    text: str
    relevance: float | None = None
    tokens: tuple[str, ...] = ()
    rank: int = 0


class _Range(NamedTuple):
    """Characters `start` to `end` of one text of the input; a tuple, because long texts compare many of them."""

    segment: int
    start: int
    end: int


@dataclass(frozen=True)
class _TokenGroup:
    """A range of characters and the indices of the tokens whose relevance it shows."""

    range: _Range
    tokens: list[int]


def require_explanations(explanations: Collection[Explanation]) -> None:
    """Raise BadInput unless `explanations` is a non-empty collection of explanations."""
    is_collection = isinstance(explanations, Collection)
    if not is_collection or not all(isinstance(explanation, Explanation) for explanation in explanations):
        raise BadInput(
            "This view takes a list of explanations: put a single explanation in a list, show many inputs one by one."
        )
    if not explanations:
        raise BadInput("There is nothing to show: pass at least one explanation.")


def default_level(explanation: Explanation) -> str:
    """Return "word", or "token" if there is no text or its script has no spaces between words."""
    if not has_text(explanation):
        return "token"
    words = sum(len(segment.split()) for segment in text_segments(explanation))
    tokens = (~explanation.special).sum()
    if tokens / max(1, words) <= MAX_TOKENS_PER_WORD:
        return "word"
    return "token"


def other_level(level: str) -> str:
    """Return the level that is not `level`."""
    if level == "token":
        return "word"
    return "token"


def has_text(explanation: Explanation) -> bool:
    """Return whether the original text and the positions of the tokens in it are known."""
    return explanation.text is not None and explanation.offsets is not None


def text_segments(explanation: Explanation) -> tuple[str, ...]:
    """Return the texts of the input: two for a pair, none for an image or for tensors."""
    if explanation.text is None:
        return ()
    if isinstance(explanation.text, tuple):
        return explanation.text
    return (explanation.text,)


def split_segments(explanation: Explanation, level: str | None = None) -> list[list[TextSpan]]:
    """Return the spans of each text of the input in order; joined they are the original text."""
    if not has_text(explanation):
        return [_join_tokens(explanation)]
    if (level or default_level(explanation)) == "word":
        groups = _group_by_word(explanation)
    else:
        groups = _group_by_token(explanation)
    spans = _score_groups(explanation, groups)
    return _split_by_segment(explanation, groups, spans)


def scored_spans(explanation: Explanation, level: str | None = None) -> list[TextSpan]:
    """Return the spans that have a relevance, in reading order."""
    return select_scored(split_segments(explanation, level))


def select_scored(segments: Iterable[Sequence[TextSpan]]) -> list[TextSpan]:
    """Return the spans of all texts without the text between words."""
    spans: list[TextSpan] = []
    for segment in segments:
        spans += [span for span in segment if span.relevance is not None]
    return spans


def strongest_spans(explanation: Explanation, count: int, level: str | None = None) -> list[TextSpan]:
    """Return the spans with the largest absolute relevance; ties by position."""
    spans = scored_spans(explanation, level)
    return sorted(spans, key=lambda span: -abs(span.relevance or 0.0))[:count]


def max_relevance(spans: Iterable[TextSpan]) -> float:
    """Return the largest absolute relevance, which gets the full colour; 0 if none is finite."""
    largest = 0.0
    for span in spans:
        if span.relevance is not None and np.isfinite(span.relevance):
            largest = max(largest, abs(span.relevance))
    return largest


def has_negative(spans: Iterable[TextSpan]) -> bool:
    """Return whether any relevance speaks against the class."""
    return any((span.relevance or 0.0) < 0 for span in spans)


def has_negative_text(explanation: Explanation) -> bool:
    """Return whether any word or token speaks against the class; the words may cancel what tokens show."""
    return any(has_negative(scored_spans(explanation, level)) for level in LEVELS)


def special_tokens(explanation: Explanation) -> list[tuple[str, float]]:
    """Return tokens outside the text with their relevance: special tokens, and tokens without characters."""
    tokens = []
    for index, token in enumerate(explanation.tokens):
        if explanation.special[index] or _is_empty(explanation, index):
            tokens.append((token, float(explanation.relevance[index])))
    return tokens


def _is_empty(explanation: Explanation, index: int) -> bool:
    if not explanation.offsets:
        return False
    start, end = explanation.offsets[index][-2:]
    return end <= start


def _join_tokens(explanation: Explanation) -> list[TextSpan]:
    """Return the tokens with spaces between them, for inputs whose original text is unknown."""
    indices = np.flatnonzero(~explanation.special)
    relevances = [float(explanation.relevance[index]) for index in indices]
    spans: list[TextSpan] = []
    for index, relevance, rank in zip(indices, relevances, _rank(relevances), strict=True):
        if spans:
            spans.append(TextSpan(" "))
        token = explanation.tokens[index]
        spans.append(TextSpan(token, relevance, (token,), rank))
    return spans


def _group_by_word(explanation: Explanation) -> list[_TokenGroup]:
    """Group the tokens by the whitespace-separated word they begin in.

    The result equals `Explanation.words`, but is found in one pass over the tokens instead of one per word.
    """
    words = _find_words(explanation)
    owned: dict[int, list[int]] = {}
    for index, token in _token_ranges(explanation):
        # The last word that begins at or before the token; sys.maxsize compares above every end.
        word = bisect_right(words, _Range(token.segment, token.start, sys.maxsize)) - 1
        if word >= 0 and _contains_start(words[word], token):
            owned.setdefault(word, []).append(index)
    return [_TokenGroup(words[word], tokens) for word, tokens in sorted(owned.items())]


def _find_words(explanation: Explanation) -> list[_Range]:
    words = []
    for number, segment in enumerate(text_segments(explanation)):
        for match in re.finditer(r"\S+", segment):
            words.append(_Range(number, *match.span()))
    return words


def _contains_start(word: _Range, token: _Range) -> bool:
    return word.segment == token.segment and token.start < word.end


def _token_ranges(explanation: Explanation) -> list[tuple[int, _Range]]:
    """Return index and range of every token that has characters of its own."""
    ranges = []
    for index, offset in enumerate(explanation.offsets or ()):
        start, end = offset[-2:]
        if not explanation.special[index] and end > start:
            segment = offset[0] if len(offset) == 3 else 0
            ranges.append((index, _Range(segment, start, end)))
    return ranges


def _group_by_token(explanation: Explanation) -> list[_TokenGroup]:
    """Return a group per token; tokens that share characters, such as the bytes of an emoji, are one group."""
    groups: list[_TokenGroup] = []
    for index, token in sorted(_token_ranges(explanation), key=lambda entry: entry[1]):
        if groups and _contains_start(groups[-1].range, token):
            groups[-1] = _extend(groups[-1], index, token)
        else:
            groups.append(_TokenGroup(token, [index]))
    return groups


def _extend(group: _TokenGroup, index: int, token: _Range) -> _TokenGroup:
    end = max(group.range.end, token.end)
    return _TokenGroup(group.range._replace(end=end), [*group.tokens, index])


def _score_groups(explanation: Explanation, groups: Sequence[_TokenGroup]) -> list[TextSpan]:
    """Return a span per group with the sum of its tokens' relevance and its rank."""
    # Ranks need all sums first.
    sums = [float(explanation.relevance[group.tokens].sum()) for group in groups]
    spans = []
    for group, total, rank in zip(groups, sums, _rank(sums), strict=True):
        tokens = tuple(explanation.tokens[index] for index in group.tokens)
        spans.append(TextSpan(_read_range(explanation, group.range), total, tokens, rank))
    return spans


def _read_range(explanation: Explanation, characters: _Range) -> str:
    text = text_segments(explanation)[characters.segment]
    return text[characters.start : characters.end]


def _rank(values: Sequence[float]) -> list[int]:
    """Return the rank of each value; 1 is the highest, ties by position."""
    order = sorted(range(len(values)), key=lambda index: -values[index])
    ranks = [0] * len(values)
    for rank, index in enumerate(order, 1):
        ranks[index] = rank
    return ranks


def _split_by_segment(
    explanation: Explanation, groups: Sequence[_TokenGroup], spans: Sequence[TextSpan]
) -> list[list[TextSpan]]:
    """Distribute the spans over the texts of the input and add the text between them."""
    scored: list[list[tuple[_Range, TextSpan]]] = [[] for _ in text_segments(explanation)]
    for group, span in zip(groups, spans, strict=True):
        scored[group.range.segment].append((group.range, span))
    return [_fill_gaps(*pair) for pair in zip(text_segments(explanation), scored, strict=True)]


def _fill_gaps(text: str, scored: Sequence[tuple[_Range, TextSpan]]) -> list[TextSpan]:
    # Every character ends up in a span, so that joining them gives the text back.
    spans: list[TextSpan] = []
    position = 0
    for span_range, span in scored:
        if span_range.start > position:
            spans.append(TextSpan(text[position : span_range.start]))
        spans.append(span)
        position = span_range.end
    if position < len(text):
        spans.append(TextSpan(text[position:]))
    return spans


def is_hidden(text: str, index: int) -> bool:
    """Return whether a character is invisible or reorders others."""
    character = text[index]
    # Joiners belong to emoji sequences and to scripts such as Persian; between ASCII characters they only hide.
    if character in JOINERS:
        return not (index + 1 < len(text) and ord(text[index + 1]) > 0x7F)
    if character in "\n\t\r":
        return False
    code = ord(character)
    return any(first <= code <= last for first, last in HIDDEN)


def escape_hidden(text: str) -> str:
    """Return the text with hidden characters spelled out as ⟨U+202E⟩, so that it contains no escape sequence."""
    characters = list(text)
    for index, character in enumerate(text):
        if is_hidden(text, index):
            characters[index] = spell_out(character)
    return "".join(characters)


def spell_out(character: str) -> str:
    """Return the code point of a hidden character as ⟨U+202E⟩."""
    return f"⟨U+{ord(character):04X}⟩"
