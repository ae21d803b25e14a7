"""Markdown for issues and notes: the text with its strong words emphasised, and a table of them."""

from collections.abc import Iterator, Mapping, Sequence

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.views import answer_markdown
from clearhead.views.captions import format_diagnostics, format_headline, format_relevance
from clearhead.views.heads import HeadGrid
from clearhead.views.markdown_parts import emphasise, escape, quote
from clearhead.views.text_spans import (
    TextSpan,
    default_level,
    is_image,
    max_relevance,
    select_scored,
    split_segments,
    strongest_spans,
)

MAX_TABLE_ROWS = 10


def document(explanations: Sequence[Explanation]) -> str:
    """Render a section per explanation."""
    return "\n".join(map(section, explanations))


def comparison(explanations: Mapping[str, Explanation]) -> str:
    """Render a section per method."""
    return "\n".join(map(section, explanations.values()))


def section(explanation: Explanation) -> str:
    """Render heading, quoted text with strong words emphasised, tables, model and diagnostics."""
    lines = [f"## {escape(format_headline(explanation))}", ""]
    lines += _render_body(explanation)
    # A blank line ends the table.
    lines.append("")
    lines += _list_heads(explanation)
    notes = _list_notes(explanation)
    if notes:
        lines.append(f"{escape(notes)}\n")
    return "\n".join(lines)


def _render_body(explanation: Explanation) -> Iterator[str]:
    if isinstance(explanation, AnswerExplanation):
        yield from answer_markdown.render(explanation)
        return
    yield from _quote_text(explanation)
    yield from _list_strongest(explanation)


def _list_notes(explanation: Explanation) -> str:
    notes = [explanation.model, format_diagnostics(explanation)]
    return " · ".join(filter(None, notes))


def _quote_text(explanation: Explanation) -> Iterator[str]:
    """Iterate over the lines of the text; words for the class are bold, words against it in italics."""
    if is_image(explanation):
        return
    for text in _emphasise_segments(explanation):
        yield from quote(text)
        yield ">"
    yield f"> **bold** speaks for {escape(explanation.label)}, *italics* against it"
    yield ""


def _emphasise_segments(explanation: Explanation) -> Iterator[str]:
    segments = split_segments(explanation)
    is_word_level = default_level(explanation) == "word"
    full = max_relevance(select_scored(segments))
    for segment in segments:
        yield "".join(emphasise(span, full, is_word_level) for span in segment)


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
