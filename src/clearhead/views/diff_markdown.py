"""What changed between two models as Markdown, such as for a comment on a change."""

from collections.abc import Iterator

from clearhead.model_diff import ModelDiff
from clearhead.views.diff_explanations import select_shown
from clearhead.views.diff_tables import TextTable, list_tables, make_title, tabulate_examples
from clearhead.views.markdown_parts import escape

MAX_EXAMPLES = 10


def document(diff: ModelDiff) -> str:
    """Render the verdict, the tables, and the examples whose reasons moved most."""
    lines = [f"## {escape(make_title(diff))}", "", f"**{escape(diff.verdict.sentence)}**", ""]
    lines += [f"{escape(note)}\n" for note in diff.notes]
    for table in (*list_tables(diff), tabulate_examples(select_shown(diff, MAX_EXAMPLES))):
        lines += render_table(table)
    return "\n".join(lines)


def render_table(table: TextTable) -> Iterator[str]:
    """Yield the lines of a table with its title."""
    yield f"### {escape(table.title)}"
    yield ""
    yield _render_row(table.columns)
    yield f"|:--|{'--:|' * (len(table.columns) - 1)}"
    yield from map(_render_row, table.rows)
    yield ""


def _render_row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"
