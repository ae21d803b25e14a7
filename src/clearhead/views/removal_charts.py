"""Charts of deletion and insertion curves: hiding and revealing the most relevant features, and random orders."""

from collections.abc import Mapping
from itertools import starmap
from typing import TYPE_CHECKING

from clearhead.explanation import Explanation
from clearhead.views import html_parts
from clearhead.views.line_chart import Curve, chart
from clearhead.views.text_spans import is_image

if TYPE_CHECKING:
    from clearhead.perturbation.curves import RemovalCurve


def card(
    explanation: Explanation,
    hiding: "Mapping[str, RemovalCurve]",
    revealing: "Mapping[str, RemovalCurve]",
    title: str = "",
) -> str:
    """Draw two charts of one input with a line per method and one of random orders, as a titled part of a page.

    `explanation`, any of the methods', says what was hidden and which score the curves follow.
    """
    charts = [
        _draw_chart(explanation, hiding, "Hiding the most relevant first", "hidden"),
        _draw_chart(explanation, revealing, "Revealing the most relevant first", "revealed"),
    ]
    return html_parts.card(_render_title(title), html_parts.side_by_side(charts), _render_note(hiding))


def _render_title(title: str) -> str:
    return f"<h2>{html_parts.escape(title)}</h2>" if title else ""


def _draw_chart(explanation: Explanation, curves: "Mapping[str, RemovalCurve]", title: str, state: str) -> str:
    x_label = f"{_unit_name(explanation)} {state}"
    return chart(_lines(curves), title=title, x_label=x_label, y_label=_score_name(explanation))


def _render_note(curves: "Mapping[str, RemovalCurve]") -> str:
    # Only the curve of random orders has more than one.
    orders = max(curve.orders for curve in curves.values())
    note = f"Random order: the mean of {orders} random orders; the band is their range, lowest to highest."
    return f'<p class="ch-faint">{note}</p>'


def _unit_name(explanation: Explanation) -> str:
    if is_image(explanation):
        return "patches"
    return "tokens"


def _score_name(explanation: Explanation) -> str:
    """Return the title of the vertical axis."""
    if explanation.target.versus is not None:
        return "difference of probabilities"
    # A regression model has no probabilities.
    if explanation.probability is None:
        return "score"
    return "probability"


def _lines(curves: "Mapping[str, RemovalCurve]") -> list[Curve]:
    return list(starmap(_make_line, curves.items()))


def _make_line(name: str, curve: "RemovalCurve") -> Curve:
    return Curve(name, curve.shares, curve.values, curve.low, curve.high)
