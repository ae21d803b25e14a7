"""Line charts as SVG, with the numbers as a table; used for deletion and insertion curves."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from clearhead.errors import BadInput
from clearhead.views import html_parts
from clearhead.views.line_styles import choose_dash, stroke_color

PLOT_WIDTH = 440
HEIGHT = 340
LEFT = 56
TOP = 16
BOTTOM = 44
PLOT_RIGHT = LEFT + PLOT_WIDTH
PLOT_BOTTOM = HEIGHT - BOTTOM
NAME_LEFT = PLOT_RIGHT + 6
NAME_HEIGHT = 16
NAME_WIDTH_PER_CHARACTER = 8
MAX_NAME_LENGTH = 32
BAND_OPACITY = 0.16
# From this many curves on, bands overlap so much that each is drawn with half the opacity.
CROWDED_CURVES = 6
# Guards floor, ceil and comparisons of quotients that are integers but for rounding.
ROUNDING = 1e-9
MAX_TICKS = 5
TICK_FACTORS = (0.2, 0.25, 0.5, 1.0, 2.0, 2.5)
# Ticks of the horizontal axis, as shares of its length.
LABELLED_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Ends of the horizontal axis: curves that stop early need not be drawn in half of the plot.
LAST_SHARES = (0.1, 0.2, 0.4, 0.5, 1.0)


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
    """The vertical axis: the values at its ends and the distance of its ticks; and the last share of the horizontal."""

    low: float
    high: float
    tick: float
    last_share: float = 1.0

    def x(self, share: float) -> float:
        """Return the horizontal coordinate of a share."""
        return LEFT + share / self.last_share * PLOT_WIDTH

    def y(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        # Coordinates of SVG grow downwards.
        return PLOT_BOTTOM - (value - self.low) / (self.high - self.low) * (PLOT_BOTTOM - TOP)

    def tick_values(self) -> list[float]:
        """Return the values at the ticks, from the lowest to the highest."""
        count = round((self.high - self.low) / self.tick) + 1
        return [self.low + index * self.tick for index in range(count)]


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
    plot = _draw_plot(curves, x_label, y_label, scale)
    heading = f"<h3>{html_parts.escape(title)}</h3>"
    return heading + _render_svg(curves, title, plot) + _render_table(curves, x_label, scale)


def _render_svg(curves: Sequence[Curve], title: str, plot: str) -> str:
    width = _chart_width(curves)
    description = html_parts.escape_attribute(_describe(curves, title))
    return (
        f'<svg class="ch-chart" role="img" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">'
        f"<title>{description}</title>{plot}</svg>"
    )


def _check_curves(curves: Sequence[Curve]) -> None:
    if not curves or not all(map(_is_valid, curves)):
        raise BadInput("Every curve needs as many values as shares, and at least one.")


def _is_valid(curve: Curve) -> bool:
    return 0 < len(curve.shares) == len(curve.values)


def _chart_width(curves: Sequence[Curve]) -> int:
    # SVG cannot measure text, so the width of the longest name is an estimate.
    longest = max(len(_shorten(curve.name)) for curve in curves)
    return PLOT_RIGHT + 40 + NAME_WIDTH_PER_CHARACTER * longest


def _draw_plot(curves: Sequence[Curve], x_label: str, y_label: str, scale: float | None) -> str:
    axis = _fit_axis(curves)
    elements = [_draw_axes(axis, x_label, y_label, scale)]
    # All bands before all lines, so that no band covers a line.
    elements += _draw_bands(curves, axis)
    elements += _draw_lines(curves, axis)
    elements += _draw_names(curves, axis)
    return "".join(elements)


def _draw_bands(curves: Sequence[Curve], axis: _Axis) -> Iterator[str]:
    opacity = _band_opacity(len(curves))
    for index, curve in enumerate(curves):
        yield _draw_band(curve, index, axis, opacity)


def _draw_lines(curves: Sequence[Curve], axis: _Axis) -> Iterator[str]:
    for index, curve in enumerate(curves):
        yield _draw_line(curve, index, axis)


def _draw_names(curves: Sequence[Curve], axis: _Axis) -> Iterator[str]:
    return map(_draw_name, curves, range(len(curves)), _place_names(curves, axis))


def _band_opacity(count: int) -> float:
    if count < CROWDED_CURVES:
        return BAND_OPACITY
    return BAND_OPACITY / 2


def _fit_axis(curves: Sequence[Curve]) -> _Axis:
    """Return an axis from 0 to 1 for probabilities, else between round numbers around the lowest and highest value."""
    low, high = _value_range(curves)
    tick = _choose_tick(high - low)
    first = _round_down(low, tick)
    last = _round_up(high, tick)
    # The rounded range may be so much wider that it needs another tick.
    return _Axis(first, last, _choose_tick(last - first), _choose_last_share(curves))


def _choose_last_share(curves: Sequence[Curve]) -> float:
    last = max(_all_shares(curves))
    return next((share for share in LAST_SHARES if last <= share + ROUNDING), last)


def _round_down(value: float, tick: float) -> float:
    return math.floor(value / tick + ROUNDING) * tick


def _round_up(value: float, tick: float) -> float:
    return math.ceil(value / tick - ROUNDING) * tick


def _value_range(curves: Sequence[Curve]) -> tuple[float, float]:
    values = _all_values(curves)
    # Zero is always on the axis, so that heights can be compared.
    low = min(0.0, *values)
    high = max(values)
    if _looks_like_probability(low, high):
        return low, 1.0
    if high <= low:
        # All values are equal: any range other than 0 will do.
        return low, low + 1
    return low, high


def _looks_like_probability(low: float, high: float) -> bool:
    # Very low probabilities get an axis of their own, on which their lines can be told apart.
    return low >= 0 and 0.2 < high <= 1


def _all_values(curves: Sequence[Curve]) -> list[float]:
    return list(chain.from_iterable(map(_curve_values, curves)))


def _curve_values(curve: Curve) -> Iterable[float]:
    # The axis must hold the intervals too.
    return chain(curve.values, curve.low or (), curve.high or ())


def _choose_tick(width: float) -> float:
    """Return the smallest round number that goes into the width at most five times."""
    magnitude = 10.0 ** math.floor(math.log10(width))
    ticks = (magnitude * factor for factor in TICK_FACTORS)
    # A width is less than ten magnitudes, so the last factor always fits.
    return next(tick for tick in ticks if width / tick <= MAX_TICKS + ROUNDING)


def format_share(share: float, scale: float | None) -> str:
    """Format a position on the horizontal axis in per cent, or as a number up to `scale`."""
    if scale is None:
        return f"{share * 100:.3g} %"
    return f"{share * scale:.4g}"


def _draw_axes(axis: _Axis, x_label: str, y_label: str, scale: float | None) -> str:
    return _draw_value_ticks(axis) + _draw_share_ticks(axis, scale) + _draw_x_title(x_label) + _draw_y_title(y_label)


def _draw_x_title(x_label: str) -> str:
    return _draw_label(LEFT + PLOT_WIDTH / 2, HEIGHT - 8, x_label)


def _draw_y_title(y_label: str) -> str:
    return f'<g transform="translate(11 {HEIGHT / 2 - 14:.0f}) rotate(-90)">{_draw_label(0, 0, y_label)}</g>'


def _draw_value_ticks(axis: _Axis) -> str:
    return "".join(_draw_value_tick(value, axis.y(value)) for value in axis.tick_values())


def _draw_value_tick(value: float, y: float) -> str:
    return _draw_grid_line(y) + _draw_label(LEFT - 6, y + 4, f"{value:.3g}", "end")


def _draw_grid_line(y: float) -> str:
    return f'<path class="ch-axis" d="M{LEFT} {y:.1f}H{PLOT_RIGHT:.0f}"/>'


def _draw_share_ticks(axis: _Axis, scale: float | None) -> str:
    return "".join(_draw_share_tick(fraction, axis, scale) for fraction in _choose_fractions(axis, scale))


def _choose_fractions(axis: _Axis, scale: float | None) -> Sequence[float]:
    """Return where the horizontal axis has labels: at whole numbers, if it counts something such as blocks."""
    if scale is None:
        return LABELLED_SHARES
    # From the end, whose label is the number of all.
    last = max(1, round(scale * axis.last_share))
    step = math.ceil(last / (len(LABELLED_SHARES) - 1))
    return [number / last for number in range(last, -1, -step)]


def _draw_share_tick(fraction: float, axis: _Axis, scale: float | None) -> str:
    share = fraction * axis.last_share
    return _draw_label(axis.x(share), PLOT_BOTTOM + 16, format_share(share, scale), _choose_anchor(fraction))


def _choose_anchor(fraction: float) -> str:
    # A centred last label would stick out to the right, where the curves have their names.
    if fraction == 1:
        return "end"
    return "middle"


def _draw_label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html_parts.escape(text)}</text>'


def _list_points(shares: Iterable[float], values: Iterable[float], axis: _Axis) -> list[str]:
    return [_format_point(share, value, axis) for share, value in zip(shares, values, strict=True)]


def _format_point(share: float, value: float, axis: _Axis) -> str:
    return f"{axis.x(share):.1f},{axis.y(value):.1f}"


def _draw_line(curve: Curve, index: int, axis: _Axis) -> str:
    points = " ".join(_list_points(curve.shares, curve.values, axis))
    # Without fill="none" SVG would fill the area under the line.
    attributes = _stroke_attributes(index, ' fill="none"')
    return f'<polyline points="{points}" {attributes}/>'


def _draw_band(curve: Curve, index: int, axis: _Axis, opacity: float) -> str:
    """Draw the interval along a line."""
    if curve.low is None or curve.high is None:
        return ""
    upper = _list_points(curve.shares, curve.high, axis)
    lower = _list_points(curve.shares, curve.low, axis)
    # A polygon goes along the upper edge and back along the lower one.
    points = " ".join(upper + lower[::-1])
    return f'<polygon points="{points}" style="fill:{stroke_color(index)}" opacity="{opacity:g}"/>'


def _place_names(curves: Sequence[Curve], axis: _Axis) -> list[float]:
    """Return the heights of the names, moved apart where lines end close together."""
    heights = _move_apart(curves, axis)
    # Names pushed below the plot move all of them up.
    excess = max(0.0, max(heights) - (PLOT_BOTTOM + 8))
    return [height - excess for height in heights]


def _move_apart(curves: Sequence[Curve], axis: _Axis) -> list[float]:
    """Return a height for each name: at its line's end, or one name below the previous one."""
    heights = [0.0] * len(curves)
    lowest = float(TOP - NAME_HEIGHT)
    for index in _order_by_end(curves):
        lowest = max(axis.y(curves[index].values[-1]), lowest + NAME_HEIGHT)
        heights[index] = lowest
    return heights


