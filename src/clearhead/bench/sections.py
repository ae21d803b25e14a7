"""Sections of a report, their tables and charts, rendered as HTML and Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from clearhead.bench.format import format_number
from clearhead.views import html_parts, line_chart, markdown_parts
from clearhead.views.line_chart import Curve

# Cells of digits, signs, intervals and units.
NUMERIC = re.compile(r"[-+\de.,\[\] ×–sm%]*")


@dataclass(frozen=True)
class Cell:
    """A number or a name in a table; a strong one is best, and shown to be."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Grid:
    """A table whose first column names the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Chart:
    """Lines over a share (0 … 1) or, with `scale`, over a number up to it."""

    title: str
    lines: tuple[Curve, ...]
    x_label: str
    y_label: str
    scale: float | None = None


@dataclass(frozen=True)
class Section:
    """A section of the report, rendered as HTML or Markdown."""

    title: str
    paragraphs: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False
    # Whether the paragraphs are independent of each other, and read best as a list.
    listed: bool = False


def section_html(section: Section) -> str:
    """Return a section as an HTML card."""
    body = _body_html(section)
    if section.folded:
        return html_parts.card(html_parts.details(section.title, body))
    return html_parts.card(f"<h2>{html_parts.escape(section.title)}</h2>", body)


def _body_html(section: Section) -> str:
    fragments = [
        *map(_paragraph_html, section.paragraphs),
        *(_grid_html(grid, section.title) for grid in section.grids),
        *map(_chart_html, section.charts),
    ]
    return "".join(fragments)


def _paragraph_html(text: str) -> str:
    return f"<p>{html_parts.escape(text)}</p>"


def _grid_html(grid: Grid, title: str) -> str:
    columns = list(map(html_parts.escape, grid.columns))
    rows = [list(map(_cell_html, row)) for row in grid.rows]
    # Wide tables scroll by themselves, so that the page does not.
    return html_parts.scrollable(title, html_parts.table(columns, rows))


def _cell_html(cell: Cell) -> str:
    text = html_parts.escape(cell.text)
    if cell.strong:
        return f"<strong>{text}</strong>"
    return text


def _chart_html(chart: Chart) -> str:
    return line_chart.chart(
        chart.lines, title=chart.title, x_label=chart.x_label, y_label=chart.y_label, scale=chart.scale
    )


def section_markdown(section: Section) -> str:
    """Return a section as Markdown; charts become tables."""
    blocks = [
        f"## {section.title}",
        *_paragraphs_markdown(section),
        *map(_grid_markdown, section.grids),
        *map(_chart_markdown, section.charts),
    ]
    return "\n\n".join(blocks)


def _paragraphs_markdown(section: Section) -> list[str]:
    paragraphs = list(map(markdown_parts.escape, section.paragraphs))
    if section.listed:
        return ["\n".join(f"- {line}" for line in paragraphs)]
    return paragraphs


def _chart_markdown(chart: Chart) -> str:
    return f"### {markdown_parts.escape(chart.title)}\n\n{_grid_markdown(_chart_grid(chart))}"


def _grid_markdown(grid: Grid) -> str:
    headings = map(markdown_parts.escape, grid.columns)
    # The first column, of names, is aligned left, the others, mostly of numbers, right.
    alignment = "|:--|" + "--:|" * (len(grid.columns) - 1)
    rows = [_row_markdown(map(_cell_markdown, row)) for row in grid.rows]
    return "\n".join([_row_markdown(headings), alignment, *rows])


def _row_markdown(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _cell_markdown(cell: Cell) -> str:
    text = _escape_name(cell.text)
    if cell.strong:
        return f"**{text}**"
    return text


def _escape_name(text: str) -> str:
    # Numbers stay unescaped, so that they read as numbers in the source too.
    if NUMERIC.fullmatch(text):
        return text
    return markdown_parts.escape(text)


def _chart_grid(chart: Chart) -> Grid:
    """Return a chart as a table: a row per line."""
    shares = _collect_shares(chart)
    headings = [line_chart.format_share(share, chart.scale) for share in shares]
    rows = [_line_cells(line, shares) for line in chart.lines]
    return Grid((chart.x_label, *headings), tuple(rows))


def _collect_shares(chart: Chart) -> list[float]:
    """Return the points of all lines, which need not share them, in order."""
    return sorted(set(chain.from_iterable(line.shares for line in chart.lines)))


def _line_cells(line: Curve, shares: Sequence[float]) -> tuple[Cell, ...]:
    """Return the name of a line and its values; empty where the line has no point."""
    values = dict(zip(line.shares, line.values, strict=True))
    cells = [_optional_cell(values.get(share)) for share in shares]
    return Cell(line.name), *cells


def _optional_cell(value: float | None) -> Cell:
    if value is None:
        return Cell("")
    return Cell(format_number(value))
