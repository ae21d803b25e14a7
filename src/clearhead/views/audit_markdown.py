"""An audit as Markdown."""

from clearhead.drift.shortcuts import Audit
from clearhead.views.audit_tables import describe_shortcut, list_facts, list_tables, make_title
from clearhead.views.diff_markdown import render_table
from clearhead.views.markdown_parts import escape


def document(audit: Audit) -> str:
    """Render the verdict, the shortcuts in words, and all tables."""
    lines = [f"## {escape(make_title(audit))}", "", f"**{escape(audit.sentence)}**", ""]
    lines += [f"- {escape(describe_shortcut(word))}" for word in audit.shortcuts]
    lines += [f"\n{escape(fact)}" for fact in list_facts(audit)]
    lines.append("")
    for table in list_tables(audit):
        lines += render_table(table)
    return "\n".join(lines)
