"""Explanations in a terminal: signed colours behind the words of the original text, or plain text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.explanation import Explanation
from clearhead.views.captions import diagnostics_caption, number, percent, spelling
from clearhead.views.color import LIGHT, STEPS, background, hexadecimal, step
from clearhead.views.text_spans import Piece, aside, largest, pieces, scored, strongest, visible

BAR = 12
SHOWN_ASIDE = 6
SHADES = (" ░▒▓█", " ·-=≡")


def console(*, plain: bool, width: int | None = None) -> Console:
    """A console that never interprets what it prints; `plain` writes no escape sequences at all.

    Terminals that do not say what they can do get 256 colours: in sixteen, for and against would look alike.
    """
    found = Console(width=width, highlight=False, markup=False, emoji=False)
    system: Literal["256", "truecolor"] = "truecolor" if found.color_system == "truecolor" else "256"
    return Console(
        no_color=plain,
        color_system=None if plain else system,
        force_terminal=False if plain else None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


def render(explanation: Explanation, *, level: str | None = None, width: int = 100, color: bool = False) -> str:
    """The explanation as text, with escape sequences if `color`."""
    return captured(view(explanation, level=level), width=width, color=color)


def captured(shown: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """Anything printable as text."""
    target = Console(
        width=width,
        color_system="truecolor" if color else None,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with target.capture() as capture:
        target.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def view(explanation: Explanation, *, level: str | None = None, count: int = 8) -> RenderableType:
    """Answer, text, legend, the strongest words, and what else there is to know."""
    parts: list[RenderableType] = [_answer(explanation), Text()]
    if explanation.grid is not None:
        parts += [_grid(explanation)]
    else:
        parts += [
            *_texts(explanation, level),
            Text(),
            _legend(explanation, level),
            Text(),
            _top(explanation, level, count),
        ]
    return Group(*parts, *_footer(explanation))


def methods(found: Mapping[str, Explanation], *, level: str | None = None) -> RenderableType:
    """Several methods on the same input, stacked."""
    first = next(iter(found.values()))
    parts: list[RenderableType] = [_answer(first, method=False), Text()]
    for name, explanation in found.items():
        body = (
            [_grid(explanation)] if explanation.grid is not None else [*_texts(explanation, level), _short(explanation)]
        )
        parts += [Text(name, style="bold"), *body, Text()]
    return Group(*parts)


def _answer(explanation: Explanation, *, method: bool = True) -> Text:
    line = Text(visible(explanation.label), style="bold")
    if explanation.probability is not None:
        line.append(f"  {percent(explanation.probability)}", style="bold")
    said = [spelling(explanation)] if method else []
    line.append("   " + " · ".join([*said, visible(explanation.model)]).strip(" ·"), style="dim")
    return line


def _texts(explanation: Explanation, level: str | None) -> list[Text]:
    parts = pieces(explanation, level)
    full = largest(piece for part in parts for piece in part)
    return [_text(part, full) for part in parts]


def _text(part: Sequence[Piece], full: float) -> Text:
    line = Text(overflow="fold")
    for piece in part:
        line.append(visible(piece.text), style=_style(0 if piece.relevance is None else step(piece.relevance, full)))
    return line


def _style(number: int) -> str:
    """Dark ink on the light scale, so that it reads on any terminal; against the class is also underlined twice.

    The lowest step has no colour: on a dark terminal the palest would stand out most.
    """
    if number == 0:
        return ""
    underline = "underline" if number > 0 else "underline2"
    if abs(number) == 1:
        return underline
    return f"{underline} {hexadecimal(LIGHT.ink)} on {hexadecimal(background(number, LIGHT))}"


def _legend(explanation: Explanation, level: str | None) -> Text:
    several = scored(explanation, level)
    full = largest(several)
    line = Text(style="dim")
    if any((piece.relevance or 0) < 0 for piece in several):
        line.append(f"against {number(-full)} ").append_text(_swatches(range(-STEPS, 0, 2))).append(" ")
    line.append("0 ").append_text(_swatches(range(1, STEPS + 1, 2)))
    return line.append(f" {number(full)} for {visible(explanation.label)}")


def _swatches(places: Iterable[int]) -> Text:
    """The steps as blocks; without colour the shade still tells the sign."""
    line = Text()
    for place in places:
        line.append("█" if place > 0 else "░", style=f"not dim {hexadecimal(background(place, LIGHT))}")
    return line


def _top(explanation: Explanation, level: str | None, count: int) -> Table:
    found = strongest(explanation, count, level)
    full = largest(found)
    table = Table.grid(padding=(0, 2))
    for piece in found:
        value = piece.relevance or 0.0
        size = abs(step(value, full)) * BAR // STEPS
        bar = Text(("█" if value > 0 else "░") * size, style=hexadecimal(_ink(value)))
        table.add_row(Text(visible(piece.text)), Text(number(value), justify="right"), bar)
    return table


def _ink(value: float) -> tuple[int, int, int]:
    return LIGHT.positive if value > 0 else LIGHT.negative


def _short(explanation: Explanation) -> Text:
    found = [f"{visible(piece.text)} {number(piece.relevance or 0.0)}" for piece in strongest(explanation, 5)]
    return Text("  ".join(found), style="dim")


def _grid(explanation: Explanation) -> Text:
    """A picture's patches, two characters each: blocks speak for the class, lines against it."""
    values = explanation.relevance[~explanation.special].reshape(explanation.grid or (0, 0))
    full = float(abs(values).max(initial=0.0))
    line = Text()
    for row in values:
        for value in row:
            line.append_text(_patch(float(value), full))
        line.append("\n")
    line.append(f"\n{SHADES[1][-1]} {number(-full)} against   " if (values < 0).any() else "\n", style="dim")
    return line.append(f"{SHADES[0][-1]} {number(full)} for {visible(explanation.label)}", style="dim")


def _patch(value: float, full: float) -> Text:
    place = step(value, full)
    shade = SHADES[value < 0][round(abs(place) / STEPS * 4)]
    return Text(shade * 2, style=hexadecimal(_ink(value)) if place else "")


def _footer(explanation: Explanation) -> list[Text]:
    others = aside(explanation)
    lines = [f"special  {_listed(others)}"] if others else []
    lines += [diagnostics_caption(explanation)] if diagnostics_caption(explanation) else []
    return [Text(), *(Text(line, style="dim") for line in lines)] if lines else []


def _listed(others: Sequence[tuple[str, float]]) -> str:
    found = [f"{visible(token)} {number(value)}" for token, value in others[:SHOWN_ASIDE]]
    return "  ".join(found + ([f"and {len(others) - SHOWN_ASIDE} more"] if len(others) > SHOWN_ASIDE else []))
