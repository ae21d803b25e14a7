"""Markdown: the text with its strong words set apart, and a table of them, for issues and notes."""

import re
from collections.abc import Iterator, Mapping, Sequence

from clearhead.explanation import Explanation
from clearhead.views.captions import diagnostics_caption, headline, number
from clearhead.views.text_spans import Piece, largest, level_for, pieces, strongest, visible

COUNT = 10
MARKS = "\\`*_[]<>#|~&$!"
LIST = re.compile(r"^(\s*\d*)([-+.)=])")
MARKER = r"\1\\\2"


def document(explanations: Sequence[Explanation]) -> str:
    """A section per explanation."""
    return "\n".join(section(one) for one in explanations)


def comparison(found: Mapping[str, Explanation]) -> str:
    """A section per method."""
    return "\n".join(section(one) for one in found.values())


def section(explanation: Explanation) -> str:
    """Heading, quoted text with its strong words set apart, table, diagnostics."""
    said = [f"## {escape(headline(explanation))}", "", *_text(explanation), *_table(explanation), ""]
    notes = [escape(" · ".join(filter(None, [explanation.model, diagnostics_caption(explanation)])))]
    return "\n".join([*said, *(f"{note}\n" for note in notes if note)])


def _text(explanation: Explanation) -> Iterator[str]:
    """The text; words of at least a third of the strongest are bold for the class, in italics against it."""
    if explanation.grid is not None:
        return
    parts = pieces(explanation)
    words = level_for(explanation) == "word"
    full = largest(piece for part in parts for piece in part)
    for part in parts:
        for line in "".join(_marked(piece, full, words) for piece in part).splitlines():
            yield f"> {LIST.sub(MARKER, line)}"
        yield ">"
    yield f"> **bold** speaks for {escape(explanation.label)}, *italics* against it"
    yield ""


def _marked(piece: Piece, full: float, words: bool) -> str:
    """Between blanks anything can be set apart, inside a word only letters: Markdown leaves other stars as they are."""
    text = "\n".join(_literal(line) for line in piece.text.split("\n"))
    strong = piece.relevance is not None and abs(piece.relevance) * 3 >= full > 0
    if not strong or not (words or piece.text.isalnum()):
        return text
    mark = "**" if (piece.relevance or 0.0) > 0 else "*"
    return f"{mark}{text}{mark}"


def _table(explanation: Explanation) -> list[str]:
    name = "patch" if explanation.grid is not None else level_for(explanation)
    rows = [
        f"| {escape(piece.text)} | {number(piece.relevance or 0.0)} | {piece.rank} |"
        for piece in strongest(explanation, COUNT)
    ]
    return [f"| {name} | relevance | rank |", "|:--|--:|--:|", *rows]


def escape(text: str) -> str:
    """Every character that Markdown or HTML would take as markup is written as itself."""
    return LIST.sub(MARKER, _literal(text))


def _literal(text: str) -> str:
    return "".join(f"\\{one}" if one in MARKS else " " if one in "\r\n\t" else one for one in visible(text))
