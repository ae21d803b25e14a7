"""An audit as an HTML page."""

from collections.abc import Iterator

from clearhead.drift.shortcuts import Audit
from clearhead.views import html, html_parts
from clearhead.views.audit_tables import describe_shortcut, list_facts, list_tables, make_title
from clearhead.views.diff_html import render_table


def page(audit: Audit) -> str:
    """Render a self-contained page without scripts."""
    return html.page(_render_bodies(audit), make_title(audit))


def fragment(audit: Audit) -> str:
    """Render a part of another page, such as a notebook's."""
    return html.with_style(_render_bodies(audit))


def _render_bodies(audit: Audit) -> Iterator[str]:
    sentences = [f"<p>{html_parts.escape(describe_shortcut(word))}</p>" for word in audit.shortcuts]
    facts = map(html_parts.render_faint, list_facts(audit))
    yield html_parts.card(f"<h2>{html_parts.escape(audit.sentence)}</h2>", *sentences, *facts)
    for table in list_tables(audit):
        yield render_table(table)
