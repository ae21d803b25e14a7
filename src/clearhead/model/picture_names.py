"""Names of pictures in the text of a prompt, in place of their many image tokens."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.model.batches import Item

MARKUP = re.compile(r"<(fake_token_around_image|global-img|row_\d+_col_\d+|\|vision_(start|end)\|)>")
"""Tokens that enclose a picture or name its tiles."""


def collapse_pictures(item: Item, ends: Sequence[tuple[int, int]]) -> Item:
    """Return an item in whose text a short name stands for all tokens of a picture, from its first to its last."""
    # From the last, so that what comes before keeps its characters.
    for number, (first, last) in reversed(list(enumerate(ends, 1))):
        item = _collapse_picture(item, *_add_markup(item.tokens, first, last), f"[picture {number}]")
    return item


def _add_markup(tokens: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Return the first and last token of a picture with the markup around it."""
    while first and MARKUP.fullmatch(tokens[first - 1]):
        first -= 1
    while last + 1 < len(tokens) and MARKUP.fullmatch(tokens[last + 1]):
        last += 1
    return first, last


def _collapse_picture(item: Item, first: int, last: int, name: str) -> Item:
    """Return an item in which the tokens from the first to the last are special, and have one name as their text."""
    special = _replace_slice(item.special, first, last, [True] * (last + 1 - first))
    if item.offsets is None:
        return replace(item, special=special)
    start, end = item.offsets[first][0], item.offsets[last][1]
    text = str(item.text)[:start] + name + str(item.text)[end:]
    # The name is shown at the first token; the others have no characters.
    collapsed = [(start, start + len(name)), *[(0, 0)] * (last - first)]
    offsets = _replace_slice(item.offsets, first, last, collapsed)
    return replace(item, text=text, special=special, offsets=_move_after(offsets, last, len(name) - (end - start)))


def _replace_slice(values: Sequence[Any], first: int, last: int, inserted: Sequence[Any]) -> tuple[Any, ...]:
    return (*values[:first], *inserted, *values[last + 1 :])


def _move_after(offsets: Sequence[tuple[int, ...]], last: int, shift: int) -> tuple[tuple[int, ...], ...]:
    """Return the characters of tokens, with those after a token moved."""
    return (*offsets[: last + 1], *(_move(offset, shift) for offset in offsets[last + 1 :]))


def _move(offset: tuple[int, ...], shift: int) -> tuple[int, ...]:
    # Special tokens have an empty span at the beginning.
    if offset == (0, 0):
        return offset
    return (offset[0] + shift, offset[1] + shift)
