"""An audit in a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from clearhead.drift.shortcuts import Audit
from clearhead.views.audit_tables import describe_shortcut, list_facts, list_tables, make_title
from clearhead.views.diff_terminal import render_titled, write_line


def view(audit: Audit) -> RenderableType:
    """Return title, verdict, the shortcuts in words, and all tables."""
    return Group(*_render_lines(audit))


def _render_lines(audit: Audit) -> Iterator[RenderableType]:
    yield from _render_verdict(audit)
    for table in list_tables(audit):
        yield from render_titled(table)
    yield Text()
    for fact in list_facts(audit):
        yield write_line(fact, "dim")


def _render_verdict(audit: Audit) -> Iterator[Text]:
    yield write_line(make_title(audit), "bold")
    yield write_line(audit.sentence, _choose_style(audit))
    yield from map(write_line, map(describe_shortcut, audit.shortcuts))


def _choose_style(audit: Audit) -> str:
    return "bold red" if audit.shortcuts else "bold green"
