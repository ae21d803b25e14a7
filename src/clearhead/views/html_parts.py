"""The HTML that every page is made of; whatever comes from a user or a tokenizer passes through `escape`."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape as escape_html
from importlib.resources import files

from clearhead.explanation import Explanation
from clearhead.views.captions import diagnostics_caption, number, percent, spelling, tip
from clearhead.views.color import DARK, LIGHT, STEPS, background, hexadecimal, step
from clearhead.views.text_spans import (
    LEVELS,
    Piece,
    aside,
    is_hidden,
    largest,
    pieces,
    scored,
    shown,
    strongest,
    visible,
)

TABLE = 20


def escape(text: str) -> str:
    """Text as HTML that shows exactly what is there.

    Hidden characters stay in place, so that copying gives the original, but are fenced in and labelled; controls,
    which HTML does not allow, are replaced by their labels.
    """
    if text.isascii() and text.isprintable():
        return escape_html(text)
    return "".join(
        _hidden(character) if is_hidden(text, place) else escape_html(character) for place, character in enumerate(text)
    )


def _hidden(character: str) -> str:
    code = ord(character)
    if code < 0xA0 or 0xD800 <= code <= 0xDFFF:
        return f'<span class="ch-hidden">{shown(character)}</span>'
    return f'<span class="ch-hidden" data-code="{code:04X}">&#x{code:X};</span>'


def attribute(text: str) -> str:
    """Text for a title or an aria-label, where no markup can fence hidden characters in."""
    return escape(visible(text))


@cache
def sheet() -> tuple[str, ...]:
    """The rules of the style sheet; each stays below .clearhead."""
    written = (files("clearhead.views") / "style.css").read_text("utf-8")
    return (*written.splitlines(), *_colors())


def style(body: str | None = None) -> str:
    """The style sheet, or only the rules that a body needs, so that a notebook carries no more."""
    rules = sheet() if body is None else [rule for rule in sheet() if _is_needed(rule, body)]
    return f"<style>{''.join(rules)}</style>"


def _is_needed(rule: str, body: str) -> bool:
    names = re.findall(r"\.(ch-[a-z]+|[fa]\d)\b", rule.partition("{")[0])
    return not names or any(name in body for name in names)


def _colors() -> list[str]:
    names = {
        "paper": (LIGHT.paper, DARK.paper),
        "ink": (LIGHT.ink, DARK.ink),
        "faint": (LIGHT.faint, DARK.faint),
        "line": (LIGHT.line, DARK.line),
        "for": (LIGHT.above, DARK.above),
        "against": (LIGHT.below, DARK.below),
    }
    variables = "".join(f"--ch-{name}:{_both(*pair)};" for name, pair in names.items())
    steps = [
        f".clearhead .{css_class(place)}{{background:{_both(background(place, LIGHT), background(place, DARK))}}}"
        for place in range(-STEPS, STEPS + 1)
        if place
    ]
    return [f".clearhead{{{variables}}}", *steps]


def _both(light: tuple[int, int, int], dark: tuple[int, int, int]) -> str:
    return f"light-dark({hexadecimal(light)},{hexadecimal(dark)})"


def css_class(place: int) -> str:
    """f1 … f9 speak for the class, a1 … a9 against it; nothing for step 0."""
    return f"f{place}" if place > 0 else f"a{-place}" if place < 0 else ""


# --- text ------------------------------------------------------------------------------------------------------


def text(parts: Sequence[Sequence[Piece]], full: float, extra: str = "") -> str:
    """One paragraph per text of the input, each word on its colour."""
    count = sum(piece.relevance is not None for part in parts for piece in part)
    return "".join(
        f'<p class="ch-text {extra}" dir="auto" lang="">{"".join(_piece(piece, full, count) for piece in part)}</p>'
        for part in parts
    )


def _piece(piece: Piece, full: float, count: int) -> str:
    if piece.relevance is None:
        return escape(piece.text)
    name = css_class(step(piece.relevance, full))
    css = f' class="{name}"' if name else ""
    return f'<span{css} title="{attribute(tip(piece, count))}">{escape(piece.text)}</span>'


def levels(explanation: Explanation, level: str, full: float) -> str:
    """The text at the given level and, behind a check box, at the other one, on the same scale."""
    if explanation.text is None or explanation.offsets is None:
        return text(pieces(explanation), full)
    other = "word" if level == "token" else "token"
    first = text(pieces(explanation, level), full, "ch-word")
    second = text(pieces(explanation, other), full, "ch-token")
    box = f'<label><input type="checkbox" class="ch-tokens"> Show {other}s</label>'
    return f"{first}{second}{box}"


def full_of(explanation: Explanation) -> float:
    """The largest relevance of any word or token: what the full colour stands for."""
    return max(largest(scored(explanation, level)) for level in LEVELS)


# --- around the text -------------------------------------------------------------------------------------------


def heading(explanation: Explanation, *, method: bool = True, tag: str = "h2") -> str:
    """The explained class, its probability, and where the numbers come from."""
    probability = "" if explanation.probability is None else f" · {percent(explanation.probability)}"
    said = [spelling(explanation)] if method else []
    said += [explanation.model] if explanation.model else []
    below = f'<p class="ch-faint">{escape(" · ".join(said))}</p>' if said else ""
    return f"<{tag}>{escape(explanation.label)}{probability}</{tag}>{below}"


def legend(full: float, label: str, signed: bool) -> str:
    """What the colours mean, with the number that the strongest stands for."""
    below = f"<span>against {number(-full)}</span>{_swatches(range(-STEPS, 0, 2))}" if signed else ""
    above = f"{_swatches(range(1, STEPS + 1, 2))}<span>{number(full)} for {escape(label)}</span>"
    return f'<p class="ch-legend">{below}<span>0</span>{above}</p>'


def _swatches(places: Iterable[int]) -> str:
    return f"""<b>{"".join(f'<i class="{css_class(place)}"></i>' for place in places)}</b>"""


def spoken(explanation: Explanation, level: str) -> str:
    """What a screen reader is told first: the strongest words in a sentence."""
    found = strongest(explanation, 5, level)
    words = ", ".join(f"{visible(piece.text)} {number(piece.relevance or 0.0)}" for piece in found)
    return f'<p class="ch-sr">Strongest {level}s: {escape(words)}.</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML cells: the first of each row names it, the others are numbers."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody></table>"


def _row(cells: Sequence[str]) -> str:
    numbers = "".join(f'<td class="ch-n">{cell}</td>' for cell in cells[1:])
    return f'<tr><th scope="row" dir="auto">{cells[0]}</th>{numbers}</tr>'


def folded(title: str, body: str) -> str:
    """What opens on a click or a key."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def card(*parts: str) -> str:
    """A framed part of the page."""
    return f'<article class="ch-card">{"".join(parts)}</article>'


def side_by_side(columns: Iterable[str]) -> str:
    """Parts side by side where there is room."""
    return f'<div class="ch-side">{"".join(f"<div>{column}</div>" for column in columns)}</div>'


def image(url: str, size: tuple[int, int], described: str, css: str) -> str:
    """A picture; one without a description is decoration."""
    return f'<img class="{css}" src="{url}" width="{size[0]}" height="{size[1]}" alt="{attribute(described)}">'


def numbers(explanation: Explanation, level: str) -> str:
    """The strongest words as a table, folded away."""
    found = strongest(explanation, TABLE, level)
    rows = [(escape(piece.text), number(piece.relevance or 0.0), str(piece.rank)) for piece in found]
    return folded(f"Strongest {level}s as numbers", table((level, "relevance", "rank"), rows))


def footer(explanation: Explanation) -> str:
    """Special tokens, apart from the text or patches, and the diagnostics."""
    others = ", ".join(f"{visible(token)} {number(value)}" for token, value in aside(explanation))
    lines = [f"Special tokens: {others}"] if others else []
    lines += [diagnostics_caption(explanation)] if diagnostics_caption(explanation) else []
    return "".join(f'<p class="ch-faint">{escape(line)}</p>' for line in lines)
