"""What changed between two models as an HTML page: verdict, tables, blocks, and the examples in colours."""

from collections.abc import Iterable, Iterator

from clearhead.explanation import Explanation
from clearhead.model_diff import ExampleDiff, ModelDiff
from clearhead.views import html, html_parts
from clearhead.views.diff_explanations import has_text, select_shown, show_row
from clearhead.views.diff_tables import (
    TextTable,
    describe_answer,
    describe_shift,
    list_tables,
    make_title,
    tabulate_examples,
)
from clearhead.views.line_chart import Curve, chart

MAX_CARDS = 25
MAX_NOTEBOOK_CARDS = 3


def page(diff: ModelDiff) -> str:
    """Render a self-contained page without scripts."""
    return html.page(_render_bodies(diff, MAX_CARDS), make_title(diff))


def fragment(diff: ModelDiff) -> str:
    """Render a part of another page, such as a notebook's, with a few examples."""
    return html.with_style(_render_bodies(diff, MAX_NOTEBOOK_CARDS))


def _render_bodies(diff: ModelDiff, count: int) -> Iterator[str]:
    yield _render_verdict(diff)
    for table in list_tables(diff):
        yield _render_table(table)
    if diff.blocks:
        yield _render_blocks(diff)
    yield html_parts.details("All examples", _tabulate(tabulate_examples(diff.rows)))
    for row in select_shown(diff, count):
        yield _render_row(diff, row)


def _render_verdict(diff: ModelDiff) -> str:
    notes = map(html_parts.render_faint, diff.notes)
    return html_parts.card(f"<h2>{html_parts.escape(diff.verdict.sentence)}</h2>", *notes)


def _render_table(table: TextTable) -> str:
    return html_parts.card(f"<h2>{html_parts.escape(table.title)}</h2>", _tabulate(table))


def _tabulate(table: TextTable) -> str:
    rows = [tuple(map(html_parts.escape, row)) for row in table.rows]
    return html_parts.scrollable(table.title, html_parts.table(table.columns, rows))


def _render_blocks(diff: ModelDiff) -> str:
    count = len(diff.blocks)
    shares = tuple((entry.block + 1) / count for entry in diff.blocks)
    curves = [Curve("both models", shares, tuple(entry.correlation for entry in diff.blocks))]
    noise = tuple(entry.noise for entry in diff.blocks if entry.noise is not None)
    if len(noise) == count:
        curves.append(Curve("noise, lowest", shares, noise))
    title = "Agreement by block"
    return html_parts.card(chart(curves, title=title, x_label="block", y_label="rank correlation", scale=count))


def _render_row(diff: ModelDiff, row: ExampleDiff) -> str:
    heading = f"<h2>Example {html_parts.escape(row.first.id)}: {html_parts.escape(describe_shift(row))}</h2>"
    return html_parts.card(heading, *_render_inputs(diff, row))


def _render_inputs(diff: ModelDiff, row: ExampleDiff) -> Iterable[str]:
    """Render the text as both models see it, and the change; only the answers where there is no text."""
    titles = _name_models(diff, row)
    if not has_text(row):
        return [f"<p>{title}</p>" for title in titles]
    headings = [f"<h3>{title}</h3>" for title in (*titles, "What changed")]
    return map(_render_input, headings, show_row(diff, row))


def _render_input(heading: str, explanation: Explanation) -> str:
    return heading + html.render_input(explanation)


def _name_models(diff: ModelDiff, row: ExampleDiff) -> tuple[str, str]:
    first = f"{diff.first.model}: {describe_answer(row.first)}"
    second = f"{diff.second.model}: {describe_answer(row.second)}"
    return html_parts.escape(first), html_parts.escape(second)
