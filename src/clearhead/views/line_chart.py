"""Line charts as SVG, with the numbers as a table; used for deletion and insertion curves."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearhead.errors import BadInput
from clearhead.views import html_parts

PLOT_WIDTH = 314
HEIGHT = 300
LEFT = 56
TOP = 16
BOTTOM = 44
PLOT_RIGHT = LEFT + PLOT_WIDTH
PLOT_BOTTOM = HEIGHT - BOTTOM
NAME_HEIGHT = 16
NAME_WIDTH_PER_CHARACTER = 8
MAX_NAME_LENGTH = 32
BAND_OPACITY = 0.16
# From this many curves on, bands overlap so much that each is drawn with half the opacity.
CROWDED_CURVES = 6
# Guards floor, ceil and comparisons of quotients that are integers but for rounding.
ROUNDING = 1e-9
# Colours that stay distinct for the colour-blind; (light, dark) pairs with a contrast of 3 to their background.
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


@dataclass(frozen=True)
class _Axis:
    """The vertical axis: the values at its ends and the distance of its ticks."""

    low: float
    high: float
    tick: float

    def y(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        return PLOT_BOTTOM - (value - self.low) / (self.high - self.low) * (PLOT_BOTTOM - TOP)


def chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str = "tokens hidden",
    y_label: str = "probability",
    scale: float | None = None,
) -> str:
    """Render a line per curve, named at its end, and a folded table of the numbers.

    `x_label` and `y_label` label the axes. With `scale`, a share of 1 is labelled with that number instead of 100 %.
    """
    _check_curves(curves)
    width = _chart_width(curves)
    return (
        f"<h3>{html_parts.escape(title)}</h3>"
        f'<svg class="ch-chart" role="img" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">'
        f"<title>{html_parts.escape_attribute(_describe(curves, title))}</title>"
        f"{_draw_plot(curves, x_label, y_label, scale)}</svg>"
        f"{_render_table(curves, x_label, scale)}"
    )


def _check_curves(curves: Sequence[Curve]) -> None:
    is_valid = bool(curves)
    for curve in curves:
        if not curve.shares or len(curve.shares) != len(curve.values):
            is_valid = False
    if not is_valid:
        raise BadInput("Every curve needs as many values as shares, and at least one.")


def _chart_width(curves: Sequence[Curve]) -> int:
    longest = max(len(_shorten(curve.name)) for curve in curves)
    return PLOT_RIGHT + 40 + NAME_WIDTH_PER_CHARACTER * longest


def _draw_plot(curves: Sequence[Curve], x_label: str, y_label: str, scale: float | None) -> str:
    axis = _fit_axis(curves)
    elements = [_draw_axes(axis, x_label, y_label, scale)]
    # All bands before all lines, so that no band covers a line.
    for index, curve in enumerate(curves):
        elements.append(_draw_band(curve, index, axis, _band_opacity(len(curves))))
    for index, curve in enumerate(curves):
        elements.append(_draw_line(curve, index, axis))
    for index, height in enumerate(_place_names(curves, axis)):
        elements.append(_draw_name(curves[index], index, height))
    return "".join(elements)


def _band_opacity(count: int) -> float:
    return BAND_OPACITY if count < CROWDED_CURVES else BAND_OPACITY / 2


def _fit_axis(curves: Sequence[Curve]) -> _Axis:
    """Return an axis from 0 to 1 for probabilities, else between round numbers around the lowest and highest value."""
    values = _all_values(curves)
    # Zero is always on the axis, so that heights can be compared.
    low = min(0.0, *values)
    high = max(values)
    if low >= 0 and 0.2 < high <= 1:
        high = 1.0
    elif high <= low:
        # All values are equal: any range other than 0 will do.
        high = low + 1
    tick = _choose_tick(high - low)
    first = math.floor(low / tick + ROUNDING) * tick
    last = math.ceil(high / tick - ROUNDING) * tick
    # The rounded range may be so much wider that it needs another tick.
    return _Axis(first, last, _choose_tick(last - first))


def _all_values(curves: Sequence[Curve]) -> list[float]:
    values: list[float] = []
    for curve in curves:
        values += curve.values
        values += curve.low or ()
        values += curve.high or ()
    return values


def _choose_tick(width: float) -> float:
    """Return the smallest round number that goes into the width at most five times."""
    magnitude = 10.0 ** math.floor(math.log10(width))
    ticks = (magnitude * factor for factor in (0.2, 0.25, 0.5, 1.0, 2.0, 2.5))
    return next(tick for tick in ticks if width / tick <= 5 + ROUNDING)


def _x(share: float) -> float:
    return LEFT + share * PLOT_WIDTH


def format_share(share: float, scale: float | None) -> str:
    """Format a position on the horizontal axis in per cent, or as a number up to `scale`."""
    return f"{share * 100:.0f} %" if scale is None else f"{share * scale:.4g}"


def _draw_axes(axis: _Axis, x_label: str, y_label: str, scale: float | None) -> str:
    x_title = _draw_label(_x(0.5), HEIGHT - 8, x_label)
    y_title = f'<g transform="translate(11 {HEIGHT / 2 - 14:.0f}) rotate(-90)">{_draw_label(0, 0, y_label)}</g>'
    return f"{_draw_value_ticks(axis)}{_draw_share_ticks(scale)}{x_title}{y_title}"


def _draw_value_ticks(axis: _Axis) -> str:
    elements = []
    for index in range(round((axis.high - axis.low) / axis.tick) + 1):
        value = axis.low + index * axis.tick
        y = axis.y(value)
        elements.append(f'<path class="ch-axis" d="M{LEFT} {y:.1f}H{PLOT_RIGHT:.0f}"/>')
        elements.append(_draw_label(LEFT - 6, y + 4, f"{value:.3g}", "end"))
    return "".join(elements)


def _draw_share_ticks(scale: float | None) -> str:
    labels = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        # The last label would stick out to the right, where the curves have their names.
        anchor = "end" if share == 1 else "middle"
        labels.append(_draw_label(_x(share), PLOT_BOTTOM + 16, format_share(share, scale), anchor))
    return "".join(labels)


def _draw_label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html_parts.escape(text)}</text>'


def _list_points(shares: Iterable[float], values: Iterable[float], axis: _Axis) -> list[str]:
    return [f"{_x(share):.1f},{axis.y(value):.1f}" for share, value in zip(shares, values, strict=True)]


def _draw_line(curve: Curve, index: int, axis: _Axis) -> str:
    points = " ".join(_list_points(curve.shares, curve.values, axis))
    style = f'style="stroke:{_stroke_color(index)}" fill="none" stroke-width="2.5"{_dash_attribute(index)}'
    return f'<polyline points="{points}" {style}/>'


def _draw_band(curve: Curve, index: int, axis: _Axis, opacity: float) -> str:
    """Draw the interval along a line."""
    if curve.low is None or curve.high is None:
        return ""
    upper = _list_points(curve.shares, curve.high, axis)
    lower = _list_points(curve.shares, curve.low, axis)
    points = " ".join(upper + lower[::-1])
    return f'<polygon points="{points}" style="fill:{_stroke_color(index)}" opacity="{opacity:g}"/>'


def _place_names(curves: Sequence[Curve], axis: _Axis) -> list[float]:
    """Return the heights of the names, moved apart where lines end close together."""
    order = sorted(range(len(curves)), key=lambda index: -curves[index].values[-1])
    # From the highest line down, each name stands at its line's end or one name below the previous one.
    heights = [0.0] * len(curves)
    lowest = float(TOP - NAME_HEIGHT)
    for index in order:
        lowest = max(axis.y(curves[index].values[-1]), lowest + NAME_HEIGHT)
        heights[index] = lowest
    # Names pushed below the plot move all of them up.
    excess = max(0.0, lowest - (PLOT_BOTTOM + 8))
    return [height - excess for height in heights]


def _draw_name(curve: Curve, index: int, y: float) -> str:
    start = PLOT_RIGHT + 6
    return (
        f'<path d="M{start:.0f} {y:.1f}h22" style="stroke:{_stroke_color(index)}" stroke-width="2.5"'
        f"{_dash_attribute(index)}/>"
        f'<text x="{start + 27:.0f}" y="{y + 4:.1f}">{html_parts.escape(_shorten(curve.name))}</text>'
    )


def _dash_attribute(index: int) -> str:
    # The dashes shift by one after each round of colours, so that no two of 36 lines look the same.
    rounds = index // len(STROKES)
    dash = DASHES[(index + rounds) % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _shorten(name: str) -> str:
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[: MAX_NAME_LENGTH - 1]}…"


def _stroke_color(index: int) -> str:
    light, dark = STROKES[index % len(STROKES)]
    return f"light-dark({light},{dark})"


def _describe(curves: Sequence[Curve], title: str) -> str:
    """Return the text alternative of the chart."""
    ends = "; ".join(f"{curve.name} from {curve.values[0]:.2g} to {curve.values[-1]:.2g}" for curve in curves)
    return f"{title}: {ends}."


def _render_table(curves: Sequence[Curve], x_label: str, scale: float | None) -> str:
    shares: set[float] = set()
    for curve in curves:
        shares.update(curve.shares)
    rows = [_table_row(curves, share, scale) for share in sorted(shares)]
    columns = [html_parts.escape(x_label)]
    columns += [html_parts.escape(curve.name) for curve in curves]
    table = html_parts.scrollable("Values of the curves", html_parts.table(columns, rows))
    return html_parts.details("The curves as numbers", table)


def _table_row(curves: Sequence[Curve], share: float, scale: float | None) -> list[str]:
    cells = [_format_value(curve, share) for curve in curves]
    return [format_share(share, scale), *cells]


def _format_value(curve: Curve, share: float) -> str:
    """Format the value of a curve at a share with its interval, or "" if the curve has no value there."""
    if share not in curve.shares:
        return ""
    index = curve.shares.index(share)
    value = f"{curve.values[index]:.3g}"
    if curve.low is None or curve.high is None:
        return value
    return f"{value} [{curve.low[index]:.3g}, {curve.high[index]:.3g}]"
