"""method="auto": the choice on each input, what it is chosen by, and what it says about it."""

import numpy as np
import pytest
import torch
from helpers.planted_keywords import train
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.check import MIN_GROUPS
from clearhead.model.inputs import as_inputs
from clearhead.trust.auto import TEXT_SHARES, choose_sizes
from clearhead.trust.experiment import divide
from clearhead.trust.units import group_units

TEXTS = ["a joyless film is not good and we see its heart", "the film is very good", "good"]


@pytest.fixture(scope="module")
def model():
    return text_model()


@pytest.fixture(scope="module")
def trained():
    return train("bert")


def chosen_method(explanation):
    return explanation.diagnostics["auto"].split(" before ")[0]


def test_the_relevance_is_that_of_the_chosen_method(model):
    comparison = clearhead.compare(model, TEXTS, ["auto", *ONE_TRACE_METHODS], check=False)
    for index, explanation in enumerate(comparison["auto"]):
        single = comparison[chosen_method(explanation)][index]
        np.testing.assert_allclose(explanation.relevance, single.relevance, rtol=1e-9)
        assert explanation.method == "auto"


def test_the_best_score_is_chosen_and_the_runners_up_are_told(model):
    explanation = clearhead.explain(model, TEXTS[0], "auto", check=False)
    scores = explanation.diagnostics["auto_scores"]
    assert set(scores) <= set(ONE_TRACE_METHODS)
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    best, second, third, *_ = scores
    assert explanation.diagnostics["auto"] == f"{best} before {second} and {third}"
    assert "auto chose" in explanation._repr_html_()


def test_the_choice_is_the_same_alone_and_in_a_batch(model):
    together = clearhead.explain(model, TEXTS, "auto", check=False)
    for text, explanation in zip(TEXTS, together, strict=True):
        alone = clearhead.explain(model, text, "auto", check=False)
        assert chosen_method(alone) == chosen_method(explanation)


def test_a_text_of_one_word_has_the_default(model):
    explanation = clearhead.explain(model, "good", "auto", check=False)
    assert chosen_method(explanation) == ONE_TRACE_METHODS[0]


@pytest.mark.parametrize("words", range(2, 30))
def test_the_check_hides_another_number_of_units(model, words):
    units = group_units(model, as_inputs(model, " ".join(["film"] * words)), 0, None)
    sizes = choose_sizes(units, TEXT_SHARES)
    assert all(0 < size <= units.count for size in sizes)
    if words > 2:
        assert divide(np.arange(words), MIN_GROUPS).shape[1] not in sizes


def test_the_choice_finds_keywords(trained):
    texts = trained.inputs[:40]
    comparison = clearhead.compare(trained.model, texts, ["auto", "random"], check=False)
    hits = {}
    for method, explanations in comparison.items():
        # The first token is special.
        tops = [explanation.relevance[1:-1].argmax() for explanation in explanations]
        hits[method] = np.mean([top in tokens for top, tokens in zip(tops, trained.places[:40], strict=True)])
    assert hits["auto"] > 0.9
    assert hits["random"] < 0.5


def test_images_are_explained_too():
    model = image_model()
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    explanations = clearhead.explain(model, {"pixel_values": pixels}, "auto", check=False)
    assert all(chosen_method(explanation) in ONE_TRACE_METHODS for explanation in explanations)
