"""Explanations as Matplotlib figures and PDF files."""

import sys

import pytest
from helpers.explanations import explained, pictured, review

from clearhead.errors import BadOption
from clearhead.views import figure
from clearhead.views.color import LIGHT, background_color, format_hex

pytest.importorskip("matplotlib", reason="figures need Matplotlib")


def list_texts(drawn):
    return [text.get_text() for text in drawn.axes[0].texts]


def test_a_figure_has_the_words_on_their_colours():
    drawn = review().plot()
    assert {"joyless", "tedious", "Never"} <= set(list_texts(drawn))
    from matplotlib.colors import to_hex

    painted = {to_hex(patch.get_facecolor()) for patch in drawn.axes[0].patches}
    assert format_hex(background_color(9, LIGHT)) in painted


def test_words_lie_where_the_layout_put_them():
    drawn = explained("a good film").plot()
    drawn.draw_without_rendering()
    axes = drawn.axes[0]
    word = next(text for text in axes.texts if text.get_text() == "good")
    extent = word.get_window_extent().transformed(axes.transData.inverted())
    # Of the rectangle behind the word; its letters are measured in another font where DejaVu is not installed.
    behind = min(axes.patches, key=lambda patch: abs(patch.get_x() - extent.x0))
    assert extent.x0 == pytest.approx(behind.get_x(), abs=3)
    assert extent.width == pytest.approx(behind.get_width(), rel=0.25)


def test_a_dollar_sign_is_no_formula():
    assert "$heart$" in list_texts(explained("its $heart$ sinks").plot())


def test_photos_stand_beside_their_maps():
    drawn = figure.make_figure([pictured(), pictured(label="dog")])
    assert len(drawn.axes[0].images) == 3
    assert list_texts(drawn)[0] == "photo"


def test_the_same_explanation_is_the_same_pdf():
    content = figure.encode_pdf(review().plot())
    assert content.startswith(b"%PDF")
    assert content == figure.encode_pdf(review().plot())


def test_without_matplotlib_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BadOption, match="plots"):
        review().plot()
