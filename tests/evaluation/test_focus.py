"""Metrics of models with an output for every word, box or pixel: one part of the output per run."""

import pytest
from helpers.pictures import photo
from helpers.tiny_heads import filling_bert, labelling_bert
from helpers.tiny_models import image_processor, text_model
from helpers.tiny_pictures import picture_network

import clearhead
from clearhead.attribution.method import parse_method
from clearhead.data.task import Example, Task
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.evaluation.explained import explain_examples

TEXTS = ("a joyless film is not very good", "not a film", "a fine plot")
METHODS = ["gradient-x-input", "random"]


def make_task(*inputs):
    return Task("examples", [Example(str(number), source) for number, source in enumerate(inputs)])


def test_one_word_of_every_text_is_measured():
    table = clearhead.evaluate(labelling_bert(), make_task(*TEXTS), METHODS, ["aopc"], focus="film")
    assert {row["n"] for row in table.rows} == {2}
    (skipped,) = table.skipped
    assert "'film' does not occur" in skipped


def test_explanations_are_those_of_the_word():
    model = labelling_bert()
    examples = [Example("a", TEXTS[0], focus="film")]
    explained = explain_examples(model, examples, [parse_method("gradient")], ["prediction"])
    (case,) = explained.cases["gradient"]
    expected = clearhead.explain(model, TEXTS[0], "gradient", focus="film", check=False)
    assert case.explanations["prediction"].label == expected.label
    assert case.explanations["prediction"].relevance.tolist() == pytest.approx(expected.relevance.tolist())


def test_without_a_focus_the_model_chooses():
    table = clearhead.evaluate(filling_bert(), make_task("a [MASK] film", "not [MASK]"), METHODS, ["aopc"])
    assert {row["n"] for row in table.rows} == {2}


@pytest.mark.parametrize(("family", "focus"), [("yolos", 2), ("segformer", (0, 0, 16, 16))])
def test_boxes_and_pixels_are_measured(family, focus):
    model = clearhead.load(picture_network(family), image_processor())
    task = make_task(photo(seed=1), photo(seed=2))
    table = clearhead.evaluate(model, task, METHODS, focus=focus)
    assert {row["n"] for row in table.rows} == {2}


def test_models_with_a_single_output_take_no_focus():
    with pytest.raises(BadOption, match="leave out focus"):
        clearhead.evaluate(text_model(), make_task(*TEXTS), METHODS, ["aopc"], focus="film")


def test_random_weights_are_compared_at_the_same_word():
    table = clearhead.evaluate(labelling_bert(), make_task(TEXTS[0]), METHODS, ["randomisation"], focus="film")
    assert {row["method"] for row in table.rows} == set(METHODS)


def test_multiple_choice_is_refused():
    from helpers.tiny_models import network
    from helpers.tiny_tokenizers import plot_tokenizer
    from transformers import BertForMultipleChoice

    model = clearhead.load(network("bert", network_class=BertForMultipleChoice), plot_tokenizer())
    with pytest.raises(UnsupportedModel, match="evaluate reads single texts"):
        clearhead.evaluate(model, make_task(*TEXTS))
