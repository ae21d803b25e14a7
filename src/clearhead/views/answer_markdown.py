"""Answers as Markdown: the answer with probabilities, the prompt with strong words emphasised, shares, and a grid."""

from collections.abc import Iterator, Sequence

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.views.answer_grid import Grid, make_grid
from clearhead.views.answers import (
    describe_source,
    format_rounded,
    format_shares,
    format_sink,
    full_scale,
    has_foil,
    list_sources,
    name_start,
    spell_token,
    strongest_words,
)
from clearhead.views.captions import format_relevance
from clearhead.views.markdown_parts import emphasise, escape, quote
from clearhead.views.text_spans import default_level, split_segments

MAX_TABLE_ROWS = 10
MAX_GRID_COLUMNS = 16


def render(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over the lines of answer, steps, prompt, shares, strongest words, sources and grid."""
    yield "Answer:"
    yield ""
    yield from _quote_segment(explanation, 1)
    yield ""
    yield from _list_steps(explanation)
    yield "Prompt:"
    yield ""
    yield from _quote_segment(explanation, 0)
    yield ">"
    yield f"> **bold** speaks for {escape(name_start(explanation))}, *italics* against it"
    yield ""
    yield from _list_shares(explanation)
    yield from _list_strongest(explanation)
    yield from _list_sources(explanation)
    yield from _list_grid(explanation)


def _quote_segment(explanation: AnswerExplanation, number: int) -> Iterator[str]:
    segments = split_segments(explanation)
    # Without the original text there is one segment of tokens; the answer is known as text all the same.
    if number >= len(segments):
        yield from quote(escape(explanation.answer))
        return
    full = full_scale(explanation, segments)
    is_word_level = default_level(explanation) == "word"
    yield from quote("".join(emphasise(span, full, is_word_level) for span in segments[number]).rstrip())


def _list_steps(explanation: AnswerExplanation) -> Iterator[str]:
    if has_foil(explanation):
        yield from _start_table("token", "probability", "rather than", "probability")
    else:
        yield from _start_table("token", "probability")
    for step in explanation.steps:
        yield _format_row(*_step_cells(step))
    yield ""


def _step_cells(step: Step) -> list[str]:
    cells = [escape(spell_token(step.token)), format_rounded(step.probability)]
    if step.versus is not None:
        cells += [escape(spell_token(step.versus)), format_rounded(step.versus_probability or 0.0)]
    return cells


def _start_table(*columns: str) -> Iterator[str]:
    yield _format_row(*columns)
    yield "|:--" + "|--:" * (len(columns) - 1) + "|"


def _format_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _list_shares(explanation: AnswerExplanation) -> Iterator[str]:
    shares = format_shares(explanation)
    if shares:
        yield escape(f"Relevance: {shares}")
        yield ""
    sink = format_sink(explanation)
    if sink:
        yield escape(sink)
        yield ""


def _list_strongest(explanation: AnswerExplanation) -> Iterator[str]:
    yield from _start_table(default_level(explanation), "relevance")
    for span in strongest_words(explanation, MAX_TABLE_ROWS):
        yield _format_row(escape(span.text), format_relevance(span.relevance_or_zero))


def _list_sources(explanation: AnswerExplanation) -> Iterator[str]:
    sources = list_sources(explanation)
    if not sources:
        return
    yield ""
    yield from _start_table("source", "relevance")
    for source in sources:
        yield _format_row(escape(describe_source(source)), format_relevance(source.relevance))


def _list_grid(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over a table of the prompt's words by the answer's; the strongest cell of a row is bold."""
    grid = make_grid(explanation, MAX_GRID_COLUMNS)
    if grid is None:
        return
    yield ""
    yield from _start_table("prompt × answer", *map(escape, grid.columns))
    for row, name in enumerate(grid.rows):
        yield _format_row(escape(name), *_grid_cells(grid, row))
    if grid.note:
        yield ""
        yield escape(grid.note)


def _grid_cells(grid: Grid, row: int) -> Sequence[str]:
    cells = [format_relevance(float(value)) for value in grid.values[row]]
    strongest = int(abs(grid.values[row]).argmax())
    cells[strongest] = f"**{cells[strongest]}**"
    return cells
