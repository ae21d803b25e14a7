"""Sections of a report, their tables and charts, rendered as HTML and Markdown."""

import re
from dataclasses import dataclass

from clearhead.bench.format import format_number
from clearhead.views import html_parts, line_chart, markdown
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
    across: str
    up: str
    scale: float | None = None


@dataclass(frozen=True)
class Section:
    """A section of the report, rendered as HTML or Markdown."""

    title: str
    paragraphs: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False


def section_html(section: Section) -> str:
    """Return a section as an HTML card."""
    body = "".join(f"<p>{html_parts.escape(line)}</p>" for line in section.paragraphs)
    # Wide tables scroll by themselves, so that the page does not.
    body += "".join(f'<div style="overflow-x:auto">{_grid_html(grid)}</div>' for grid in section.grids)
    body += "".join(_chart_html(chart) for chart in section.charts)
    if section.folded:
        return html_parts.card(html_parts.folded(section.title, body))
    return html_parts.card(f"<h2>{html_parts.escape(section.title)}</h2>", body)


def _chart_html(chart: Chart) -> str:
    return line_chart.chart(chart.lines, title=chart.title, across=chart.across, up=chart.up, scale=chart.scale)


def _grid_html(grid: Grid) -> str:
    columns = [html_parts.escape(column) for column in grid.columns]
    rows = []
    for row in grid.rows:
        rows.append([_cell_html(cell) for cell in row])
    return html_parts.table(columns, rows)


def _cell_html(cell: Cell) -> str:
    text = html_parts.escape(cell.text)
    return f"<strong>{text}</strong>" if cell.strong else text


def section_markdown(section: Section) -> str:
    """Return a section as Markdown; charts become tables."""
    paragraphs = [markdown.escape(line) for line in section.paragraphs]
    if section.title == "Verdict":
        paragraphs = ["\n".join(f"- {line}" for line in paragraphs)]
    grids = [_grid_markdown(grid) for grid in section.grids]
    charts = [_chart_markdown(chart) for chart in section.charts]
    return "\n\n".join([f"## {section.title}", *paragraphs, *grids, *charts])


def _chart_markdown(chart: Chart) -> str:
    return f"### {markdown.escape(chart.title)}\n\n{_grid_markdown(_chart_grid(chart))}"


def _grid_markdown(grid: Grid) -> str:
    lines = [
        _row_markdown([markdown.escape(column) for column in grid.columns]),
        "|:--|" + "--:|" * (len(grid.columns) - 1),
    ]
    for row in grid.rows:
        lines.append(_row_markdown([_cell_markdown(cell) for cell in row]))
    return "\n".join(lines)


def _row_markdown(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _cell_markdown(cell: Cell) -> str:
    # Numbers stay unescaped, so that they read as numbers in the source too.
    text = cell.text if NUMERIC.fullmatch(cell.text) else markdown.escape(cell.text)
    return f"**{text}**" if cell.strong else text


def _chart_grid(chart: Chart) -> Grid:
    """Return a chart as a table: a row per line."""
    # Curves need not share their points: what a line lacks stays empty.
    shares = sorted({share for line in chart.lines for share in line.shares})
    headings = [line_chart.format_share(share, chart.scale) for share in shares]
    rows = []
    for line in chart.lines:
        values = dict(zip(line.shares, line.values, strict=True))
        cells = [_optional_cell(values.get(share)) for share in shares]
        rows.append((Cell(line.name), *cells))
    return Grid((chart.across, *headings), tuple(rows))


def _optional_cell(value: float | None) -> Cell:
    return Cell("" if value is None else format_number(value))
