"""The part of a model's output that is explained: a word's label, a masked word, a box or a group of pixels."""

import re
from dataclasses import dataclass
from typing import Any

from clearhead.errors import BadInput

Offsets = tuple[tuple[int, ...], ...]
Characters = tuple[int, int]


@dataclass(frozen=True)
class FocusedOutput:
    """The part of the output that is explained.

    `name` follows the class, as in "B-PER at “Obama”". `tokens` are its positions in the input, `characters` those of
    a word in its text, `box` the corners of a box or of a group of pixels on the original image. `note` says how it
    was chosen, if not by the caller.
    """

    name: str
    tokens: tuple[int, ...] = ()
    characters: Characters | None = None
    box: tuple[float, float, float, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class FocusedInput:
    """An input with the part of the output that the caller has chosen; None leaves the choice to the model."""

    source: Any
    focus: Any = None


def parse_focus(text: str | None) -> Any:
    """Return words, the index of #N, the characters of START:END, or the box of LEFT,TOP,RIGHT,BOTTOM."""
    index = re.fullmatch(r"#(-?\d+)", text or "")
    if index:
        return int(index[1])
    characters = re.fullmatch(r"(\d+):(\d+)", text or "")
    corners = re.fullmatch(r"(\d+),(\d+),(\d+),(\d+)", text or "")
    numbers = characters or corners
    if numbers:
        return tuple(map(int, numbers.groups()))
    return text


def find_characters(text: str, focus: Any, noun: str) -> Characters:
    """Return where words stand in a text, or the pair of characters itself; `noun` is what the text is called."""
    if isinstance(focus, str):
        return _find_words(text, focus, noun)
    _require_pair(focus, noun)
    start, end = focus
    _require_range(start, end, len(text), noun)
    return start, end


def _require_pair(focus: Any, noun: str) -> None:
    if not is_integer_pair(focus):
        raise BadInput(f"Invalid focus={focus!r}: give words of the {noun}, the index of a token, or (start, end).")


def _require_range(start: int, end: int, length: int, noun: str) -> None:
    # An empty range would hold no token.
    if not 0 <= start < end <= length:
        raise BadInput(f"Characters {start} … {end} are not in the {noun}, which has {length}.")


def is_integer_pair(focus: Any) -> bool:
    """Return whether this may be the start and end of characters."""
    return isinstance(focus, tuple | list) and len(focus) == 2 and all(isinstance(end, int) for end in focus)


def _find_words(text: str, words: str, noun: str) -> Characters:
    """Return the characters of the first occurrence as whole words, else as any characters."""
    _refuse_blanks(words, noun)
    match = _search(re.escape(words.strip()), text)
    if match is None:
        raise BadInput(f"{words!r} does not occur in the {noun} {text!r}.")
    return match.span()


def _refuse_blanks(words: str, noun: str) -> None:
    if not words.strip():
        raise BadInput(f"The focus is empty: give words of the {noun}.")


def _search(escaped: str, text: str) -> re.Match[str] | None:
    # "art" means the word, not a piece of "party", if the text has both.
    return re.search(rf"(?<!\w){escaped}(?!\w)", text) or re.search(escaped, text)


def is_index(focus: Any) -> bool:
    """Return whether a focus is a number; a bool is an integer for Python, but no index."""
    return isinstance(focus, int) and not isinstance(focus, bool)


def find_index(focus: int, count: int, noun: str) -> int:
    """Return an index, which may count from the end, among `count` things; `noun` is what one is called."""
    if not -count <= focus < count:
        raise BadInput(f"Invalid focus {focus}: the input has {noun} 0 … {count - 1}.")
    return focus % count


def overlap(offset: tuple[int, ...], start: int, end: int) -> bool:
    """Return whether a token shares a character with a range; the last two numbers of an offset are its characters."""
    first, last = offset[-2:]
    return first < end and start < last
