"""Shares, effects, and the one scale of an explanation in all views."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.explanations import explained, pictured, review
from helpers.html_reader import TEXTS

from clearhead.model.target import Target
from clearhead.views import html, markdown, notebook, static_image, terminal
from clearhead.views.numbers import format_effect, format_score, format_share
from clearhead.views.scale import make_scale, scale_pixels, share_scales


def with_effect(factor: float = 1.0, unit: str = "probability", **ends: float | None):
    effect = {"unit": unit, "base": 0.02, "prediction": 0.97, **ends}
    return review(relevance=review().relevance * factor, diagnostics={"effect": effect})


def test_shares_sum_to_one_without_special_tokens():
    explanation = review()
    scale = make_scale(explanation)
    shares = [scale.find_share(word.relevance) for word in explanation.words()]
    assert sum(map(abs, shares)) == pytest.approx(1)
    assert scale.positive == pytest.approx(sum(share for share in shares if share > 0))
    assert scale.caption == "Shares of all relevance on words: 76 % for, 24 % against."
    # Relevance on special tokens changes no share.
    moved = review(relevance=np.where(explanation.special, 50.0, explanation.relevance))
    assert make_scale(moved) == scale


def test_only_signed_shares_have_signs():
    scale = make_scale(review(relevance=np.abs(review().relevance)))
    assert scale.format(scale.total / 4) == "25 %"
    assert scale.caption == "Shares of all relevance on words."
    assert make_scale(review()).format(-make_scale(review()).total / 4) == "−25 %"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.314, "+31 %"), (0.0996, "+10 %"), (0.0312, "+3.1 %"), (0.02, "+2 %"), (-0.0003, "−0.03 %"), (0.0, "0 %")],
)
def test_shares_have_few_digits(share, text):
    assert format_share(share, signed=True) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.31, "probability", "+31 points"), (-1.234, "logit", "−1.23 logits"), (0.4, "log-prob", "+0.4 nats")],
)
def test_effects_have_their_own_units(value, unit, text):
    assert format_effect(value, unit) == text


@pytest.mark.parametrize("value", [1e-9, -1e-9])
def test_what_is_rounded_to_zero_has_no_sign(value):
    assert format_share(value, signed=True) == "0 %"
    assert format_effect(value, "probability") == "0 points"
    assert format_score(value, "probability", is_contrast=True) == "0 points"


def test_a_contrast_and_a_regression_are_no_percentages():
    assert format_score(-0.95, "probability", is_contrast=True) == "−95 points"
    assert format_score(3.14159, "value") == "3.14"
    contrast = replace(with_effect(base=-0.9), target=Target(0, versus=1))
    assert make_scale(contrast).caption.endswith(": −90 points with every word hidden → +97 points.")


def test_effects_lead_from_the_base_to_the_prediction():
    assert make_scale(with_effect()).caption == ("Effects in points of probability: 2 % with every word hidden → 97 %.")
    assert make_scale(with_effect(base=None)).caption == "Effects in points of probability, of 97 %."
    path = with_effect(unit="logit")
    path = replace(path, diagnostics={**path.diagnostics, "baseline": "zero"})
    assert make_scale(path).caption == "Effects in logits: 0.02 at the baseline → 0.97."


def test_small_effects_look_small_and_large_ones_dark():
    tiny, large = make_scale(with_effect(0.001)), make_scale(with_effect())
    assert tiny.full == large.full == 0.5
    assert (tiny.find_step(0.001), tiny.find_step(0.9)) == (0, 9)
    assert not re.search(r'class="[fa]\d" title', html.card(with_effect(0.001)))
    assert re.search(r'class="f9" title', html.card(with_effect()))


def test_many_units_share_the_limit():
    words = " ".join(f"word{index}" for index in range(200))
    effect = {"unit": "probability", "base": 0.1, "prediction": 0.9}
    assert make_scale(explained(words, diagnostics={"effect": effect})).full == pytest.approx(0.05)


@pytest.mark.parametrize("text", [TEXTS["chinese"], "A joyless ,  tedious film that Never finds its heart"])
def test_every_view_has_the_same_scale(text):
    explanation = explained(text)
    scale = make_scale(explanation)
    end = f"{scale.format(scale.full)} for negative"
    drawn = " ".join(re.findall(r">([^<]+)</text>", static_image.svg([explanation])))
    views = [html.card(explanation), html.methods({"a": explanation}), terminal.render(explanation), drawn]
    for view in [*views, notebook.fragment(explanation), html.brief_card(explanation)]:
        assert end in view.replace("&nbsp;", " ")
        assert scale.caption in view.replace("&nbsp;", " ")
    assert scale.caption in markdown.section(explanation)


def test_an_image_has_the_scale_of_its_patches_and_pixels():
    explanation = pictured()
    scale = make_scale(explanation)
    assert scale.caption == "Shares of all relevance on patches: 67 % for, 33 % against."
    # 16 patches of 64 pixels each.
    fine = replace(explanation, pixels=np.kron(explanation.relevance[1:].reshape(4, 4), np.ones((8, 8))) / 64)
    pixels = scale_pixels(fine, make_scale(fine))
    assert pixels.find_share(1 / 64) == pytest.approx(scale.find_share(1.0))


def test_effects_of_pixels_that_cancel_are_not_all_dark():
    explanation = pictured()
    effect = {"unit": "logit", "base": 0.0, "prediction": 1.0}
    small, large = 1e-6, 5.0
    for size in (small, large):
        signs = np.where(np.indices((32, 32)).sum(0) % 2, 1.0, -1.0) * np.linspace(0, size, 32)
        fine = replace(explanation, pixels=signs, diagnostics={"effect": effect})
        scale = make_scale(fine)
        full = scale_pixels(fine, scale).full
        # Small effects keep the fixed scale, and look small.
        expected = scale.full / 64 if size == small else size
        assert full == pytest.approx(expected, rel=0.05)


def test_classes_have_equal_colours_for_equal_shares():
    first, second = share_scales([review(), review(relevance=review().relevance / 4)])
    assert first.find_share(first.full) == pytest.approx(second.find_share(second.full))
