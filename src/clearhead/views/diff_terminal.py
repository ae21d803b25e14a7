"""What changed between two models in a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.model_diff import MOVED, ExampleDiff, ModelDiff, Verdict
from clearhead.views.diff_explanations import select_shown
from clearhead.views.diff_tables import TextTable, describe_reasons, describe_shift, list_tables, make_title
from clearhead.views.text_spans import escape_hidden

MAX_EXAMPLES = 5


def view(diff: ModelDiff) -> RenderableType:
    """Return title, verdict, notes, tables, and the examples whose reasons moved most."""
    return Group(*_render_parts(diff))


def _render_parts(diff: ModelDiff) -> Iterator[RenderableType]:
    yield from _render_verdict(diff)
    for table in list_tables(diff):
        yield from render_titled(table)
    yield _render_title("Examples, same answer for other reasons first")
    for row in select_shown(diff, MAX_EXAMPLES):
        yield from _render_row(row)


def _render_verdict(diff: ModelDiff) -> Iterator[Text]:
    yield write_line(make_title(diff), "bold")
    yield write_line(diff.verdict.sentence, _choose_style(diff.verdict))
    for note in diff.notes:
        yield write_line(note, "dim")


def _choose_style(verdict: Verdict) -> str:
    return "bold red" if verdict.outcome == MOVED else "bold green"


def write_line(text: str, style: str = "") -> Text:
    """Return a line whose hidden characters can be seen."""
    return Text(escape_hidden(text), style=style)


def _render_title(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def render_titled(table: TextTable) -> Iterator[RenderableType]:
    """Yield the title of a table and the table."""
    yield _render_title(table.title)
    yield render_table(table)


def _render_row(row: ExampleDiff) -> Iterator[Text]:
    # Lines instead of a table: two lists of words do not fit beside each other on a terminal.
    yield write_line(f"{row.first.id}: {describe_shift(row)}")
    yield write_line(f"  before  {describe_reasons(row.first)}", "dim")
    yield write_line(f"  after   {describe_reasons(row.second)}", "dim")


def render_table(table: TextTable) -> Table:
    """Return a table whose columns but the first are right-aligned."""
    grid = Table(box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if number else "left", header_style="dim")
    for row in table.rows:
        grid.add_row(*map(write_line, row))
    return grid
