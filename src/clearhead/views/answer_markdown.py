"""Answers as Markdown: the answer with probabilities, the prompt with strong words emphasised, shares, and a grid."""

from collections.abc import Iterable, Iterator, Sequence

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views.answer_grid import TITLE, Grid, make_grid
from clearhead.views.answer_pictures import describe_pictures
from clearhead.views.answers import (
    format_shares,
    list_source_cells,
    list_sources,
    list_step_cells,
    list_word_cells,
    name_start,
    name_step_columns,
    strongest_words,
)
from clearhead.views.markdown_parts import emphasise, escape, quote
from clearhead.views.scale import Scale, make_scale
from clearhead.views.text_spans import TextSpan, default_level, split_segments

MAX_TABLE_ROWS = 10
MAX_GRID_COLUMNS = 16


def render(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over the lines of answer, steps, prompt, shares, strongest words, sources and grid."""
    yield from _quote_answer(explanation)
    yield from _list_steps(explanation)
    yield from _quote_prompt(explanation)
    yield from map(escape, describe_pictures(explanation))
    yield from _list_shares(explanation)
    yield from _list_strongest(explanation)
    # The table of sources that were hidden as wholes lists them already.
    if default_level(explanation) != "source":
        yield from _list_sources(explanation)
    yield from _list_grid(explanation)


def _quote_answer(explanation: AnswerExplanation) -> Iterator[str]:
    yield from _quote_titled("Answer", _emphasise_segments(explanation)[-1])
    yield ""


def _quote_titled(title: str, text: str) -> Iterator[str]:
    yield f"{title}:"
    # Without an empty line before it a quotation would continue the paragraph.
    yield ""
    yield from quote(text)


def _quote_prompt(explanation: AnswerExplanation) -> Iterator[str]:
    yield from _quote_titled("Prompt", _emphasise_segments(explanation)[0])
    # Inside the quotation, next to the words that it explains.
    yield ">"
    yield f"> **bold** speaks for {escape(name_start(explanation))}, *italics* against it"
    yield ""


def _emphasise_segments(explanation: AnswerExplanation) -> list[str]:
    """Return prompt and answer with their strong words emphasised."""
    scale = make_scale(explanation)
    level = default_level(explanation)
    texts = [_emphasise_segment(segment, scale, level) for segment in split_segments(explanation)]
    # Without the original text there is one segment of tokens; the answer is known as text all the same.
    if len(texts) == 1:
        texts.append(escape(explanation.answer))
    return texts


def _emphasise_segment(spans: Iterable[TextSpan], scale: Scale, level: str) -> str:
    words = [emphasise(span, scale, level != "token") for span in spans]
    return "".join(words).rstrip()


def _list_steps(explanation: AnswerExplanation) -> Iterator[str]:
    yield from _render_table(name_step_columns(explanation), map(list_step_cells, explanation.steps))
    yield ""


def _render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield from _start_table(columns)
    yield from map(_format_row, rows)


def _start_table(columns: Sequence[str]) -> Iterator[str]:
    # Names on the left, numbers on the right.
    yield _format_row(columns)
    yield "|:--" + "|--:" * (len(columns) - 1) + "|"


def _format_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _list_shares(explanation: AnswerExplanation) -> Iterator[str]:
    yield escape(f"Relevance: {format_shares(explanation)}")
    yield ""


def _list_strongest(explanation: AnswerExplanation) -> Iterator[str]:
    scale = make_scale(explanation)
    rows = [list_word_cells(scale, span) for span in strongest_words(explanation, MAX_TABLE_ROWS)]
    yield from _render_table([default_level(explanation), scale.column], rows)


def _list_sources(explanation: AnswerExplanation) -> Iterator[str]:
    sources = list_sources(explanation)
    if sources:
        scale = make_scale(explanation)
        yield ""
        yield from _render_table(["source", scale.column], [list_source_cells(scale, source) for source in sources])


def _list_grid(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over a table of the prompt's words by the answer's."""
    grid = make_grid(explanation, MAX_GRID_COLUMNS)
    if grid is None:
        return
    yield ""
    yield from _render_table([TITLE, *grid.columns], _grid_rows(grid))
    yield ""
    yield escape(grid.note)


def _grid_rows(grid: Grid) -> Iterator[list[str]]:
    for row, name in enumerate(grid.rows):
        yield [name, *grid.numbers(row)]
