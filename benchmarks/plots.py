"""A picture of small log-log plots in rows and columns, as one SVG."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

# Colours that stay apart for the colour-blind; marks and dashes differ too.
STROKES = (("#4d4d4d", "5 4"), ("#b35900", ""))
GRID, INK, FAINT = "#e4e4e4", "#222222", "#767676"
WIDTH, HEIGHT = 210, 190
LEFT, TOP, GAP, BELOW = 74, 86, 26, 64


@dataclass(frozen=True)
class Plot:
    """Lines over the same positions: `lines[i][j]` is the value of line i at `positions[j]`."""

    across: str
    positions: tuple[float, ...]
    lines: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Row:
    """Plots with one vertical axis in common."""

    up: str
    plots: tuple[Plot, ...]

    @property
    def range(self) -> tuple[float, float]:
        values = [value for plot in self.plots for line in plot.lines for value in line]
        return min(values) / 1.3, max(values) * 1.3


def figure(title: str, note: str, names: Sequence[str], rows: Sequence[Row]) -> str:
    """All rows under a title, a note and a legend; a dotted line shows growth in proportion."""
    columns = max(len(row.plots) for row in rows)
    width = LEFT + columns * (WIDTH + GAP)
    height = TOP + len(rows) * (HEIGHT + BELOW)
    body = [
        _text(LEFT, 26, title, size=17, weight="bold", anchor="start"),
        _text(LEFT, 46, note, colour=FAINT, anchor="start"),
        _legend(names),
        *(_row(row, TOP + index * (HEIGHT + BELOW)) for index, row in enumerate(rows)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>' + "\n".join(body) + "</svg>\n"
    )


def _legend(names: Sequence[str]) -> str:
    elements, x = [], float(LEFT)
    for index, name in enumerate(names):
        elements += [_stroke([(x, 64), (x + 34, 64)], index), _mark(x + 17, 64, index)]
        elements.append(_text(x + 42, 68, name, anchor="start"))
        x += 42 + 5.9 * len(name) + 28
    elements.append(f'<path d="M{x:.1f} 64h34" stroke="{FAINT}" stroke-width="1" stroke-dasharray="1 3"/>')
    return "".join([*elements, _text(x + 42, 68, "growth in proportion", anchor="start")])


def _row(row: Row, top: float) -> str:
    label = f'<g transform="translate(18 {top + HEIGHT / 2:.0f}) rotate(-90)">{_text(0, 0, row.up, size=13)}</g>'
    plots = [_plot(plot, row.range, LEFT + column * (WIDTH + GAP), top) for column, plot in enumerate(row.plots)]
    marks = [
        _text(LEFT - 8, _along(value, row.range, top + HEIGHT, top) + 4, f"{value:,g}", anchor="end")
        for value in _round(*row.range)
    ]
    return "\n".join([label, *marks, *plots])


def _plot(plot: Plot, up: tuple[float, float], left: float, top: float) -> str:
    across = plot.positions[0] / 1.15, plot.positions[-1] * 1.15

    def point(position: float, value: float) -> tuple[float, float]:
        return _along(position, across, left, left + WIDTH), _along(value, up, top + HEIGHT, top)

    elements = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{GRID}"/>']
    for value in _round(*up):
        elements.append(f'<path d="M{left} {point(plot.positions[0], value)[1]:.1f}h{WIDTH}" stroke="{GRID}"/>')
    for position in plot.positions:
        x = point(position, up[0])[0]
        elements.append(f'<path d="M{x:.1f} {top + HEIGHT}v4" stroke="{FAINT}"/>')
        elements.append(_text(x, top + HEIGHT + 18, f"{position:,g}"))
    elements.append(_text(left + WIDTH / 2, top + HEIGHT + 38, plot.across, size=13))
    elements.append(_proportion(plot, up, point))
    for number, values in enumerate(plot.lines):
        points = [point(position, value) for position, value in zip(plot.positions, values, strict=True)]
        elements.append(_stroke(points, number) + "".join(_mark(x, y, number) for x, y in points))
    return "".join(elements)


def _proportion(plot: Plot, up: tuple[float, float], point: Callable[[float, float], tuple[float, float]]) -> str:
    """From the last line's first point as far as twice the size is twice the value."""
    start, value = plot.positions[0], plot.lines[-1][0]
    end = min(plot.positions[-1], start * up[1] / value)
    (x, y), (right, above) = point(start, value), point(end, value * end / start)
    return f'<path d="M{x:.1f} {y:.1f}L{right:.1f} {above:.1f}" stroke="{FAINT}" stroke-dasharray="1 3"/>'


def _round(low: float, high: float) -> list[float]:
    """Powers of ten, and between them 2 and 5 where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 4:
            break
    return ticks


def _along(value: float, between: tuple[float, float], start: float, end: float) -> float:
    low, high = between
    return start + (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) * (end - start)


def _stroke(points: Sequence[tuple[float, float]], number: int) -> str:
    colour, dash = STROKES[number % len(STROKES)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def _mark(x: float, y: float, number: int) -> str:
    colour = STROKES[number % len(STROKES)][0]
    if number % 2:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "middle",
    colour: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
