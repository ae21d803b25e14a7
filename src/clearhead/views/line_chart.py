"""Curves: what happens to the model's answer as the strongest tokens are hidden, or revealed, beside random."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.errors import BadInput
from clearhead.views import html_parts as markup

PLOT, HEIGHT = 314, 300
LEFT, TOP, BOTTOM = 56, 16, 44
NAME = 32
BAND, CROWD = 0.16, 6
# Colours that stay apart for the colour-blind; (light, dark) pairs with 3:1 against their paper.
STROKES = (
    ("#b35900", "#ff9d42"),
    ("#1f5fbf", "#7fb4ff"),
    ("#00785a", "#3fc79f"),
    ("#a0367a", "#ec8fc9"),
    ("#6b5b00", "#d9c24a"),
    ("#4d4d4d", "#c9c9c9"),
)
DASHES = ("", "7 4", "2 3", "9 3 2 3", "5 5", "1 4")


@dataclass(frozen=True)
class Curve:
    """One line: the share of tokens hidden or revealed, 0 … 1, and the value there, with its interval if known."""

    name: str
    shares: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


def chart(
    curves: Sequence[Curve],
    *,
    title: str,
    across: str = "tokens hidden",
    up: str = "probability",
    scale: float | None = None,
) -> str:
    """A line per curve, named at its end, with the numbers as a table behind.

    With `scale`, a share of 1 is labelled with that number instead of 100 %.
    """
    if not curves or any(len(curve.shares) != len(curve.values) or not curve.shares for curve in curves):
        raise BadInput("Every curve needs as many values as shares, and at least one.")
    low, high = _range(curves)
    faint = BAND if len(curves) < CROWD else BAND / 2
    bands = "".join(_band(curve, place, low, high, faint) for place, curve in enumerate(curves))
    lines = "".join(_line(curve, place, low, high) for place, curve in enumerate(curves))
    names = "".join(
        _name(curve, place, y) for (place, curve), y in zip(enumerate(curves), _spread(curves, low, high), strict=True)
    )
    width = LEFT + PLOT + 40 + 8 * max(min(len(curve.name), NAME) for curve in curves)
    return (
        f"<h3>{markup.escape(title)}</h3>"
        f'<svg class="ch-chart" role="img" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">'
        f"<title>{markup.attribute(_said(curves, title))}</title>"
        f"{_axes(low, high, across, up, scale)}{bands}{lines}{names}</svg>"
        f"{_table(curves, across, scale)}"
    )


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Probabilities are drawn from 0 to 1, anything else between round numbers around its lowest and highest."""
    several = [value for curve in curves for part in (curve.values, curve.low, curve.high) for value in part or ()]
    low, high = min(0.0, *several), max(several)
    high = 1.0 if low >= 0 and 0.2 < high <= 1 else high if high > low else low + 1
    step = _step(high - low)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _step(width: float) -> float:
    """The distance of the marks: a round number that goes into the width four or five times."""
    size = 10.0 ** math.floor(math.log10(width))
    return next(size * part for part in (0.2, 0.25, 0.5, 1.0, 2.0, 2.5) if width / (size * part) <= 5 + 1e-9)


def _x(share: float) -> float:
    return LEFT + share * PLOT


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def format_share(share: float, scale: float | None) -> str:
    """A place on the horizontal axis in percent, or as a number up to `scale`."""
    return f"{share * 100:.0f} %" if scale is None else f"{share * scale:.4g}"


def _axes(low: float, high: float, across: str, up: str, scale: float | None) -> str:
    step = _step(high - low)
    marks = "".join(
        f'<path class="ch-axis" d="M{LEFT} {_y(value, low, high):.1f}H{_x(1):.0f}"/>'
        + _label(LEFT - 6, _y(value, low, high) + 4, f"{value:.3g}", "end")
        for value in (low + place * step for place in range(round((high - low) / step) + 1))
    )
    below = "".join(
        _label(_x(part / 4), HEIGHT - BOTTOM + 16, format_share(part / 4, scale), "end" if part == 4 else "middle")
        for part in range(5)
    )
    side = f'<g transform="translate(11 {HEIGHT / 2 - 14:.0f}) rotate(-90)">{_label(0, 0, up)}</g>'
    return f"{marks}{below}{_label(_x(0.5), HEIGHT - 8, across)}{side}"


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{markup.escape(text)}</text>'


def _line(curve: Curve, place: int, low: float, high: float) -> str:
    points = " ".join(
        f"{_x(share):.1f},{_y(value, low, high):.1f}" for share, value in zip(curve.shares, curve.values, strict=True)
    )
    dash = _dash(place)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" style="stroke:{_stroke(place)}" fill="none" stroke-width="2.5"{dashed}/>'


def _band(curve: Curve, place: int, low: float, high: float, opacity: float) -> str:
    """The interval along a line; all of them lie under all lines."""
    if curve.low is None or curve.high is None:
        return ""
    upper = [
        f"{_x(share):.1f},{_y(value, low, high):.1f}" for share, value in zip(curve.shares, curve.high, strict=True)
    ]
    lower = [
        f"{_x(share):.1f},{_y(value, low, high):.1f}" for share, value in zip(curve.shares, curve.low, strict=True)
    ]
    return f'<polygon points="{" ".join(upper + lower[::-1])}" style="fill:{_stroke(place)}" opacity="{opacity:g}"/>'


def _spread(curves: Sequence[Curve], low: float, high: float) -> list[float]:
    """Heights for the names, moved apart where lines end close together."""
    order = sorted(range(len(curves)), key=lambda place: -curves[place].values[-1])
    heights, above = [0.0] * len(curves), TOP - 16.0
    for place in order:
        above = max(_y(curves[place].values[-1], low, high), above + 16)
        heights[place] = above
    over = max(0.0, above - (HEIGHT - BOTTOM + 8))
    return [height - over for height in heights]


def _name(curve: Curve, place: int, y: float) -> str:
    dash = _dash(place)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    start = _x(1) + 6
    return (
        f'<path d="M{start:.0f} {y:.1f}h22" style="stroke:{_stroke(place)}" stroke-width="2.5"{dashed}/>'
        f'<text x="{start + 27:.0f}" y="{y + 4:.1f}">{markup.escape(_short(curve.name))}</text>'
    )


def _dash(place: int) -> str:
    """After one round of colours the dashes have moved on, so that no two lines look the same."""
    return DASHES[(place + place // len(STROKES)) % len(DASHES)]


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _stroke(place: int) -> str:
    light, dark = STROKES[place % len(STROKES)]
    return f"light-dark({light},{dark})"


def _said(curves: Sequence[Curve], title: str) -> str:
    ends = "; ".join(f"{curve.name} from {curve.values[0]:.2g} to {curve.values[-1]:.2g}" for curve in curves)
    return f"{title}: {ends}."


def _table(curves: Sequence[Curve], across: str, scale: float | None) -> str:
    shares = sorted({share for curve in curves for share in curve.shares})
    rows = [(format_share(share, scale), *(_at(curve, share) for curve in curves)) for share in shares]
    columns = [markup.escape(name) for name in (across, *(curve.name for curve in curves))]
    return markup.folded("The curves as numbers", markup.table(columns, rows))


def _at(curve: Curve, share: float) -> str:
    if share not in curve.shares:
        return ""
    place = curve.shares.index(share)
    if curve.low is None or curve.high is None:
        return f"{curve.values[place]:.3g}"
    return f"{curve.values[place]:.3g} [{curve.low[place]:.3g}, {curve.high[place]:.3g}]"
