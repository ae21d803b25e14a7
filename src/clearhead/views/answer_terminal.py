"""Answers in a terminal: each word above its probability, the prompt on its colours, shares, and a grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views.answer_grid import Grid, make_grid
from clearhead.views.answers import (
    AnswerWord,
    answer_colors,
    describe_source,
    format_foil,
    format_rounded,
    format_sink,
    format_special,
    full_scale,
    iterate_answer,
    list_shares,
    list_sources,
    list_words,
    name_start,
    strongest_words,
)
from clearhead.views.captions import format_diagnostics, format_percent, format_relevance, format_word
from clearhead.views.color import color_step
from clearhead.views.terminal_parts import choose_shade, render_legend, render_ranking, sign_color, word_style
from clearhead.views.text_spans import TextSpan, escape_hidden, has_negative, select_scored, split_segments

SHARE_BAR_WIDTH = 40
# Without colour the groups differ by their shades.
SHARE_SHADES = {"first": "░", "prompt": "█", "own": "▓", "special": "▒"}
MAX_GRID_COLUMNS = 24
MAX_COMPARED_WORDS = 5


@dataclass(frozen=True)
class _Cell:
    """A word of the answer above its probability."""

    text: str
    below: str
    style: str
    begins_line: bool

    @property
    def width(self) -> int:
        return max(cell_len(self.text), cell_len(self.below)) + 1


@dataclass(frozen=True)
class _AnswerLines:
    """The words of an answer with their probabilities below them, in lines as wide as the console."""

    cells: Sequence[_Cell]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for line in self._break_lines(options.max_width):
            yield Text.assemble(*(_render_word(cell) for cell in line), overflow="fold")
            yield Text("".join(cell.below.ljust(cell.width) for cell in line), style="dim", overflow="fold")

    def _break_lines(self, width: int) -> Iterator[list[_Cell]]:
        line: list[_Cell] = []
        used = 0
        for cell in self.cells:
            if line and (cell.begins_line or used + cell.width > width):
                yield line
                line, used = [], 0
            line.append(cell)
            used += cell.width
        if line:
            yield line


def _render_word(cell: _Cell) -> Text:
    gap = cell.width - cell_len(cell.text)
    return Text(cell.text, style=cell.style).append(" " * gap, style="not underline not underline2 on default")


def render(explanation: AnswerExplanation, level: str | None, count: int) -> Iterator[RenderableType]:
    """Iterate over answer, prompt, legend, shares, the `count` strongest words, sources, grid and notes."""
    yield from render_input(explanation, level)[:-1]
    yield Text()
    yield _render_legend(explanation, level)
    yield _render_shares(explanation)
    yield Text()
    yield render_ranking(strongest_words(explanation, count, level))
    yield from _render_sources(explanation)
    yield from _render_grid(explanation)
    yield from _render_footer(explanation)


def render_input(explanation: AnswerExplanation, level: str | None) -> list[RenderableType]:
    """Return answer and prompt on their colours, and the strongest words in one line."""
    segments = split_segments(explanation, level)
    full = full_scale(explanation, segments)
    strongest = map(format_word, strongest_words(explanation, MAX_COMPARED_WORDS, level))
    return [
        _render_answer(explanation, segments, full),
        Text(),
        _render_prompt(segments[0], full),
        Text("  ".join(strongest), style="dim"),
    ]


def _render_answer(explanation: AnswerExplanation, segments: Sequence[Sequence[TextSpan]], full: float) -> _AnswerLines:
    words = list_words(explanation)
    colors = answer_colors(segments, words)
    cells = []
    for (before, word), relevance in zip(iterate_answer(explanation, words), colors, strict=True):
        style = word_style(color_step(relevance, full))
        cells.append(_Cell(escape_hidden(word.text), _format_below(word), style, "\n" in before))
    return _AnswerLines(cells)


def _format_below(word: AnswerWord) -> str:
    foil = format_foil(word)
    below = format_rounded(word.probability)
    return f"{below}, {foil}" if foil else below


def _render_prompt(spans: Sequence[TextSpan], full: float) -> Text:
    line = Text(overflow="fold")
    for span in spans:
        # Text without relevance is blanks, or the template of a chat.
        style = "dim" if span.relevance is None else word_style(color_step(span.relevance, full))
        line.append(escape_hidden(span.text), style=style)
    line.rstrip()
    return line


def _render_legend(explanation: AnswerExplanation, level: str | None) -> Text:
    segments = split_segments(explanation, level)
    signed = has_negative(select_scored(segments))
    return render_legend(full_scale(explanation, segments), name_start(explanation), signed)


def _render_shares(explanation: AnswerExplanation) -> Text:
    """Return a bar of the shares of relevance with its legend."""
    bar = Text()
    legend = Text(style="dim")
    for share in list_shares(explanation):
        shade = SHARE_SHADES[share.group]
        bar.append(shade * round(share.size * SHARE_BAR_WIDTH))
        legend.append(f"  {shade} {share.name} {format_percent(share.size)}")
    return Text.assemble(bar, "\n", legend) if bar else Text()


def _render_sources(explanation: AnswerExplanation) -> Iterator[RenderableType]:
    sources = list_sources(explanation)
    if not sources:
        return
    yield Text()
    yield Text("Sources", style="bold")
    table = Table.grid(padding=(0, 2))
    for source in sources:
        table.add_row(Text(format_relevance(source.relevance), justify="right"), escape_hidden(describe_source(source)))
    yield table


def _render_grid(explanation: AnswerExplanation) -> Iterator[RenderableType]:
    """Iterate over the lines of the grid: columns are numbered, and their words are listed below."""
    grid = make_grid(explanation, MAX_GRID_COLUMNS)
    if grid is None:
        return
    yield Text()
    yield Text("Prompt × answer", style="bold")
    yield _make_table(grid)
    columns = "  ".join(f"{number} {escape_hidden(name)}" for number, name in enumerate(grid.columns, 1))
    yield Text(columns, style="dim")
    if grid.note:
        yield Text(grid.note, style="dim")


def _make_table(grid: Grid) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    numbers = [Text(f"{number:>2}", style="dim") for number in range(1, len(grid.columns) + 1)]
    table.add_row(Text(), *numbers)
    for row, name in enumerate(grid.rows):
        table.add_row(Text(escape_hidden(name)), *map(_render_cell, grid.steps(row)))
    return table


def _render_cell(step: int) -> Text:
    return Text(2 * choose_shade(step), style=sign_color(step))


def _render_footer(explanation: AnswerExplanation) -> Iterator[RenderableType]:
    notes = [format_sink(explanation), format_special(explanation), format_diagnostics(explanation)]
    for index, note in enumerate(filter(None, notes)):
        if index == 0:
            yield Text()
        yield Text(note, style="dim")
