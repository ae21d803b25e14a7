"""Messages about what views cannot show."""

import numpy as np
import pytest
from helpers.explanations import pictured, review

from clearhead.errors import BadInput, BadOption
from clearhead.views import annotations, heatmap, html, static_image


@pytest.mark.parametrize(
    "options",
    [
        *({"top": value} for value in (200, -5, float("nan"), "a", True)),
        *({"opacity": value} for value in (2, -1, float("nan"), "x", None)),
        *({"full": value} for value in (-1, float("nan"), float("inf"), "x")),
    ],
    ids=str,
)
def test_an_overlay_takes_numbers_that_make_sense(options):
    with pytest.raises(BadOption, match=f"{next(iter(options))}=.*must be a finite number"):
        heatmap.overlay(pictured(), **options)


MASK = np.zeros((4, 4))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda: html.classes([]), "nothing to show"),
        (lambda: html.classes(review()), "list of explanations"),
        (lambda: html.methods({}), "nothing to show"),
        (lambda: html.methods({"att-cat": [review()]}), "list of explanations"),
        (lambda: html.methods([review()]), "by the name of their method"),
        (lambda: annotations.text_with_rationale([], []), "nothing to show"),
        (lambda: annotations.text_with_rationale(review(), []), "list of explanations"),
        (lambda: annotations.image_with_mask([], MASK), "nothing to show"),
        (lambda: static_image.draw([]), "nothing to show"),
        (lambda: static_image.draw(review()), "list of explanations"),
        (lambda: static_image.svg([]), "nothing to show"),
        (lambda: annotations.find_spans("a film", "film"), "list of phrases"),
        (lambda: annotations.find_spans("a film", [""]), "list of phrases"),
        (lambda: annotations.find_spans("a film", [5]), "list of phrases"),
    ],
)
def test_views_say_what_they_cannot_show(view, message):
    with pytest.raises(BadInput, match=message):
        view()
