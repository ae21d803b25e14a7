"""PNG and SVG of explanations."""

import io
from xml.dom import minidom

import numpy as np
import pytest
from helpers.html_reader import TEXTS
from helpers.samples import HOSTILE, explained, pictured, review
from PIL import Image

from clearhead.errors import BadOption
from clearhead.views import (
    color,
)
from clearhead.views import (
    fonts as font,
)
from clearhead.views import (
    static_image as picture,
)
from clearhead.views.text_spans import visible


def test_picture_of_a_text_and_of_photos():
    content = picture.png(picture.drawn([review()]))
    image = Image.open(io.BytesIO(content))
    assert image.width == picture.WIDTH * picture.SCALE
    painted = {one for _, one in image.convert("RGB").getcolors(1 << 20)}
    assert color.background(9, color.LIGHT) in painted
    assert color.LIGHT.below in painted
    assert picture.drawn([pictured()]).size == (60, 40)
    assert picture.drawn([pictured(), pictured(label="dog")]).width > 120


@pytest.mark.parametrize("several", [[review()], [explained(HOSTILE)], [pictured()], [pictured(), pictured()]])
def test_svg_is_well_formed_and_holds_the_words(several):
    drawn = picture.svg(several)
    parsed = minidom.parseString(drawn.encode())
    assert not parsed.getElementsByTagName("script")
    if several[0].text == review().text:
        texts = [node.firstChild.data for node in parsed.getElementsByTagName("text")]
        assert {"joyless", "tedious", "Never"} <= set(texts)


def order(text: str) -> list[str]:
    """The words of a picture from left to right."""
    boxes, _ = picture._layout([explained(text, label="", model="", diagnostics={})], visible)
    words = text.split()
    return [box.text for box in sorted(boxes, key=lambda box: box.x) if box.text in words]


def test_right_to_left_words_stand_from_the_right():
    assert order("שלוש מילים כאן") == ["כאן", "מילים", "שלוש"]
    assert order("סרט with English inside והרבה") == ["והרבה", "with", "English", "inside", "סרט"]
    assert order("he said שלוש מילים today") == ["he", "said", "מילים", "שלוש", "today"]


@pytest.fixture
def ascii_only(monkeypatch):
    """A machine whose fonts know ASCII, the brackets of names, and one mark."""
    font._face_for.cache_clear()
    monkeypatch.setattr(font, "_has", lambda face, character: character.isascii() or character in "⟨⟩…\u0301")
    yield
    font._face_for.cache_clear()


def test_what_no_font_can_write_is_named(ascii_only):
    assert font.spelled("ok 这 👩‍👧 ❤️!") == "ok ⟨U+8FD9⟩ ⟨woman⟩\u200d⟨girl⟩ ⟨heavy black heart⟩\ufe0f!"
    assert font.spelled("e\u0301 e\u0308") == "e\u0301 e⟨U+0308⟩"
    assert (font.is_whole("plain"), font.is_whole("这")) == (True, False)


def test_a_picture_says_that_characters_are_missing(ascii_only):
    boxes, _ = picture._layout([explained(TEXTS["chinese"])], font.spelled)
    assert "⟨U+8FD9⟩⟨U+90E8⟩" in "".join(box.text for box in boxes)
    assert any("font" in box.text for box in boxes)
    assert picture.drawn([explained(TEXTS["chinese"])]).height > picture.drawn([explained("a film")]).height
    plain, _ = picture._layout([explained("a film")], font.spelled)
    assert not any("font" in box.text for box in plain)


def test_an_svg_keeps_the_characters_for_the_fonts_of_its_reader(ascii_only):
    assert "这部电影" in picture.svg([explained(TEXTS["chinese"])])


def test_right_to_left_needs_shaping(monkeypatch):
    assert picture.drawn([explained(TEXTS["arabic"])]).width > 0
    monkeypatch.setattr(font.features, "check", lambda name: False)
    for text in (TEXTS["arabic"], "he said שלוש מילים today"):
        with pytest.raises(BadOption, match=r"right to left.*\.html"):
            picture.drawn([explained(text)])


def test_coloured_bitmaps_are_scaled_to_the_text():
    """Stands for an emoji font, which machines may lack: any font, drawn at another size and scaled."""
    large = font.Face(font.ImageFont.load_default(109), 38 / 109, colored=True)
    image = Image.new("RGB", (200, 80), "red")
    font._paste(image, (10, 60), "M", large)
    rows = np.flatnonzero((np.asarray(image) != (255, 0, 0)).any((1, 2)))
    assert 20 < rows.max() - rows.min() < 40 and rows.max() <= 61
    assert large.length("M") == pytest.approx(font.Face(font.ImageFont.load_default(38)).length("M"), rel=0.1)
