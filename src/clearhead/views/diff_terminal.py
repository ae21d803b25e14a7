"""What changed between two models in a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.model_diff import MOVED, ExampleDiff, ModelDiff
from clearhead.views.diff_explanations import select_shown
from clearhead.views.diff_tables import TextTable, describe_reasons, describe_shift, list_tables, make_title
from clearhead.views.text_spans import escape_hidden

MAX_EXAMPLES = 5


def view(diff: ModelDiff) -> RenderableType:
    """Return title, verdict, notes, tables, and the examples whose reasons moved most."""
    return Group(*_render_parts(diff))


def _render_parts(diff: ModelDiff) -> Iterator[RenderableType]:
    style = "bold red" if diff.verdict.outcome == MOVED else "bold green"
    yield Text(escape_hidden(make_title(diff)), style="bold")
    yield Text(escape_hidden(diff.verdict.sentence), style=style)
    for note in diff.notes:
        yield Text(escape_hidden(note), style="dim")
    for table in list_tables(diff):
        yield Text()
        yield Text(table.title, style="bold")
        yield _render_table(table)
    yield Text()
    yield Text("Examples, same answer for other reasons first", style="bold")
    for row in select_shown(diff, MAX_EXAMPLES):
        yield from _render_row(row)


def _render_row(row: ExampleDiff) -> Iterator[Text]:
    # Lines instead of a table: two lists of words do not fit beside each other on a terminal.
    yield Text(escape_hidden(f"{row.first.id}: {describe_shift(row)}"))
    yield Text(escape_hidden(f"  before  {describe_reasons(row.first)}"), style="dim")
    yield Text(escape_hidden(f"  after   {describe_reasons(row.second)}"), style="dim")


def _render_table(table: TextTable) -> Table:
    grid = Table(box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if number else "left", header_style="dim")
    for row in table.rows:
        grid.add_row(*[Text(escape_hidden(cell)) for cell in row])
    return grid
