"""Shapley values stop drawing orders when they are known well enough."""

import numpy as np
import pytest
from helpers.baselines import TEXTS
from helpers.linear_models import linear_text
from helpers.pictures import picture
from helpers.tiny_models import bert, image_model

import clearhead

METHOD = "shapley-sampling"


def test_a_linear_model_is_known_after_one_round():
    for explanation in clearhead.explain(linear_text(), TEXTS, METHOD, target=0, output="logit"):
        assert explanation.diagnostics["samples"] == 5
        assert explanation.diagnostics["sampling_error"] < 1e-6


def test_orders_are_drawn_until_the_tolerance_is_met():
    model = bert()
    loose, strict = (clearhead.explain(model, TEXTS, METHOD, target=0, tolerance=limit) for limit in (0.5, 1e-6))
    for first, second in zip(loose, strict, strict=True):
        assert first.diagnostics["sampling_error"] <= 0.5 or first.diagnostics["samples"] == 25
        assert second.diagnostics["samples"] >= first.diagnostics["samples"]
    assert max(explanation.diagnostics["samples"] for explanation in strict) == 25
    assert min(explanation.diagnostics["samples"] for explanation in loose) < 25


def test_each_input_of_a_batch_stops_on_its_own():
    model = bert()
    together = clearhead.explain(model, TEXTS, METHOD, target=0, tolerance=0.3)
    for text, batched in zip(TEXTS, together, strict=True):
        single = clearhead.explain(model, text, METHOD, target=0, tolerance=0.3)
        assert batched.diagnostics["samples"] == single.diagnostics["samples"]
        np.testing.assert_allclose(batched.relevance, single.relevance, atol=1e-12)


def test_a_given_number_of_orders_is_kept():
    explanation = clearhead.explain(linear_text(), TEXTS[0], METHOD, target=0, output="logit", samples=7)
    assert explanation.diagnostics["samples"] == 7


@pytest.mark.parametrize("method", ["occlusion", "lime", METHOD])
def test_images_of_many_patches_are_cut_into_cells(method):
    model = image_model(patch_size=2)
    explanation = clearhead.explain(model, picture(), method, target=0, batch=64)
    assert explanation.grid == (16, 16)
    assert (explanation.diagnostics["unit"], explanation.diagnostics["units"]) == ("grid", 49)
    assert explanation.diagnostics.get("samples", 0) <= 200


def test_few_patches_are_hidden_one_by_one():
    explanation = clearhead.explain(image_model(), picture(), "occlusion", target=0)
    assert explanation.diagnostics["unit"] == "patch"
