"""Targets: classes, labels, contrasts, answer spans, and the probability of each."""

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import model, network, tensors, text_model
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead import Target
from clearhead.errors import BadInput


def test_targets(text):
    by_label = clearhead.explain(text, "a good film", "att-cat", target="positive")
    by_index = clearhead.explain(text, "a good film", "att-cat", target=2)
    np.testing.assert_array_equal(by_label.relevance, by_index.relevance)
    assert by_label.target == 2
    assert by_label.label == "positive"
    each = clearhead.explain(text, ["a good film"] * 2, "att-cat", target=["negative", Target("positive")])
    assert [explanation.label for explanation in each] == ["negative", "positive"]
    np.testing.assert_allclose(each[1].relevance, by_label.relevance, rtol=1e-9)


def test_a_contrast_is_a_difference(text):
    contrast = clearhead.explain(text, "a good film", "att-cat", target=Target("positive", versus="negative"))
    by_class = [clearhead.explain(text, "a good film", "att-cat", target=name) for name in ("positive", "negative")]
    np.testing.assert_allclose(contrast.relevance, by_class[0].relevance - by_class[1].relevance, rtol=1e-9, atol=1e-14)
    assert contrast.label == "positive rather than negative"
    trace = clearhead.capture(text, "a good film", Target(2, versus=0))
    separate = [trace.with_target(target).attention_relevances[0] for target in (2, 0)]
    torch.testing.assert_close(trace.attention_relevances[0], separate[0] - separate[1])
    assert clearhead.explain(text, "a film", "trans-att", Target(2, versus=0)).diagnostics["conservation_gap"] < 1e-9


@pytest.mark.parametrize(
    ("problem", "labels", "probability"),
    [
        ("multi_label_classification", 3, lambda logits: logits.sigmoid()[0, 0]),
        ("multi_label_classification", 1, lambda logits: logits.sigmoid()[0, 0]),
        ("single_label_classification", 3, lambda logits: logits.softmax(-1)[0, 0]),
    ],
)
def test_heads_and_their_probability(problem, labels, probability):
    explained = model("bert", problem_type=problem, num_labels=labels)
    batch = tensors("bert", rows=1)
    (explanation,) = clearhead.explain(explained, batch, target=0)
    assert explanation.probability == pytest.approx(probability(explained.network(**batch).logits).item())


def test_a_regression_has_a_score_and_no_probability():
    explained = model("bert", num_labels=1)
    (explanation,) = clearhead.explain(explained, tensors("bert", rows=1))
    assert explanation.probability is None
    assert explanation.diagnostics["score"] == pytest.approx(explained.network(**tensors("bert", rows=1)).logits.item())


@pytest.fixture(scope="module")
def answers():
    net = network("bert", network_class=transformers.BertForQuestionAnswering, num_labels=2)
    return clearhead.load(net, word_piece_tokenizer())


def test_answer_spans(answers):
    pair = ("is the film good", "the film is very good , not dull")
    both_ends = clearhead.explain(answers, pair, "att-cat", target=Target(span=(6, 8)))
    start, end = (clearhead.explain(answers, pair, "att-cat", target=Target(span=s)) for s in ((6, None), (None, 8)))
    np.testing.assert_allclose(both_ends.relevance, start.relevance + end.relevance, rtol=1e-9, atol=1e-14)
    assert both_ends.probability == pytest.approx(start.probability * end.probability)
    relevant = clearhead.explain(answers, pair, "trans-att", target=Target(span=(6, 8)))
    assert relevant.diagnostics["conservation_gap"] < 1e-9
    assert relevant.label == "the … is"


def test_the_predicted_span_ignores_padding(answers):
    pairs = [("good", "the film"), ("is the film good", "the film is very good , not dull")]
    together = clearhead.explain(answers, pairs, "gradient")
    for pair, explanation in zip(pairs, together, strict=True):
        alone = clearhead.explain(answers, pair, "gradient")
        assert explanation.target == alone.target
        start, end = explanation.target.span
        assert start <= end < len(explanation.tokens)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-8)


def test_positions_of_a_span_do_not_count_padding():
    pad_left = word_piece_tokenizer()
    pad_left.padding_side = "left"
    net = network("bert", network_class=transformers.BertForQuestionAnswering, num_labels=2, seed=2)
    answering = clearhead.load(net, pad_left)
    question, passages = "is film good", ["the film is not good , never dull", "film is not good"]
    batch = dict(pad_left([question] * 2, passages, padding=True, return_tensors="pt"))
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    for target in (None, Target(span=(4, 6)), Target(span=(None, 9))):
        together = clearhead.explain(answering, batch, "att-cat", target)
        for passage, explanation in zip(passages, together, strict=True):
            alone = clearhead.explain(answering, (question, passage), "att-cat", target)
            assert (explanation.label, explanation.target) == (alone.label, alone.target)
            assert explanation.tokens == alone.tokens
            np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-8, atol=1e-12)
            assert explanation.probability == pytest.approx(alone.probability)


@pytest.mark.parametrize(
    ("span", "says"),
    [
        ((1.5, 2), "integers or None"),
        ((1, 2, 3), "pair"),
        ((1,), "pair"),
        (5, "pair"),
        ("12", "pair"),
        (("a", 2), "integers or None"),
        ((True, False), "integers or None"),
        ((4, 2), "ends before it starts"),
        ((None, None), "a start, an end, or both"),
        ((12, 12), "outside the 5 tokens"),
        ((-1, 2), "outside"),
    ],
)
def test_spans_that_are_none(answers, span, says):
    pairs = [("is the film good", "the film is very good , not dull"), ("a", "film")]
    with pytest.raises(BadInput, match=says):
        clearhead.explain(answers, pairs, "att-cat", [None, Target(span=span)])


def test_whole_numbers_of_numpy_and_torch_are_classes_and_positions(text, answers):
    for number in (np.int64(2), np.uint8(2), torch.tensor(2), np.array(2)):
        explanation = clearhead.explain(text, "a good film", "att-cat", [number])
        assert explanation.target == 2 and type(explanation.target.index) is int
        assert clearhead.explain(text, "a film", "att-cat", Target(number, versus=np.int32(0))).target.versus == 0
    explanation = clearhead.explain(answers, ("a", "film"), "att-cat", Target(span=[np.int64(1), torch.tensor(3)]))
    assert explanation.target.span == (1, 3)


def test_a_label_of_two_classes_is_refused():
    twice = text_model(id2label={0: "x", 1: "X", 2: "x"}, label2id={})
    with pytest.raises(BadInput, match=r"2 classes are called 'x': give the index of one of them \(0, 2\)"):
        clearhead.explain(twice, "a film", target="x")
    assert clearhead.explain(twice, "a film", target="X").target == 1


def test_span_models_refuse_classes_and_others_refuse_spans(answers, text):
    with pytest.raises(BadInput, match="span"):
        clearhead.explain(answers, ("a", "film"), target=1)
    with pytest.raises(BadInput, match="question-answering"):
        clearhead.explain(text, "a film", target=Target(span=(0, 1)))
    with pytest.raises(BadInput, match="outside"):
        clearhead.explain(answers, ("a", "film"), target=Target(span=(0, 99)))
