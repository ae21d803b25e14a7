"""Fragments for notebooks."""

import numpy as np
import pytest
from helpers.explanations import explained, pictured, review
from helpers.html_reader import TEXTS, shown
from PIL import Image

from clearhead.explanation import Comparison, Explanations
from clearhead.views import color, heatmap, notebook
from clearhead.views.json_record import line


def test_notebook_shows_explanations_lists_and_comparisons():
    explanation = review()
    for fragment in (
        explanation._repr_html_(),
        Explanations([explanation, explanation])._repr_html_(),
        Comparison({"att-cat": explanation})._repr_html_(),
        Comparison({"att-cat": [explanation, explanation], "rollout": [explanation, explanation]})._repr_html_(),
    ):
        reader = shown(fragment)
        assert not {"html", "body", "script"} & set(reader.tags)
        assert explanation.text in reader.paragraphs


@pytest.mark.parametrize("text", ["a joyless , tedious film that Never finds", *TEXTS.values()])
def test_a_notebook_cell_is_no_larger_than_its_data(text):
    """The data is the record, which a program would keep; a cell has no style sheet, so it costs no more."""
    count = len(explained(text).tokens)
    explanation = explained(text, relevance=np.random.default_rng(0).normal(size=count), layers=np.ones((6, count)))
    data = len(line(explanation).encode("utf-8", "replace"))
    assert len(notebook.fragment(explanation).encode("utf-8", "replace")) <= data
    assert len(notebook.listing([explanation] * 10).encode("utf-8", "replace")) <= 10 * data
    assert len(notebook.comparison({"a": explanation, "b": explanation}).encode("utf-8", "replace")) <= 2 * data
    assert "<style" not in notebook.fragment(explanation)


def test_a_photo_in_a_notebook_costs_little_more_than_the_photo():
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)
    explanation = pictured(size=(400, 300), image=Image.fromarray(noise))
    photo = heatmap.shrink_image(heatmap.original_image(explanation))
    size = len(heatmap.encode_data_url(photo, "JPEG"))
    assert len(notebook.fragment(explanation)) < size + 30_000


@pytest.mark.parametrize(
    ("paper", "ink"),
    [
        ((255, 255, 255), (33, 33, 33)),
        ((17, 17, 17), (224, 224, 224)),
        ((30, 30, 30), (204, 204, 204)),
        ((56, 56, 56), (213, 213, 213)),
    ],
    ids=["light", "jupyter-dark", "vscode-dark", "colab-dark"],
)
def test_the_ink_of_a_notebook_reads_on_every_step(paper, ink):
    for tint in (color.POSITIVE_TINT, color.NEGATIVE_TINT):
        behind = tuple(int(digit * 2, 16) for digit in tint[1:])
        for step in range(color.STEPS + 1):
            assert color.contrast_ratio(ink, color.mix(paper, behind, step / 15)) >= 4.5
