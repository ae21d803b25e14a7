"""The table of a bench in the terminal, with as many columns beside each other as it is wide."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearhead.cli import outputs

if TYPE_CHECKING:
    from rich.table import Table

# Blanks after each column.
GAP = 2
# A program that reads the table has no edge to break it at.
UNLIMITED_WIDTH = 100_000
Cells = Mapping[tuple[str, str], str]


def print_table(summary: Mapping[str, Any]) -> None:
    """Print the values with a row per method; what does not fit beside each other follows below."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, no_color=outputs.is_plain())
    if not console.is_terminal:
        console.width = UNLIMITED_WIDTH
    first, *others = make_tables(summary, console.width)
    console.print(first)
    for table in others:
        console.print("", table, sep="\n")


def make_tables(summary: Mapping[str, Any], width: int) -> "list[Table]":
    """Return tables of at most this width, each with a row per method, which together have a column per value."""
    cells = _format_cells(summary)
    return [_make_table(summary, cells, names) for names in _group_columns(summary, cells, width)]


def _group_columns(summary: Mapping[str, Any], cells: Cells, width: int) -> Iterator[list[str]]:
    """Yield the names of values whose columns fit beside that of the methods."""
    start = _count_letters(["method", *summary["methods"]])
    end = start
    group: list[str] = []
    for name in summary["values"]:
        column = _column_width(summary, cells, name)
        # At least one column, however narrow the terminal is.
        if group and end + column > width:
            yield group
            group, end = [], start
        group.append(name)
        end += column
    yield group


def _column_width(summary: Mapping[str, Any], cells: Cells, name: str) -> int:
    texts = [_format_heading(summary, name), *(cells[method, name] for method in summary["methods"])]
    return _count_letters(texts)


def _count_letters(texts: Iterable[str]) -> int:
    """Return the width of a column with its gap."""
    return max(map(len, texts)) + GAP


def _format_heading(summary: Mapping[str, Any], name: str) -> str:
    from clearhead.bench.format import format_column

    return format_column(name, summary["values"][name])


def _make_table(summary: Mapping[str, Any], cells: Cells, names: Sequence[str]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, GAP, 0, 0))
    table.add_column("method", no_wrap=True)
    for name in names:
        table.add_column(_format_heading(summary, name), justify="right", no_wrap=True)
    for method in summary["methods"]:
        table.add_row(method, *[cells[method, name] for name in names])
    return table


def _format_cells(summary: Mapping[str, Any]) -> Cells:
    """Return the values by method and column; a dash for what was not measured."""
    from clearhead.bench.format import format_number

    cells: dict[tuple[str, str], str] = defaultdict(lambda: "–")
    for row in summary["rows"]:
        cells[row["method"], row["name"]] = format_number(row["value"])
    return cells