def _order_by_end(curves: Sequence[Curve]) -> list[int]:
    """Return the indices of the curves, the one that ends highest first."""
    return sorted(range(len(curves)), key=lambda index: -curves[index].values[-1])


def _draw_name(curve: Curve, index: int, y: float) -> str:
    name = html_parts.escape(_shorten(curve.name))
    return f'{_draw_sample(index, y)}<text x="{NAME_LEFT + 27:.0f}" y="{y + 4:.1f}">{name}</text>'


def _draw_sample(index: int, y: float) -> str:
    # A piece of the line, so that the name can be matched where lines end close together.
    return f'<path d="M{NAME_LEFT:.0f} {y:.1f}h22" {_stroke_attributes(index)}/>'


def _stroke_attributes(index: int, fill: str = "") -> str:
    return f'style="stroke:{stroke_color(index)}"{fill} stroke-width="2.5"{_dash_attribute(index)}'


def _dash_attribute(index: int) -> str:
    dash = choose_dash(index)
    if not dash:
        return ""
    return f' stroke-dasharray="{dash}"'


def _shorten(name: str) -> str:
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[: MAX_NAME_LENGTH - 1]}…"


def _describe(curves: Sequence[Curve], title: str) -> str:
    """Return the text alternative of the chart."""
    return f"{title}: {'; '.join(map(_describe_curve, curves))}."


