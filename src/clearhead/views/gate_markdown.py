"""The result of a gate as Markdown, for a comment on a change."""

from clearhead.drift.gate import AGREEMENT_NAME, Condition, GateResult
from clearhead.views import diff_markdown
from clearhead.views.diff_tables import TextTable
from clearhead.views.markdown_parts import escape
from clearhead.views.numbers import format_percent

COLUMNS = ("condition", "value", "limit", "")


def document(result: GateResult) -> str:
    """Render the outcome, the conditions, and folded below them what changed."""
    outcome = "passed" if result.passes else "failed"
    table = TextTable("Conditions", COLUMNS, tuple(map(_make_row, result.conditions)))
    sentences = [f"- {escape(condition.sentence)}" for condition in result.failed or result.conditions]
    lines = [f"## Clearhead check {outcome}: {escape(result.diff.second.model)}", "", *sentences, ""]
    lines += diff_markdown.render_table(table)
    # Folded: a comment should not fill the page of a change.
    lines += ["<details><summary>What changed</summary>", "", diff_markdown.document(result.diff), "</details>", ""]
    return "\n".join(lines)


def _make_row(condition: Condition) -> tuple[str, ...]:
    outcome = "holds" if condition.holds else "fails"
    return condition.name, _format(condition, condition.value), _format(condition, condition.limit), outcome


def _format(condition: Condition, value: float) -> str:
    # A correlation is no share of anything.
    if condition.name == AGREEMENT_NAME:
        return f"{value:.3f}"
    return format_percent(value)
