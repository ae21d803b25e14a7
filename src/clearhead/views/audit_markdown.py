"""An audit as Markdown."""

from collections.abc import Iterator

from clearhead.drift.shortcuts import Audit
from clearhead.views.audit_tables import describe_shortcut, list_facts, list_tables, make_title
from clearhead.views.diff_markdown import render_table
from clearhead.views.markdown_parts import escape


def document(audit: Audit) -> str:
    """Render the verdict, the shortcuts in words, and all tables."""
    return "\n".join(_render_lines(audit))


def _render_lines(audit: Audit) -> Iterator[str]:
    yield from (f"## {escape(make_title(audit))}", "", f"**{escape(audit.sentence)}**", "")
    for word in audit.shortcuts:
        yield f"- {escape(describe_shortcut(word))}"
    for fact in list_facts(audit):
        yield f"\n{escape(fact)}"
    yield ""
    for table in list_tables(audit):
        yield from render_table(table)
