"""The result of a gate as Markdown, for a comment on a change."""

from clearhead.drift.gate import Condition, GateResult
from clearhead.views import diff_markdown
from clearhead.views.diff_tables import TextTable
from clearhead.views.markdown_parts import escape

COLUMNS = ("condition", "value", "limit", "")


def document(result: GateResult) -> str:
    """Render the outcome, the conditions, and folded below them what changed."""
    outcome = "passed" if result.passes else "failed"
    table = TextTable("Conditions", COLUMNS, tuple(map(_make_row, result.conditions)))
    lines = [f"## Clearhead check {outcome}", "", escape(result.summary), "", *diff_markdown.render_table(table)]
    # Folded: a comment should not fill the page of a change.
    lines += ["<details><summary>What changed</summary>", "", diff_markdown.document(result.diff), "</details>", ""]
    return "\n".join(lines)


def _make_row(condition: Condition) -> tuple[str, ...]:
    outcome = "holds" if condition.holds else "fails"
    return condition.name, f"{condition.value:.3f}", f"{condition.limit:.3f}", outcome
