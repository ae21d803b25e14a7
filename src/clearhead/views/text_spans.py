"""Split the original text of an explanation into scored spans, keeping every character.

Also spells out characters that are invisible or that reorder the text around them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from operator import attrgetter

from clearhead.arrays import Array
from clearhead.errors import BadInput
from clearhead.explanation import REDUCTIONS, Explanation
from clearhead.model.coverage import READ_SHARE, UNKNOWN_TOKEN
from clearhead.model.text_units import find_larger_unit
from clearhead.views.token_groups import Range, TokenGroup, group_tokens, is_outside_text

LEVELS = ("word", "token")
# More tokens than this per whitespace-separated word mean a script that has no spaces between words.
MAX_TOKENS_PER_WORD = 4
# Line breaks and tabs are control characters, but shown as what they are.
WHITESPACE = "\n\t\r"
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
    """A stretch of text; `relevance` is None between words, `rank` 1 is the most relevant.

    Sentences and sources have a `name` for lists. The model did not read what was cut off, or what it knows as the
    unknown token only.
    """

    text: str
    relevance: float | None = None
    tokens: tuple[str, ...] = ()
    rank: int = 0
    is_read: bool = True
    name: str = ""

    @property
    def relevance_or_zero(self) -> float:
        """Return the relevance; text between words counts as 0."""
        return self.relevance or 0.0


_ScoredRange = tuple[Range, TextSpan]


def require_explanations(explanations: Collection[Explanation]) -> None:
    """Raise BadInput unless `explanations` is a non-empty collection of explanations."""
    if not _are_explanations(explanations):
        raise BadInput(
            "This view takes a list of explanations: put a single explanation in a list, show many inputs one by one."
        )
    if not explanations:
        raise BadInput("There is nothing to show: pass at least one explanation.")


def _are_explanations(explanations: object) -> bool:
    # Generators are refused as well: some views go over the explanations twice.
    if not isinstance(explanations, Collection):
        return False
    return all(isinstance(explanation, Explanation) for explanation in explanations)


def is_image(explanation: Explanation) -> bool:
    """Return whether the input was an image, whose tokens are patches on a grid."""
    return explanation.grid is not None


def content_relevance(explanation: Explanation) -> Array:
    """Return the relevance of the words or patches, without special tokens."""
    return explanation.relevance[~explanation.special]


def default_level(explanation: Explanation) -> str:
    """Return "sentence" or "source" for methods that score these as wholes, else the level of words."""
    return find_larger_unit(explanation) or choose_word_level(explanation)


def choose_word_level(explanation: Explanation) -> str:
    """Return "word", or "token" if there is no text or its script has no spaces between words."""
    if not has_text(explanation):
        return "token"
    # An empty text has no words to divide by.
    words = max(1, _count_words(explanation))
    tokens = (~explanation.special).sum()
    if tokens / words <= MAX_TOKENS_PER_WORD:
        return "word"
    return "token"


def _count_words(explanation: Explanation) -> int:
    return sum(len(segment.split()) for segment in text_segments(explanation))


def other_level(level: str) -> str:
    """Return the level to switch to, "" for sentences and sources, whose words have no relevance of their own."""
    return {"word": "token", "token": "word"}.get(level, "")


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
    groups = group_tokens(explanation, level or default_level(explanation))
    spans = _score_groups(explanation, groups)
    return _split_by_segment(explanation, groups, spans)


def scored_spans(explanation: Explanation, level: str | None = None) -> list[TextSpan]:
    """Return the spans that have a relevance, in reading order."""
    return select_scored(split_segments(explanation, level))


def select_scored(segments: Iterable[Sequence[TextSpan]]) -> list[TextSpan]:
    """Return the spans of all texts without the text between words."""
    return [span for span in chain.from_iterable(segments) if span.relevance is not None]


def strongest_spans(explanation: Explanation, count: int, level: str | None = None) -> list[TextSpan]:
    """Return the spans with the largest absolute relevance; ties by position."""
    spans = scored_spans(explanation, level)
    return sorted(spans, key=lambda span: -abs(span.relevance_or_zero))[:count]


def has_negative(spans: Iterable[TextSpan]) -> bool:
    """Return whether any relevance speaks against the class."""
    return any(span.relevance_or_zero < 0 for span in spans)


def has_negative_text(explanation: Explanation) -> bool:
    """Return whether any word or token speaks against the class; the words may cancel what tokens show."""
    return any(has_negative(scored_spans(explanation, level)) for level in LEVELS)


def special_tokens(explanation: Explanation) -> list[tuple[str, float]]:
    """Return tokens outside the text with their relevance: special tokens, and tokens without characters."""
    # Only answers have pictures, whose tokens are shown on them.
    in_picture = getattr(explanation, "is_picture_token", [False] * len(explanation.tokens))
    tokens = []
    for index, token in enumerate(explanation.tokens):
        if is_outside_text(explanation, index) and not in_picture[index]:
            tokens.append((token, float(explanation.relevance[index])))
    return tokens


def _join_tokens(explanation: Explanation) -> list[TextSpan]:
    """Return the tokens with spaces between them, for inputs whose original text is unknown."""
    spans: list[TextSpan] = []
    for span in _token_spans(explanation):
        if spans:
            spans.append(TextSpan(" "))
        spans.append(span)
    return spans


def _token_spans(explanation: Explanation) -> Iterator[TextSpan]:
    relevances = content_relevance(explanation).tolist()
    tokens = compress(explanation.tokens, ~explanation.special)
    for token, relevance, rank in zip(tokens, relevances, _rank(relevances), strict=True):
        yield TextSpan(token, relevance, (token,), rank)


def _score_groups(explanation: Explanation, groups: Sequence[TokenGroup]) -> list[TextSpan]:
    """Return a span per group with the relevance of its tokens, mostly their sum, and its rank."""
    reduce = REDUCTIONS[explanation.word_reduction]
    relevances = [reduce(explanation.relevance[group.tokens]) for group in groups]
    ranks = _rank(relevances)
    texts = [_read_range(explanation, group.range) for group in groups]
    names = [_token_names(explanation, group) for group in groups]
    are_read = [_is_read(explanation, group) for group in names]
    return list(map(TextSpan, texts, relevances, names, ranks, are_read, map(attrgetter("name"), groups)))


def _is_read(explanation: Explanation, tokens: Sequence[str]) -> bool:
    unknown = explanation.diagnostics.get(UNKNOWN_TOKEN)
    return unknown is None or set(tokens) != {unknown}


def _token_names(explanation: Explanation, group: TokenGroup) -> tuple[str, ...]:
    return tuple(explanation.tokens[index] for index in group.tokens)


def _read_range(explanation: Explanation, characters: Range) -> str:
    return text_segments(explanation)[characters.segment][characters.start : characters.end]


def _rank(values: Sequence[float]) -> list[int]:
    """Return the rank of each value; 1 is the highest, ties by position."""
    # The sort is stable, so that equal values keep their order.
    order = sorted(range(len(values)), key=lambda index: -values[index])
    ranks = [0] * len(values)
    for rank, index in enumerate(order, 1):
        ranks[index] = rank
    return ranks


def _split_by_segment(
    explanation: Explanation, groups: Sequence[TokenGroup], spans: Sequence[TextSpan]
) -> list[list[TextSpan]]:
    """Distribute the spans over the texts of the input and add the text between them."""
    ranges = [group.range for group in groups]
    scored = list(zip(ranges, spans, strict=True))
    segments = []
    for number, text in enumerate(text_segments(explanation)):
        segments.append(_fill_gaps(text, _select_segment(scored, number)))
    if READ_SHARE in explanation.diagnostics:
        return list(map(_mark_ends, segments))
    return segments


def _mark_ends(spans: list[TextSpan]) -> list[TextSpan]:
    """Mark what stands before the first and after the last word of a text that was cut as not read."""
    for index in {0, len(spans) - 1} if spans else ():
        spans[index] = replace(spans[index], is_read=spans[index].relevance is not None)
    return spans


def _select_segment(scored: Iterable[_ScoredRange], number: int) -> list[_ScoredRange]:
    return [entry for entry in scored if entry[0].segment == number]


def _fill_gaps(text: str, scored: Sequence[_ScoredRange]) -> list[TextSpan]:
    # Every character ends up in a span, so that joining them gives the text back.
    spans: list[TextSpan] = []
    position = 0
    for characters, span in scored:
        spans += [TextSpan(text[position : characters.start]), span]
        position = characters.end
    spans.append(TextSpan(text[position:]))
    # Where words touch there is nothing between them.
    return [span for span in spans if span.text]


def is_hidden(text: str, index: int) -> bool:
    """Return whether a character is invisible or reorders others."""
    character = text[index]
    if character in JOINERS:
        return not _joins(text, index)
    if character in WHITESPACE:
        return False
    return _is_in_hidden_range(ord(character))


def _is_in_hidden_range(code: int) -> bool:
    return any(first <= code <= last for first, last in HIDDEN)


def _joins(text: str, index: int) -> bool:
    # Joiners belong to emoji sequences and to scripts such as Persian; before an ASCII character they only hide.
    following = text[index + 1 : index + 2]
    return bool(following) and not following.isascii()


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
