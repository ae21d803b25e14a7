"""Groups of tokens that views show as one: words, tokens, or the sentences and sources that a method hid as wholes."""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from operator import itemgetter
from typing import NamedTuple

from clearhead.explanation import Explanation
from clearhead.model.text_units import list_units


class Range(NamedTuple):
    """Characters `start` to `end` of one text of the input; a tuple, because long texts compare many of them."""

    segment: int
    start: int
    end: int


@dataclass(frozen=True)
class TokenGroup:
    """A range of characters and the indices of the tokens whose relevance it shows; larger units have a name."""

    range: Range
    tokens: list[int]
    name: str = ""


def group_tokens(explanation: Explanation, level: str) -> list[TokenGroup]:
    """Return the groups of a level: "word", "token", "sentence" or "source"."""
    return GROUPINGS[level](explanation)


def _group_by_unit(explanation: Explanation) -> list[TokenGroup]:
    groups = []
    for unit in list_units(explanation):
        groups.append(TokenGroup(Range(unit.segment, unit.start, unit.end), unit.tokens, unit.label))
    return groups


def _group_by_word(explanation: Explanation) -> list[TokenGroup]:
    """Group the tokens by the whitespace-separated word they begin in.

    The result equals `Explanation.words`, but is found in one pass over the tokens instead of one per word.
    """
    words = _find_words(explanation)
    owned: dict[Range, list[int]] = defaultdict(list)
    for index, token in _token_ranges(explanation):
        word = _find_owner(words, token)
        if word is not None:
            owned[word].append(index)
    return [TokenGroup(word, tokens) for word, tokens in sorted(owned.items())]


def _find_owner(words: Sequence[Range], token: Range) -> Range | None:
    """Return the word that the token begins in; None if it begins between words."""
    # Ranges compare by segment, start and end; sys.maxsize is above every end.
    following = bisect_right(words, token._replace(end=sys.maxsize))
    if following and _contains_start(words[following - 1], token):
        return words[following - 1]
    return None


def _find_words(explanation: Explanation) -> list[Range]:
    return list(starmap(Range, explanation.find_words()))


def _contains_start(word: Range, token: Range) -> bool:
    return word.segment == token.segment and token.start < word.end


def _token_ranges(explanation: Explanation) -> list[tuple[int, Range]]:
    """Return index and range of every token that has characters of its own."""
    ranges = []
    for index, offset in enumerate(explanation.offsets or ()):
        if not is_outside_text(explanation, index):
            ranges.append((index, _parse_offset(offset)))
    return ranges


def _parse_offset(offset: tuple[int, ...]) -> Range:
    # Offsets of a pair begin with the index of the text, those of a single text do not.
    if len(offset) == 3:
        return Range(*offset)
    return Range(0, *offset)


def _group_by_token(explanation: Explanation) -> list[TokenGroup]:
    """Return a group per token; tokens that share characters, such as the bytes of an emoji, are one group."""
    groups: list[TokenGroup] = []
    # Only neighbours are merged, so the tokens have to be in reading order.
    for index, token in sorted(_token_ranges(explanation), key=itemgetter(1)):
        if groups and _contains_start(groups[-1].range, token):
            groups.append(_extend(groups.pop(), index, token))
        else:
            groups.append(TokenGroup(token, [index]))
    return groups


def _extend(group: TokenGroup, index: int, token: Range) -> TokenGroup:
    end = max(group.range.end, token.end)
    return TokenGroup(group.range._replace(end=end), [*group.tokens, index])


GROUPINGS = {
    "word": _group_by_word,
    "token": _group_by_token,
    "sentence": _group_by_unit,
    "source": _group_by_unit,
}


def is_outside_text(explanation: Explanation, index: int) -> bool:
    """Return whether a token is special, or has no characters."""
    return bool(explanation.special[index]) or _is_empty(explanation, index)


def _is_empty(explanation: Explanation, index: int) -> bool:
    # Tokenizers give an empty range to tokens that they added, and to some blanks.
    if not explanation.offsets:
        return False
    start, end = explanation.offsets[index][-2:]
    return end <= start
