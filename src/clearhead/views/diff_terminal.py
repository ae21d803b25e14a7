"""What changed between two models in a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.model_diff import MOVED, ModelDiff
from clearhead.views.diff_explanations import select_shown
from clearhead.views.diff_tables import TextTable, list_tables, make_title, tabulate_examples
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
    for table in (*list_tables(diff), tabulate_examples(select_shown(diff, MAX_EXAMPLES))):
        yield Text()
        yield Text(table.title, style="bold")
        yield _render_table(table)


def _render_table(table: TextTable) -> Table:
    grid = Table(box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if number else "left", header_style="dim")
    for row in table.rows:
        grid.add_row(*[Text(escape_hidden(cell)) for cell in row])
    return grid
