"""Parts that the Markdown views share: escaped text, emphasised words, quotes."""

import re
from collections.abc import Iterator
from functools import partial

from clearhead.views.scale import Scale
from clearhead.views.text_spans import WHITESPACE, TextSpan, escape_hidden

# A word is emphasised from a third of the relevance of the full colour on.
EMPHASIS_DIVISOR = 3
# Markdown, HTML and the formulas of GitHub and Jupyter.
SPECIAL_CHARACTERS = "\\`*_[]<>#|~&$!"
# At the start of a line these begin a list or underline a heading.
LIST_MARKER = re.compile(r"^(\s*\d*)([-+.)=])")
ESCAPED_LIST_MARKER = r"\1\\\2"


def emphasise(span: TextSpan, scale: Scale, is_word_level: bool) -> str:
    """Return the escaped text of a span; words for the class are bold, words against it in italics."""
    # Line breaks are kept here: each line of the text becomes a line of the quote.
    text = "\n".join(map(_escape_characters, span.text.split("\n")))
    # Inside a word, Markdown takes stars as emphasis only around letters and digits.
    can_be_emphasised = is_word_level or span.text.isalnum()
    if not _is_strong(span, scale) or not can_be_emphasised:
        return text
    # Emphasis does not go on after an empty line, which sources may contain.
    return re.sub(r"\S(?:.*\S)?", partial(_surround, _choose_mark(span)), text)


def _surround(mark: str, match: re.Match[str]) -> str:
    return f"{mark}{match.group()}{mark}"


def _is_strong(span: TextSpan, scale: Scale) -> bool:
    return span.is_read and abs(span.relevance_or_zero) * EMPHASIS_DIVISOR >= scale.full > 0


def _choose_mark(span: TextSpan) -> str:
    if span.relevance_or_zero > 0:
        return "**"
    return "*"


def escape(text: str) -> str:
    """Escape every character that Markdown or HTML would interpret."""
    return _escape_list_marker(_escape_characters(text))


def _escape_list_marker(line: str) -> str:
    return LIST_MARKER.sub(ESCAPED_LIST_MARKER, line)


def _escape_characters(text: str) -> str:
    return "".join(map(_escape_character, escape_hidden(text)))


def _escape_character(character: str) -> str:
    if character in SPECIAL_CHARACTERS:
        return f"\\{character}"
    # Line breaks would end a table row, a heading or a quote.
    if character in WHITESPACE:
        return " "
    return character


def quote(text: str) -> Iterator[str]:
    """Iterate over the lines of an escaped text as a quotation."""
    for line in text.splitlines():
        yield f"> {_escape_list_marker(line)}"
