"""Markdown for issues and notes: the text with its strong words emphasised, and a table of them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from clearhead.explanation import Explanation
from clearhead.views.captions import format_diagnostics, format_headline, format_relevance
from clearhead.views.heads import HeadGrid
from clearhead.views.text_spans import (
    WHITESPACE,
    TextSpan,
    default_level,
    escape_hidden,
    is_image,
    max_relevance,
    select_scored,
    split_segments,
    strongest_spans,
)

MAX_TABLE_ROWS = 10
# A word is emphasised from a third of the strongest word's relevance on.
EMPHASIS_DIVISOR = 3
# Markdown, HTML and the formulas of GitHub and Jupyter.
SPECIAL_CHARACTERS = "\\`*_[]<>#|~&$!"
# At the start of a line these begin a list or underline a heading.
LIST_MARKER = re.compile(r"^(\s*\d*)([-+.)=])")
ESCAPED_LIST_MARKER = r"\1\\\2"


def document(explanations: Sequence[Explanation]) -> str:
    """Render a section per explanation."""
    return "\n".join(map(section, explanations))


def comparison(explanations: Mapping[str, Explanation]) -> str:
    """Render a section per method."""
    return "\n".join(map(section, explanations.values()))


def section(explanation: Explanation) -> str:
    """Render heading, quoted text with strong words emphasised, tables, model and diagnostics."""
    lines = [f"## {escape(format_headline(explanation))}", ""]
    lines += _quote_text(explanation)
    lines += _list_strongest(explanation)
    # A blank line ends the table.
    lines.append("")
    lines += _list_heads(explanation)
    notes = _list_notes(explanation)
    if notes:
        lines.append(f"{escape(notes)}\n")
    return "\n".join(lines)


def _list_notes(explanation: Explanation) -> str:
    notes = [explanation.model, format_diagnostics(explanation)]
    return " · ".join(filter(None, notes))


def _quote_text(explanation: Explanation) -> Iterator[str]:
    """Iterate over the lines of the text; words for the class are bold, words against it in italics."""
    if is_image(explanation):
        return
    for text in _emphasise_segments(explanation):
        for line in text.splitlines():
            yield f"> {_escape_list_marker(line)}"
        yield ">"
    yield f"> **bold** speaks for {escape(explanation.label)}, *italics* against it"
    yield ""


def _emphasise_segments(explanation: Explanation) -> Iterator[str]:
    segments = split_segments(explanation)
    is_word_level = default_level(explanation) == "word"
    full = max_relevance(select_scored(segments))
    for segment in segments:
        yield "".join(_emphasise(span, full, is_word_level) for span in segment)


def _emphasise(span: TextSpan, full: float, is_word_level: bool) -> str:
    # Line breaks are kept here: each line of the text becomes a line of the quote.
    text = "\n".join(map(_escape_characters, span.text.split("\n")))
    # Inside a word, Markdown takes stars as emphasis only around letters and digits.
    can_be_emphasised = is_word_level or span.text.isalnum()
    if not _is_strong(span, full) or not can_be_emphasised:
        return text
    mark = _choose_mark(span)
    return f"{mark}{text}{mark}"


def _is_strong(span: TextSpan, full: float) -> bool:
    return abs(span.relevance_or_zero) * EMPHASIS_DIVISOR >= full > 0


def _choose_mark(span: TextSpan) -> str:
    if span.relevance_or_zero > 0:
        return "**"
    return "*"


def _list_strongest(explanation: Explanation) -> list[str]:
    rows = map(_format_row, strongest_spans(explanation, MAX_TABLE_ROWS))
    return [f"| {_name_rows(explanation)} | relevance | rank |", "|:--|--:|--:|", *rows]


def _list_heads(explanation: Explanation) -> list[str]:
    """Return a table of the strongest attention heads, if the explanation has them."""
    if explanation.heads is None:
        return []
    heads = HeadGrid(explanation).strongest(MAX_TABLE_ROWS)
    rows = [f"| {head.name} | {format_relevance(head.relevance)} |" for head in heads]
    return ["| attention head | relevance |", "|:--|--:|", *rows, ""]


def _name_rows(explanation: Explanation) -> str:
    if is_image(explanation):
        return "patch"
    return default_level(explanation)


def _format_row(span: TextSpan) -> str:
    return f"| {escape(span.text)} | {format_relevance(span.relevance_or_zero)} | {span.rank} |"


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
