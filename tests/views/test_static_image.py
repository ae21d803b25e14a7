"""PNG and SVG of explanations."""

import io
from xml.dom import minidom

import numpy as np
import pytest
from helpers.explanations import HOSTILE, explained, pictured, review
from helpers.html_reader import TEXTS
from PIL import Image

from clearhead.errors import BadOption
from clearhead.views import color, fonts, static_image
from clearhead.views.text_spans import escape_hidden


def test_picture_of_a_text_and_of_photos():
    content = static_image.png(static_image.draw([review()]))
    image = Image.open(io.BytesIO(content))
    assert image.width == static_image.WIDTH * static_image.SCALE
    painted = {pixel for _, pixel in image.convert("RGB").getcolors(1 << 20)}
    assert color.background_color(9, color.LIGHT) in painted
    assert color.LIGHT.below in painted
    assert static_image.draw([pictured()]).size == (60, 40)
    assert static_image.draw([pictured(), pictured(label="dog")]).width > 120


@pytest.mark.parametrize("explanations", [[review()], [explained(HOSTILE)], [pictured()], [pictured(), pictured()]])
def test_svg_is_well_formed_and_holds_the_words(explanations):
    drawn = static_image.svg(explanations)
    parsed = minidom.parseString(drawn.encode())
    assert not parsed.getElementsByTagName("script")
    if explanations[0].text == review().text:
        texts = [node.firstChild.data for node in parsed.getElementsByTagName("text")]
        assert {"joyless", "tedious", "Never"} <= set(texts)


def order(text: str) -> list[str]:
    """Return the words of an image from left to right."""
    boxes, _ = static_image.lay_out([explained(text, label="", model="", diagnostics={})], escape_hidden)
    words = text.split()
    return [box.text for box in sorted(boxes, key=lambda box: box.x) if box.text in words]


def test_right_to_left_words_stand_from_the_right():
    assert order("שלוש מילים כאן") == ["כאן", "מילים", "שלוש"]
    assert order("סרט with English inside והרבה") == ["והרבה", "with", "English", "inside", "סרט"]
    assert order("he said שלוש מילים today") == ["he", "said", "מילים", "שלוש", "today"]


@pytest.fixture
def ascii_only(monkeypatch):
    """Simulate a machine whose fonts have ASCII, the brackets of names, and one combining mark."""
    fonts._find_face.cache_clear()
    monkeypatch.setattr(fonts, "_has_glyph", lambda face, character: character.isascii() or character in "⟨⟩…\u0301")
    yield
    fonts._find_face.cache_clear()


def test_what_no_font_can_write_is_named(ascii_only):
    assert fonts.replace_missing_glyphs("ok 这 👩‍👧 ❤️!") == "ok ⟨U+8FD9⟩ ⟨woman⟩\u200d⟨girl⟩ ⟨heavy black heart⟩\ufe0f!"
    assert fonts.replace_missing_glyphs("e\u0301 e\u0308") == "e\u0301 e⟨U+0308⟩"
    assert (fonts.has_all_glyphs("plain"), fonts.has_all_glyphs("这")) == (True, False)


def test_a_picture_says_that_characters_are_missing(ascii_only):
    boxes, _ = static_image.lay_out([explained(TEXTS["chinese"])], fonts.replace_missing_glyphs)
    assert "⟨U+8FD9⟩⟨U+90E8⟩" in "".join(box.text for box in boxes)
    assert any("font" in box.text for box in boxes)
    assert static_image.draw([explained(TEXTS["chinese"])]).height > static_image.draw([explained("a film")]).height
    plain, _ = static_image.lay_out([explained("a film")], fonts.replace_missing_glyphs)
    assert not any("font" in box.text for box in plain)


def test_an_svg_keeps_the_characters_for_the_fonts_of_its_reader(ascii_only):
    assert "这部电影" in static_image.svg([explained(TEXTS["chinese"])])


def test_right_to_left_needs_shaping(monkeypatch):
    assert static_image.draw([explained(TEXTS["arabic"])]).width > 0
    monkeypatch.setattr(fonts.features, "check", lambda name: False)
    for text in (TEXTS["arabic"], "he said שלוש מילים today"):
        with pytest.raises(BadOption, match=r"right to left.*\.html"):
            static_image.draw([explained(text)])


def test_coloured_bitmaps_are_scaled_to_the_text():
    """Stands for an emoji font, which machines may lack: any font, drawn at another size and scaled."""
    large = fonts.Face(fonts.ImageFont.load_default(109), 38 / 109, colored=True)
    image = Image.new("RGB", (200, 80), "red")
    fonts._paste_color_glyphs(image, (10, 60), "M", large)
    rows = np.flatnonzero((np.asarray(image) != (255, 0, 0)).any((1, 2)))
    assert 20 < rows.max() - rows.min() < 40 and rows.max() <= 61
    assert large.length("M") == pytest.approx(fonts.Face(fonts.ImageFont.load_default(38)).length("M"), rel=0.1)
