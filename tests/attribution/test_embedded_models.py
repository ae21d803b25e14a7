"""Every registered method on the embedded models: it runs, and class-specific ones tell classes apart."""

import json

import numpy as np
import pytest

import clearhead
from clearhead.attribution.method import METHODS
from clearhead.model import zoo

clearhead.methods()
TEXT = "a joyless film"
# Few passes are enough to see that a method runs; the rest of its options are the defaults.
CHEAP_TEXT = {"lime": {"samples": 8}, "shapley-sampling": {"samples": 3}}
CHEAP_IMAGE = {
    "lime": {"samples": 8, "unit": "grid", "segments": 9},
    "shapley-sampling": {"samples": 2, "unit": "grid", "segments": 9},
    "occlusion": {"unit": "grid", "segments": 9},
    "integrated-gradients": {"steps": 4},
    "smooth-gradient": {"samples": 2},
    "gradient-shap": {"samples": 2},
    "deeplift-shap": {"samples": 2},
}
NOT_FOR_IMAGES = {"context-cite", "decoded-gradcam"}


@pytest.fixture(scope="module")
def sentiment():
    return clearhead.load()


@pytest.fixture(scope="module")
def pets():
    return clearhead.load("clearhead/pets-vit")


def both_classes(model, source, name, options):
    return [clearhead.explain(model, source, name, target, **options).relevance for target in (0, 1)]


def assert_fits(name, first, second):
    assert np.isfinite(first).all()
    same = np.allclose(first, second, rtol=1e-4, atol=1e-9)
    assert same != METHODS[name].class_specific, name


@pytest.mark.parametrize("name", sorted(METHODS))
def test_on_text(sentiment, name):
    assert_fits(name, *both_classes(sentiment, TEXT, name, CHEAP_TEXT.get(name, {})))


@pytest.mark.parametrize("name", sorted(set(METHODS) - NOT_FOR_IMAGES))
def test_on_an_image(pets, name):
    photo = zoo.HERE / "examples" / "chelsea.jpg"
    assert_fits(name, *both_classes(pets, photo, name, CHEAP_IMAGE.get(name, {})))


def test_decoding_needs_words(pets):
    with pytest.raises(clearhead.UnsupportedModel, match="words"):
        clearhead.explain(pets, zoo.HERE / "examples" / "chelsea.jpg", "decoded-gradcam")


def test_four_topics_share_a_forward():
    model = clearhead.load("clearhead/agnews-minilm")
    trace = clearhead.capture(model, "The central bank raised interest rates again on Tuesday.")
    assert model.labels[trace.targets[0].number] == "Business"
    assert len({str(trace.with_target(label).targets[0].index) for label in model.labels}) == 4


def test_negation_matters(sentiment):
    """Hiding the negation costs the prediction more than hiding any other word."""
    explanation = clearhead.explain(sentiment, "this is not a good film", "occlusion", "negative", unit="word")
    assert explanation.top(1)[0][0] == "not"


def test_the_shipped_sentences_can_be_explained(sentiment):
    sentences = json.loads((zoo.HERE / "examples" / "sentences.json").read_text())
    texts = [text for group in sentences.values() for text in group]
    for explanation in clearhead.explain(sentiment, texts, "trans-att"):
        assert explanation.diagnostics["conservation_gap"] < 1e-4