def _describe_curve(curve: Curve) -> str:
    return f"{curve.name} from {curve.values[0]:.2g} to {curve.values[-1]:.2g}"


def _render_table(curves: Sequence[Curve], x_label: str, scale: float | None) -> str:
    rows = [_table_row(curves, share, scale) for share in _all_shares(curves)]
    table = html_parts.table(_table_columns(curves, x_label), rows)
    return html_parts.details("The curves as numbers", html_parts.scrollable("Values of the curves", table))


def _table_columns(curves: Sequence[Curve], x_label: str) -> list[str]:
    return list(map(html_parts.escape, [x_label, *(curve.name for curve in curves)]))


def _all_shares(curves: Sequence[Curve]) -> list[float]:
    """Return the shares at which any of the curves has a value."""
    return sorted(set(chain.from_iterable(curve.shares for curve in curves)))


def _table_row(curves: Sequence[Curve], share: float, scale: float | None) -> list[str]:
    return [format_share(share, scale), *(_format_value(curve, share) for curve in curves)]


def _format_value(curve: Curve, share: float) -> str:
    """Format the value of a curve at a share with its interval, or "" if the curve has no value there."""
    if share not in curve.shares:
        return ""
    index = curve.shares.index(share)
    return f"{curve.values[index]:.3g}{_format_interval(curve, index)}"


def _format_interval(curve: Curve, index: int) -> str:
    if curve.low is None or curve.high is None:
        return ""
    return f" [{curve.low[index]:.3g}, {curve.high[index]:.3g}]"
