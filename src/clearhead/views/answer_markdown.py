"""Answers as Markdown: the answer with probabilities, the prompt with strong words emphasised, shares, and a grid."""

from collections.abc import Iterator

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.views.answer_grid import Grid, make_grid
from clearhead.views.answers import (
    describe_source,
    foil_probability,
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
    yield from _quote_answer(explanation)
    yield from _list_steps(explanation)
    yield from _quote_prompt(explanation)
    yield from _list_shares(explanation)
    yield from _list_strongest(explanation)
    yield from _list_sources(explanation)
    yield from _list_grid(explanation)


def _quote_answer(explanation: AnswerExplanation) -> Iterator[str]:
    yield "Answer:"
    yield ""
    yield from quote(_emphasise_segments(explanation)[-1])
    yield ""


def _quote_prompt(explanation: AnswerExplanation) -> Iterator[str]:
    yield "Prompt:"
    yield ""
    yield from quote(_emphasise_segments(explanation)[0])
    yield ">"
    yield f"> **bold** speaks for {escape(name_start(explanation))}, *italics* against it"
    yield ""


def _emphasise_segments(explanation: AnswerExplanation) -> list[str]:
    """Return prompt and answer with their strong words emphasised."""
    segments = split_segments(explanation)
    full = full_scale(explanation, segments)
    is_word_level = default_level(explanation) == "word"
    texts = []
    for segment in segments:
        words = [emphasise(span, full, is_word_level) for span in segment]
        texts.append("".join(words).rstrip())
    # Without the original text there is one segment of tokens; the answer is known as text all the same.
    if len(texts) == 1:
        texts.append(escape(explanation.answer))
    return texts


def _list_steps(explanation: AnswerExplanation) -> Iterator[str]:
    columns = ["token", "probability"]
    if has_foil(explanation):
        columns += ["rather than", "probability"]
    yield from _start_table(*columns)
    yield from map(_format_step, explanation.steps)
    yield ""


def _format_step(step: Step) -> str:
    cells = [escape(spell_token(step.token)), format_rounded(step.probability)]
    if step.versus is not None:
        cells += [escape(spell_token(step.versus)), format_rounded(foil_probability(step))]
    return _format_row(*cells)


def _start_table(*columns: str) -> Iterator[str]:
    yield _format_row(*columns)
    yield "|:--" + "|--:" * (len(columns) - 1) + "|"


def _format_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _list_shares(explanation: AnswerExplanation) -> Iterator[str]:
    yield escape(f"Relevance: {format_shares(explanation)}")
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
    if sources:
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
    yield ""
    yield escape(grid.note)


def _grid_cells(grid: Grid, row: int) -> list[str]:
    values = grid.values[row].tolist()
    cells = list(map(format_relevance, values))
    strongest = values.index(max(values, key=abs))
    cells[strongest] = f"**{cells[strongest]}**"
    return cells
