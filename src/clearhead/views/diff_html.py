"""What changed between two models as an HTML page: verdict, tables, blocks, and the examples in colours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clearhead.explanation import Explanation
from clearhead.model_diff import BlockAgreement, ExampleDiff, ModelDiff
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
        yield render_table(table)
    if diff.blocks:
        yield _render_blocks(diff)
    yield html_parts.details("All examples", _tabulate(tabulate_examples(diff.rows)))
    for row in select_shown(diff, count):
        yield _render_row(diff, row)


def _render_verdict(diff: ModelDiff) -> str:
    notes = map(html_parts.render_faint, diff.notes)
    return html_parts.card(f"<h2>{html_parts.escape(diff.verdict.sentence)}</h2>", *notes)


def render_table(table: TextTable) -> str:
    """Render a card with a table."""
    return html_parts.card(f"<h2>{html_parts.escape(table.title)}</h2>", _tabulate(table))


def _tabulate(table: TextTable) -> str:
    return html_parts.scrollable(table.title, html_parts.table(table.columns, map(_escape_row, table.rows)))


def _escape_row(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(html_parts.escape, row))


def _render_blocks(diff: ModelDiff) -> str:
    curves = [_draw_curve("both models", diff.blocks)]
    if all(entry.noise is not None for entry in diff.blocks):
        curves.append(_draw_curve("noise, lowest", [_show_noise(entry) for entry in diff.blocks]))
    plot = chart(
        curves, title="Agreement by block", x_label="block", y_label="rank correlation", scale=len(diff.blocks)
    )
    return html_parts.card(plot)


def _draw_curve(name: str, blocks: Sequence[BlockAgreement]) -> Curve:
    shares = tuple((entry.block + 1) / len(blocks) for entry in blocks)
    return Curve(name, shares, tuple(entry.correlation for entry in blocks))


def _show_noise(entry: BlockAgreement) -> BlockAgreement:
    return replace(entry, correlation=entry.noise or 0.0)


def _render_row(diff: ModelDiff, row: ExampleDiff) -> str:
    heading = f"<h2>Example {html_parts.escape(row.first.id)}: {html_parts.escape(describe_shift(row))}</h2>"
    return html_parts.card(heading, *_render_inputs(diff, row))


def _render_inputs(diff: ModelDiff, row: ExampleDiff) -> Iterable[str]:
    """Render the text as both models see it, and the change; only the answers where there is no text."""
    titles = _name_models(diff, row)
    if not has_text(row):
        return map("<p>{}</p>".format, titles)
    return map(_render_input, (*titles, "What changed"), show_row(diff, row))


def _render_input(title: str, explanation: Explanation) -> str:
    return f"<h3>{title}</h3>{html.render_input(explanation)}"


def _name_models(diff: ModelDiff, row: ExampleDiff) -> tuple[str, str]:
    first = f"{diff.first.model}: {describe_answer(row.first)}"
    second = f"{diff.second.model}: {describe_answer(row.second)}"
    return html_parts.escape(first), html_parts.escape(second)
