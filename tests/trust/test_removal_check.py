"""Checks of explanations of every kind: texts, pairs, images, spans, values, contrasts and answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.language_models import make_decoder, make_encoder_decoder, make_tokenizer
from helpers.linear_models import linear_image, linear_text
from helpers.pictures import picture
from helpers.tiny_models import answering_bert, bert, image_model, model, network, tensors, text_model
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead import Target
from clearhead.errors import BadOption
from clearhead.model.inputs import as_inputs
from clearhead.trust.removal_check import check_explanations, count_groups

TEXT = "the film is not good , never very good . a dull film"


def recheck(explained, source, explanation):
    ((checked,),) = check_explanations(explained, as_inputs(explained, [source]), [[explanation]])
    return checked.check


@pytest.mark.parametrize(("make", "source"), [(linear_text, TEXT), (linear_image, None)])
def test_the_right_explanation_of_a_linear_model_holds_and_its_reverse_fails(make, source):
    explained = make()
    if source is None:
        source = {"pixel_values": torch.rand(1, 3, 12, 12, dtype=torch.float64)}
    explanation = clearhead.explain(explained, source, "occlusion", check=True)
    if isinstance(explanation, list):
        (explanation,) = explanation
    assert explanation.check.verdict == "holds"
    batch = as_inputs(explained, source if isinstance(source, dict) else [source])
    reversed_relevance = replace(explanation, relevance=-explanation.relevance)
    ((checked,),) = check_explanations(explained, batch, [[reversed_relevance]])
    assert checked.check.verdict == "fails"


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_verdict_on_a_regression_does_not_depend_on_its_unit(factor):
    explained = clearhead.load(network("bert", num_labels=1), word_piece_tokenizer())
    first = clearhead.explain(explained, TEXT, "occlusion").check
    with torch.no_grad():
        explained.network.classifier.weight *= factor
        explained.network.classifier.bias *= factor
    second = clearhead.explain(explained, TEXT, "occlusion").check
    assert second.scale == "value" and second.score == pytest.approx(factor * first.score, rel=1e-3)
    assert (second.verdict, second.p_value) == (first.verdict, first.p_value)


def test_a_check_says_what_was_hidden_and_what_it_did():
    explained = text_model()
    explanation = clearhead.explain(explained, TEXT, "occlusion")
    check = explanation.check
    words = explanation.words()
    strongest = sorted(words, key=lambda word: -word.relevance)[: check.count]
    assert check.strongest == tuple(word.text for word in strongest)
    assert (check.count, check.units, check.kind, check.scale) == (2, 13, "word", "probability")
    assert check.score == explanation.probability
    assert check.passes == 10
    positions = {word.start for word in strongest}
    rest = " ".join(word.text for word in words if word.start not in positions)
    alone = " ".join(word.text for word in words if word.start in positions)
    target = explanation.target
    assert check.hidden == pytest.approx(clearhead.explain(explained, rest, target=target).probability)
    assert check.shown == pytest.approx(clearhead.explain(explained, alone, target=target).probability)


def test_inputs_have_the_same_check_in_every_batch():
    explained = text_model()
    texts = [TEXT, "a dull film", "good , never very good . a dull film finds its heart !"]
    together = clearhead.explain(explained, texts, "att-cat")
    for text, explanation in zip(texts, together, strict=True):
        check = clearhead.explain(explained, text, "att-cat").check
        assert check.verdict == explanation.check.verdict
        assert check.hidden == pytest.approx(explanation.check.hidden)
        assert check.strongest == explanation.check.strongest


def test_each_method_of_a_comparison_is_checked_by_itself():
    explained = text_model()
    for name, explanation in clearhead.compare(explained, TEXT, ["att-cat", "random"]).items():
        check = recheck(explained, TEXT, explanation)
        assert (check.verdict, check.strongest) == (explanation.check.verdict, explanation.check.strongest), name
        assert (check.hidden, check.shown) == pytest.approx((explanation.check.hidden, explanation.check.shown)), name


def test_pairs_images_and_tensors_are_checked():
    pair = clearhead.explain(text_model(), ("the film is not good", "never very good"))
    assert (pair.check.units, pair.check.kind) == (8, "word")
    photo = clearhead.explain(image_model(), picture())
    assert (photo.check.kind, photo.check.strongest) == ("patch", ())
    assert photo.check.units == np.prod(photo.grid)
    batch = clearhead.explain(model("bert"), tensors("bert"))
    assert [explanation.check.kind for explanation in batch] == ["token"] * 3
    assert [explanation.check.units for explanation in batch] == [9, 6, 9]


def test_contrasts_spans_and_values_have_scales_of_their_own():
    contrast = clearhead.explain(text_model(), TEXT, target=Target(0, versus=2))
    classes = [clearhead.explain(text_model(), TEXT, target=index).probability for index in (0, 2)]
    assert contrast.check.score == pytest.approx(classes[0] - classes[1])
    value = clearhead.explain(clearhead.load(network("bert", num_labels=1), word_piece_tokenizer()), TEXT)
    assert value.check.scale == "value"
    assert value.check.score == value.diagnostics["score"]
    span = clearhead.explain(answering_bert(), ("plot plot", "plot plot plot plot plot"))
    assert span.check.scale == "probability"
    assert span.check.score == span.probability


@pytest.mark.parametrize(
    ("make", "family", "ranked_apart"), [(make_decoder, "llama", 1), (make_encoder_decoder, "t5", 0)]
)
def test_words_of_the_prompt_are_hidden_from_answers(make, family, ranked_apart):
    explained = clearhead.load(make(family), make_tokenizer())
    prompt = "the capital of france is the city of"
    explanation = clearhead.explain(explained, prompt, answer="paris", method="occlusion")
    check = explanation.check
    assert check.scale == "log-prob"
    assert check.score == pytest.approx(float(np.log(explanation.probability)))
    assert set(check.strongest) <= set(prompt.split())
    # The first token of a decoder may hold what attention does not need: views and metrics rank it apart too.
    assert check.units == len(prompt.split()) - ranked_apart


def test_part_of_an_answer_has_no_check_of_its_own():
    explained = clearhead.load(make_decoder("llama"), make_tokenizer())
    explanation = clearhead.explain(explained, "the capital of france is", answer="paris .", matrix=True)
    assert explanation.check is not None
    assert explanation.span(0).check is None


@pytest.mark.parametrize(("prompt", "reason"), [("the", "has no word"), ("the river", "has a single word")])
def test_prompts_without_enough_words_after_the_first_token_say_so(prompt, reason):
    explained = clearhead.load(make_decoder("llama"), make_tokenizer())
    explanation = clearhead.explain(explained, prompt, answer="long", method="occlusion")
    assert f"Without its first token the prompt {reason}" in explanation.diagnostics["unchecked"]


def test_long_texts_and_single_words_say_why_they_have_no_check():
    short = clearhead.load(network("bert", max_position_embeddings=16), word_piece_tokenizer(limit=16))
    rows = clearhead.explain(short, [TEXT * 3, TEXT], "att-cat", overflow="windows")
    assert rows[0].check is None
    assert "longer than the model takes" in rows[0].diagnostics["unchecked"]
    assert rows[1].check is not None
    single = clearhead.explain(text_model(), "good")
    assert single.check is None
    assert "single word" in single.diagnostics["unchecked"]


def test_the_option_switches_the_check():
    explained = bert()
    assert clearhead.explain(explained, TEXT, check=False).check is None
    assert clearhead.explain(explained, TEXT, check=True).check.passes == 10
    assert clearhead.explain(explained, TEXT, check=13).check.passes == 26
    assert [count_groups(None, explained, count) for count in (1, 64, 65)] == [5, 5, 0]
    assert [count_groups(None, image_model(), count) for count in (4, 5)] == [5, 0]
    for wrong in (4, 1.5, "yes"):
        with pytest.raises(BadOption, match=r"check.* must be a whole number, at least 5"):
            clearhead.explain(explained, TEXT, check=wrong)
