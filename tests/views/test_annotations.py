"""Human rationales and masks next to explanations."""

import re

import numpy as np
import pytest
from helpers.explanations import pictured, review
from helpers.html_reader import shown
from PIL import Image

from clearhead.errors import BadInput
from clearhead.model.inputs import open_image
from clearhead.views import annotations, html, terminal


@pytest.mark.parametrize("explanation", [review(), pictured()], ids=["text", "photo"])
def test_every_card_and_terminal_lists_the_special_tokens(explanation):
    assert "Not counted: [CLS] 1" in html.card(explanation)
    assert "Not counted: [CLS] 1" in terminal.render(explanation)


def test_marked_words_are_counted():
    body = annotations.text_with_rationale([review()], [(2, 9), (13, 20)])
    assert "2 of the 2 most relevant words are marked" in body
    assert shown(body).paragraphs[0] == review().text
    with pytest.raises(BadInput, match="outside the text"):
        annotations.text_with_rationale([review()], [(2, 900)])


def test_a_rationale_has_the_scale_of_the_classes_and_their_legend():
    both = [review(), review(label="positive", relevance=review().relevance / 4)]
    word = re.compile(r'<span class="(\w+)" title="[^"]*">(\w+)</span>')
    legend = re.compile(r'<p class="ch-legend">.*?</p>')
    classes, marked = html.classes(both), annotations.text_with_rationale(both, [(2, 9)])
    assert word.findall(marked) == word.findall(classes) != []
    assert legend.findall(marked) == legend.findall(classes) != []
    photos = [pictured(), pictured(label="dog", relevance=pictured().relevance / 4)]
    marked = annotations.image_with_mask(photos, np.ones((40, 60)))
    assert legend.findall(marked) == legend.findall(html.classes(photos)) != []


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_mask_turns_with_its_photo(tmp_path, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    pixels = np.zeros((40, 60), np.uint8)
    pixels[5:10, 40:50] = 255
    Image.fromarray(np.stack([pixels] * 3, -1)).save(tmp_path / "photo.png", exif=exif)
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    upright = np.asarray(open_image(tmp_path / "photo.png"))[..., 0] > 0
    np.testing.assert_array_equal(annotations.read_mask(tmp_path / "mask.png", tmp_path / "photo.png"), upright)
    Image.fromarray(pixels[:30]).save(tmp_path / "mask.png")
    with pytest.raises(BadInput, match="its mask 60×30"):
        annotations.read_mask(tmp_path / "mask.png", tmp_path / "photo.png")


def test_a_mask_is_drawn_on_the_photo():
    mask = np.zeros((40, 60))
    mask[10:20, 30:40] = 1
    assert "% of the positive relevance lies inside" in annotations.image_with_mask([pictured()], mask)
    with pytest.raises(BadInput, match=r"mask has shape \(4, 4\)"):
        annotations.image_with_mask([pictured()], np.ones((4, 4)))
