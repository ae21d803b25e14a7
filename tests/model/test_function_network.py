"""Functions from texts or images to probabilities."""

import numpy as np
import pytest
import torch
from helpers.custom_modules import like_bright_corner, like_fine
from helpers.tiny_tokenizers import plot_tokenizer
from PIL import Image

import clearhead
from clearhead import UnsupportedModel
from clearhead.errors import BadOption

TEXT = "A fine , well-made film !"
LABELS = ["bad", "good"]


@pytest.mark.parametrize("method", [None, "occlusion", "lime", "shapley-sampling"])
def test_the_word_that_decides_is_found(method):
    explanation = clearhead.explain(clearhead.load(like_fine, labels=LABELS), TEXT, method)
    assert explanation.tokens == ("A", "fine", ",", "well-made", "film", "!")
    assert explanation.label == "good"
    assert explanation.probability == pytest.approx(0.9)
    assert int(np.argmax(explanation.relevance)) == 1
    assert explanation.relevance[1] == pytest.approx(0.7, abs=0.02)


def test_the_unchanged_text_is_what_the_function_reads():
    read = []

    def function(texts):
        read.extend(texts)
        return like_fine(texts)

    text = " Two  lines,\none  text… \t"
    clearhead.explain(clearhead.load(function), text, "occlusion", check=False)
    assert text in read
    assert " Two,\none  text… \t" in read


@pytest.mark.parametrize("convert", [torch.tensor, np.float32, list], ids=["tensor", "float32", "list"])
def test_any_array_of_probabilities(convert):
    model = clearhead.load(lambda texts: convert(like_fine(texts)), labels=LABELS)
    assert clearhead.explain(model, TEXT).probability == pytest.approx(0.9)


def test_one_probability_per_text_is_that_of_the_second_class():
    model = clearhead.load(lambda texts: like_fine(texts)[:, 1], labels=LABELS)
    explanation = clearhead.explain(model, TEXT, target="bad")
    assert explanation.probability == pytest.approx(0.1)
    assert explanation.relevance[1] == pytest.approx(-0.7)


def test_one_number_without_labels_is_a_score():
    explanation = clearhead.explain(clearhead.load(lambda texts: 50 * like_fine(texts)[:, 1]), TEXT)
    assert explanation.probability is None
    assert explanation.relevance[1] == pytest.approx(35)


def test_probabilities_that_do_not_sum_to_one_are_labels_of_their_own():
    model = clearhead.load(lambda texts: like_fine(texts) * 0.5)
    assert model.problem == "multi-label"
    assert clearhead.explain(model, TEXT, target=1).probability == pytest.approx(0.45)


def test_pairs_are_read_as_pairs():
    model = clearhead.load(lambda pairs: like_fine([pair[1] for pair in pairs]), labels=LABELS)
    explanation = clearhead.explain(model, ("A fine film", "is a fine thing"))
    strongest = explanation.tokens[int(np.argmax(explanation.relevance))]
    assert strongest == "fine"
    assert explanation.offsets[int(np.argmax(explanation.relevance))] == (1, 5, 9)


def test_a_tokenizer_says_what_is_hidden_and_how():
    read = []

    def function(texts):
        read.extend(texts)
        return like_fine(texts)

    model = clearhead.load(function, plot_tokenizer(), labels=LABELS)
    explanation = clearhead.explain(model, "a fine film", "occlusion", check=False)
    assert explanation.relevance[explanation.tokens.index("fine")] == pytest.approx(0.7)
    assert "a [MASK] film" in read


def test_images_are_arrays_of_colours():
    image = Image.fromarray(np.full((32, 64, 3), 200, np.uint8))
    model = clearhead.load(like_bright_corner, reads="images", labels=["dark", "bright"])
    explanation = clearhead.explain(model, image, "occlusion")
    relevance = explanation.relevance.reshape(explanation.grid)
    assert explanation.label == "bright"
    assert explanation.probability == pytest.approx(200 / 255, abs=1e-6)
    assert relevance[:4, :4] == pytest.approx(200 / 255 / 16, abs=1e-6)
    assert relevance[4:].max() == pytest.approx(0, abs=1e-9)


def test_methods_that_need_more_are_refused():
    with pytest.raises(UnsupportedModel, match="Of like_fine only the outputs are known"):
        clearhead.explain(clearhead.load(like_fine), TEXT, "trans-att")


MISTAKES = {
    "scores": (lambda texts: like_fine(texts) * 8, "no probability"),
    "rows": (lambda texts: np.ones((3, 2)), r"shape \(3, 2\) for 1 inputs"),
    "error": (lambda texts: texts.nothing, "failed when it was tried .* no attribute 'nothing'"),
    "text": (lambda texts: "good", "failed when it was tried"),
    "nothing": (lambda texts: None, r"tried with texts: .*\. A function takes"),
}


@pytest.mark.parametrize(("function", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_function_that_does_not_answer_probabilities_is_refused(function, message):
    with pytest.raises(UnsupportedModel, match=message):
        clearhead.load(function)


def test_what_a_function_reads_is_texts_or_images():
    with pytest.raises(BadOption, match="'texts' or 'images'"):
        clearhead.load(like_fine, reads="sounds")
