"""Notebook cells: no style sheet and no script, so that a display costs little more than its data.

Colours are translucent and ink is the notebook's own, which reads on any theme; nothing outside the cell can change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from clearhead.explanation import Explanation
from clearhead.views import html
from clearhead.views.captions import diagnostics_caption, number, percent, spelling, tip
from clearhead.views.color import STEPS, step, translucent
from clearhead.views.html_parts import full_of
from clearhead.views.text_spans import LEVELS, Piece, aside, level_for, pieces, scored, visible

MOST = 100
FEW = 3


def fragment(explanation: Explanation) -> str:
    """One explanation with everything but its blocks, which `html.wrapped([layers.heat_map(e)])` shows."""
    if explanation.grid is not None:
        return html.wrapped([html.card(explanation)])
    level = level_for(explanation)
    return _framed([*_heading(explanation), *_text(explanation, level), *_other(explanation, level)])


def listing(explanations: Sequence[Explanation]) -> str:
    """Many explanations: the text of each, no more than a hundred."""
    shown = explanations[:MOST]
    if any(one.grid is not None for one in shown):
        return html.wrapped([*map(html.card if len(shown) <= FEW else html.brief, shown), *_more(explanations)])
    if len(shown) <= FEW:
        return "".join(map(fragment, shown))
    return "".join([*(_framed([*_heading(one), *_text(one, level_for(one))]) for one in shown), *_more(explanations)])


def comparison(found: Mapping[str, Explanation | Sequence[Explanation]]) -> str:
    """Several methods on one input, or on each of many, no more than a hundred."""
    rows = _inputs(found)[:MOST]
    if any(one.grid is not None for row in rows for one in row.values()):
        return html.wrapped(map(html.methods, rows))
    return "".join(_framed(_stacked(row)) for row in rows)


def _inputs(found: Mapping[str, Explanation | Sequence[Explanation]]) -> list[dict[str, Explanation]]:
    """Per input its explanations by method."""
    several = [[one] if isinstance(one, Explanation) else list(one) for one in found.values()]
    return [dict(zip(found, row, strict=True)) for row in zip(*several, strict=True)]


def _more(explanations: Sequence[Explanation]) -> list[str]:
    rest = len(explanations) - MOST
    return [f"<p>… and {rest} more.</p>"] if rest > 0 else []


# --- parts -----------------------------------------------------------------------------------------------------


def _framed(parts: Iterable[str]) -> str:
    return (
        f'<div style="max-width:75ch;margin:0 0 1em;white-space:pre-wrap;overflow-wrap:anywhere">{"".join(parts)}</div>'
    )


def _heading(explanation: Explanation, *, method: bool = True) -> Iterator[str]:
    probability = "" if explanation.probability is None else f" · {percent(explanation.probability)}"
    said = [spelling(explanation)] if method else []
    below = _small(" · ".join(filter(None, [*said, explanation.model])))
    yield f"<div><b>{_escaped(explanation.label)}{probability}</b> {below}</div>"


def _stacked(found: Mapping[str, Explanation]) -> Iterator[str]:
    yield from _heading(next(iter(found.values())), method=False)
    for name, one in found.items():
        yield f"<div>{_small(name)}</div>"
        yield from _text(one, level_for(one))


def _text(explanation: Explanation, level: str) -> Iterator[str]:
    """The coloured text with its legend."""
    full = full_of(explanation)
    yield from _paragraphs(pieces(explanation, level), full)
    signed = any((piece.relevance or 0.0) < 0 for one in LEVELS for piece in scored(explanation, one))
    below = f"against {number(-full)}" if signed else "0"
    stops = [*([translucent(-STEPS)] if signed else []), "#0000", translucent(STEPS)]
    bar = f'<i style="padding:0 3em;background:linear-gradient(90deg,{",".join(stops)})"></i>'
    yield f"<div><small>{below} {bar} {number(full)} for {_escaped(explanation.label)}</small></div>"


def _other(explanation: Explanation, level: str) -> Iterator[str]:
    """Special tokens, diagnostics, and the text at the other level, folded away."""
    others = ", ".join(f"{token} {number(value)}" for token, value in aside(explanation))
    for line in filter(None, [others and f"Special tokens: {others}", diagnostics_caption(explanation)]):
        yield f"<div>{_small(line)}</div>"
    if explanation.text is not None and explanation.offsets is not None:
        other = "word" if level == "token" else "token"
        lines = "".join(_paragraphs(pieces(explanation, other), full_of(explanation)))
        yield f"<details><summary>{_small(f'{other.title()}s')}</summary>{lines}</details>"


def _paragraphs(parts: Sequence[Sequence[Piece]], full: float) -> Iterator[str]:
    count = sum(piece.relevance is not None for part in parts for piece in part)
    for part in parts:
        words = "".join(_piece(piece, full, count) for piece in part)
        yield f'<p dir="auto" style="line-height:1.9;margin:0;text-underline-offset:.3em">{words}</p>'


def _piece(piece: Piece, full: float, count: int) -> str:
    if piece.relevance is None:
        return _escaped(piece.text)
    place = step(piece.relevance, full)
    told = f'title="{_escaped(tip(piece, count))}">{_escaped(piece.text)}'
    if not place:
        return f"<span {told}</span>"
    dashed = ";text-decoration-style:dashed" if place < 0 else ""
    return f'<u style="background:{translucent(place)}{dashed}" {told}</u>'


def _small(text: str) -> str:
    return f"<small>{_escaped(text)}</small>"


def _escaped(text: str) -> str:
    return escape(visible(text))
