"""Answers in a terminal: each word above its probability, the prompt on its colours, shares, and a grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views.answer_grid import TITLE, Grid, make_grid
from clearhead.views.answer_pictures import describe_pictures, format_full, merge_parts, scale_pictures
from clearhead.views.answers import (
    ColoredWord,
    Share,
    color_answer,
    describe_source,
    format_probabilities,
    list_notes,
    list_shares,
    list_sources,
    name_share,
    name_start,
    strongest_words,
)
from clearhead.views.captions import format_word
from clearhead.views.scale import Scale, make_scale
from clearhead.views.sink import Segments
from clearhead.views.terminal_parts import (
    choose_shade,
    render_check,
    render_legend,
    render_patch,
    render_ranking,
    sign_color,
    word_style,
)
from clearhead.views.text_spans import TextSpan, default_level, escape_hidden, split_segments

SHARE_BAR_WIDTH = 40
# Without colour the groups differ by their shades.
SHARE_SHADES = {"first": "░", "prompt": "█", "pictures": "◆", "own": "▓", "special": "▒"}
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
        # One more for the blank between words.
        return max(cell_len(self.text), cell_len(self.below)) + 1

    @property
    def word(self) -> Text:
        # Cells instead of characters: those of Chinese or emoji are two columns wide.
        gap = " " * (self.width - cell_len(self.text))
        return Text.assemble((self.text, self.style), gap)


@dataclass(frozen=True)
class _AnswerLines:
    """The words of an answer with their probabilities below them, in lines as wide as the console."""

    cells: Sequence[_Cell]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for line in self._break_lines(options.max_width):
            yield Text.assemble(*(cell.word for cell in line), overflow="fold")
            yield Text("".join(cell.below.ljust(cell.width) for cell in line), style="dim", overflow="fold")

    def _break_lines(self, width: int) -> Iterator[list[_Cell]]:
        line: list[_Cell] = []
        for cell in self.cells:
            # A word that is wider than the console has a line of its own, which folds.
            if line and (cell.begins_line or _measure([*line, cell]) > width):
                yield line
                line = []
            line.append(cell)
        yield line


def _measure(cells: Sequence[_Cell]) -> int:
    return sum(cell.width for cell in cells)


def render(explanation: AnswerExplanation, level: str | None, count: int) -> Iterator[RenderableType]:
    """Iterate over answer, prompt, legend, shares, the `count` strongest words, sources, grid and notes."""
    scale = make_scale(explanation)
    yield from _render_texts(explanation, split_segments(explanation, level))
    yield from _render_pictures(explanation)
    yield Text()
    yield render_legend(scale, name_start(explanation))
    yield Text(scale.caption, style="dim")
    yield from _render_shares(explanation)
    yield Text()
    yield render_ranking(scale, strongest_words(explanation, count, level))
    # The ranking of sources that were hidden as wholes lists them already.
    if default_level(explanation) != "source":
        yield from _render_sources(explanation)
    yield from _render_grid(explanation)
    yield from render_check(explanation)
    yield from _render_footer(explanation)


def render_input(explanation: AnswerExplanation, level: str | None) -> list[RenderableType]:
    """Return answer and prompt on their colours, and the strongest words in one line."""
    scale = make_scale(explanation)
    strongest = [format_word(scale, span) for span in strongest_words(explanation, MAX_COMPARED_WORDS, level)]
    texts = _render_texts(explanation, split_segments(explanation, level))
    return [*texts, Text("  ".join(strongest), style="dim")]


def _render_texts(explanation: AnswerExplanation, segments: Segments) -> Iterator[RenderableType]:
    yield _AnswerLines(list(map(_make_cell, color_answer(explanation, segments))))
    yield Text()
    yield _render_prompt(segments[0], make_scale(explanation))


def _make_cell(colored: ColoredWord) -> _Cell:
    word = colored.word
    below = format_probabilities(word, ", ")
    return _Cell(escape_hidden(word.text), below, word_style(colored.step), colored.begins_line)


def _render_prompt(spans: Sequence[TextSpan], scale: Scale) -> Text:
    line = Text(overflow="fold")
    for span in spans:
        line.append(escape_hidden(span.text), style=_choose_style(span, scale))
    # Templates of chats end with line breaks, which would be empty lines.
    line.rstrip()
    return line


def _choose_style(span: TextSpan, scale: Scale) -> str:
    # Text without relevance is blanks, or the template of a chat.
    if span.relevance is None:
        return "dim"
    return word_style(scale.find_step(span.relevance))


def _render_pictures(explanation: AnswerExplanation) -> Iterator[Text]:
    """Iterate over the parts of each picture, two characters each, and what they mean."""
    lines = describe_pictures(explanation)
    for picture, line in zip(explanation.pictures, lines, strict=True):
        yield from _render_title(line)
        scale = scale_pictures(explanation)
        merged = merge_parts(picture, MAX_GRID_COLUMNS)
        # Joined parts have more relevance than single ones.
        full = max(scale.full, float(np.abs(merged).max())) if merged.size < picture.relevance.size else scale.full
        for row in merged.tolist():
            yield Text.assemble(*(render_patch(value, replace(scale, full=full)) for value in row))
    if lines:
        yield Text(format_full(explanation), style="dim")


def _render_shares(explanation: AnswerExplanation) -> Iterator[Text]:
    """Iterate over a bar of the shares of relevance and its legend."""
    shares = list_shares(explanation)
    # Relevance of 0 everywhere has no shares.
    if shares:
        yield Text("".join(map(_render_bar, shares)))
        yield Text("  ".join(map(_format_share, shares)), style="dim")


def _render_bar(share: Share) -> str:
    return SHARE_SHADES[share.group] * round(share.size * SHARE_BAR_WIDTH)


def _format_share(share: Share) -> str:
    return f"{SHARE_SHADES[share.group]} {name_share(share)}"


def _render_sources(explanation: AnswerExplanation) -> Iterator[RenderableType]:
    sources = list_sources(explanation)
    if not sources:
        return
    yield from _render_title("Sources")
    scale = make_scale(explanation)
    for source in sources:
        yield Text(f"{scale.format(source.relevance):>8}  {escape_hidden(describe_source(source))}")


def _render_title(title: str) -> Iterator[Text]:
    yield Text()
    yield Text(title, style="bold")


def _render_grid(explanation: AnswerExplanation) -> Iterator[RenderableType]:
    """Iterate over the grid, whose columns are numbered, the words of the columns, and a note."""
    # Words above the columns would make them wider than a console.
    grid = make_grid(explanation, MAX_GRID_COLUMNS)
    if grid is None:
        return
    yield from _render_title(TITLE)
    yield _make_table(grid)
    yield Text(_list_columns(grid), style="dim")
    if grid.note:
        yield Text(grid.note, style="dim")


def _list_columns(grid: Grid) -> str:
    return "  ".join(f"{number} {escape_hidden(name)}" for number, name in enumerate(grid.columns, 1))


def _make_table(grid: Grid) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row(Text(), *map(_render_number, range(1, len(grid.columns) + 1)))
    for row, name in enumerate(grid.rows):
        table.add_row(Text(escape_hidden(name)), *map(_render_cell, grid.steps(row)))
    return table


def _render_number(number: int) -> Text:
    return Text(f"{number:>2}", style="dim")


def _render_cell(step: int) -> Text:
    # Two characters are about as wide as a line is high.
    return Text(2 * choose_shade(step), style=sign_color(step))


def _render_footer(explanation: AnswerExplanation) -> Iterator[Text]:
    yield Text()
    for note in list_notes(explanation):
        yield Text(note, style="dim")
