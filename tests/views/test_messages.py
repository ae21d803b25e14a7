"""What views say of what they cannot show."""

import numpy as np
import pytest
from helpers.samples import pictured, review

from clearhead.errors import BadInput, BadOption
from clearhead.views import (
    annotations as gold,
)
from clearhead.views import (
    captions as wording,
)
from clearhead.views import (
    heatmap,
    html,
)
from clearhead.views import (
    static_image as picture,
)


@pytest.mark.parametrize(
    ("label", "said"),
    [("cat", False), ("cat rather than cattle", False), ("cattle", True), ("cattle rather than cat", True)],
)
def test_another_class_than_the_predicted_one_is_told(label, said):
    one = review(label=label, diagnostics={"predicted": "cat", "predicted_probability": 0.9})
    assert ("the model predicts cat, 90.0 %" in wording.diagnostics_caption(one)) is said


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
    ("view", "says"),
    [
        (lambda: html.classes([]), "nothing to show"),
        (lambda: html.classes(review()), "list of explanations"),
        (lambda: html.methods({}), "nothing to show"),
        (lambda: html.methods({"att-cat": [review()]}), "list of explanations"),
        (lambda: html.methods([review()]), "by the name of their method"),
        (lambda: gold.text_with_rationale([], []), "nothing to show"),
        (lambda: gold.text_with_rationale(review(), []), "list of explanations"),
        (lambda: gold.image_with_mask([], MASK), "nothing to show"),
        (lambda: picture.drawn([]), "nothing to show"),
        (lambda: picture.drawn(review()), "list of explanations"),
        (lambda: picture.svg([]), "nothing to show"),
        (lambda: gold.spans_of("a film", "film"), "list of phrases"),
        (lambda: gold.spans_of("a film", [""]), "list of phrases"),
        (lambda: gold.spans_of("a film", [5]), "list of phrases"),
    ],
)
def test_views_say_what_they_cannot_show(view, says):
    with pytest.raises(BadInput, match=says):
        view()
