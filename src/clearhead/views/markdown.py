"""Markdown for issues and notes: the text with its strong words emphasised, and a table of them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from clearhead.explanation import Explanation
from clearhead.views.captions import format_diagnostics, format_headline, format_relevance
from clearhead.views.text_spans import (
    TextSpan,
    default_level,
    escape_hidden,
    max_relevance,
    select_scored,
    split_segments,
    strongest_spans,
)

MAX_TABLE_ROWS = 10
# A word is emphasised from a third of the strongest word's relevance on.
EMPHASIS_DIVISOR = 3
SPECIAL_CHARACTERS = "\\`*_[]<>#|~&$!"
LIST_MARKER = re.compile(r"^(\s*\d*)([-+.)=])")
ESCAPED_LIST_MARKER = r"\1\\\2"


def document(explanations: Sequence[Explanation]) -> str:
    """Render a section per explanation."""
    return "\n".join(map(section, explanations))


def comparison(explanations: Mapping[str, Explanation]) -> str:
    """Render a section per method."""
    return "\n".join(map(section, explanations.values()))


def section(explanation: Explanation) -> str:
    """Render heading, quoted text with strong words emphasised, table, model and diagnostics."""
    lines = [f"## {escape(format_headline(explanation))}", ""]
    lines += _quote_text(explanation)
    lines += _list_strongest(explanation)
    lines.append("")
    notes = " · ".join(filter(None, [explanation.model, format_diagnostics(explanation)]))
    if notes:
        lines.append(f"{escape(notes)}\n")
    return "\n".join(lines)


def _quote_text(explanation: Explanation) -> Iterator[str]:
    """Iterate over the lines of the text; words for the class are bold, words against it in italics."""
    if explanation.grid is not None:
        return
    segments = split_segments(explanation)
    is_word_level = default_level(explanation) == "word"
    full = max_relevance(select_scored(segments))
    for segment in segments:
        text = "".join(_emphasise(span, full, is_word_level) for span in segment)
        for line in text.splitlines():
            yield f"> {_escape_list_marker(line)}"
        yield ">"
    yield f"> **bold** speaks for {escape(explanation.label)}, *italics* against it"
    yield ""


def _emphasise(span: TextSpan, full: float, is_word_level: bool) -> str:
    text = "\n".join(map(_escape_characters, span.text.split("\n")))
    is_strong = span.relevance is not None and abs(span.relevance) * EMPHASIS_DIVISOR >= full > 0
    # Inside a word, Markdown takes stars as emphasis only around letters and digits.
    can_be_emphasised = is_word_level or span.text.isalnum()
    if not is_strong or not can_be_emphasised:
        return text
    mark = "**" if (span.relevance or 0.0) > 0 else "*"
    return f"{mark}{text}{mark}"


def _list_strongest(explanation: Explanation) -> list[str]:
    name = default_level(explanation)
    if explanation.grid is not None:
        name = "patch"
    lines = [f"| {name} | relevance | rank |", "|:--|--:|--:|"]
    for span in strongest_spans(explanation, MAX_TABLE_ROWS):
        lines.append(f"| {escape(span.text)} | {format_relevance(span.relevance or 0.0)} | {span.rank} |")
    return lines


def escape(text: str) -> str:
    """Escape every character that Markdown or HTML would interpret."""
    return _escape_list_marker(_escape_characters(text))


def _escape_list_marker(line: str) -> str:
    return LIST_MARKER.sub(ESCAPED_LIST_MARKER, line)


def _escape_characters(text: str) -> str:
    characters = []
    # Line breaks would end a table row, a heading or a quote.
    for character in escape_hidden(text):
        if character in SPECIAL_CHARACTERS:
            characters.append(f"\\{character}")
        elif character in "\r\n\t":
            characters.append(" ")
        else:
            characters.append(character)
    return "".join(characters)
