"""SVG line charts."""

from xml.dom import minidom

import pytest

from clearhead.errors import BadInput
from clearhead.views import line_chart


def test_curves_draw_every_line_inside_the_chart():
    curve = line_chart.Curve("att-cat", (0.0, 0.5, 1.0), (0.9, 0.2, 0.1), (0.8, 0.1, 0.0), (1.0, 0.3, 0.2))
    chart = line_chart.chart([curve, line_chart.Curve("<random>", (0.0, 1.0), (0.9, 0.1))], title="Hiding")
    minidom.parseString(chart[chart.index("<svg") : chart.index("</svg>") + 6])
    assert "<random>" not in chart
    points = chart.split('<polyline points="')[1].partition('"')[0]
    ys = [float(point.partition(",")[2]) for point in points.split()]
    assert ys == sorted(ys)
    assert 0 < ys[0] < ys[-1] < line_chart.HEIGHT
    with pytest.raises(BadInput, match="as many values as shares"):
        line_chart.chart([line_chart.Curve("x", (0.0,), ())], title="x")


def test_axes_have_round_numbers():
    flat = line_chart.chart([line_chart.Curve("x", (0.0, 1.0), (-0.93, 0.95))], title="x")
    assert [f">{mark}</text>" in flat for mark in ("-1", "-0.5", "0", "0.5", "1")] == [True] * 5
    large = line_chart.chart([line_chart.Curve("x", (0.0, 1.0), (0.0, 1234.0))], title="x")
    assert ">1.25e+03</text>" in large


@pytest.mark.parametrize(("last", "label"), [(0.5, "50 %"), (0.35, "40 %"), (0.9, "100 %")])
def test_the_horizontal_axis_ends_where_the_curves_do(last, label):
    drawn = line_chart.chart([line_chart.Curve("a", (0.0, last), (1.0, 0.5))], title="t")
    assert f'text-anchor="end">{label}</text>' in drawn


def test_an_axis_that_counts_has_whole_numbers():
    chart = line_chart.chart([line_chart.Curve("x", (0.2, 1.0), (0.5, 0.7))], title="x", scale=5)
    below = chart[chart.index("<svg") :]
    assert [f">{number}</text>" in below for number in (1, 3, 5)] == [True] * 3
    assert ">1.25</text>" not in below
