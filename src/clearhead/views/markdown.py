"""Markdown: a table of the strongest words below the text, for issues and notes."""

import re
from collections.abc import Mapping, Sequence

from clearhead.explanation import Explanation
from clearhead.views.piece import segments, strongest, visible
from clearhead.views.wording import diagnosis, headline, number

COUNT = 10
MARKS = "\\`*_[]<>#|~&$!"
LIST = re.compile(r"^(\s*\d*)([-+.)=])")


def document(explanations: Sequence[Explanation]) -> str:
    """A section per explanation."""
    return "\n".join(section(one) for one in explanations)


def comparison(found: Mapping[str, Explanation]) -> str:
    """A section per method."""
    return "\n".join(section(one) for one in found.values())


def section(explanation: Explanation) -> str:
    """Heading, quoted text, table, diagnostics."""
    quoted = [f"> {escaped(line)}" for text in segments(explanation) for line in text.splitlines()]
    rows = [
        f"| {escaped(piece.text)} | {number(piece.relevance or 0.0)} | {piece.rank} |"
        for piece in strongest(explanation, COUNT)
    ]
    table = ["| piece | relevance | rank |", "|:--|--:|--:|", *rows]
    said = [diagnosis(explanation), ""] if diagnosis(explanation) else []
    return "\n".join([f"## {escaped(headline(explanation))}", "", *quoted, "", *table, "", *said])


def escaped(text: str) -> str:
    """Every character that Markdown or HTML would take as markup is written as itself."""
    line = "".join(f"\\{one}" if one in MARKS else " " if one in "\r\n\t" else one for one in visible(text))
    return LIST.sub(r"\1\\\2", line)
