"""Plausibility metrics by hand."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny_models
from helpers.explained_examples import marked

import clearhead
from clearhead.data.task import Example
from clearhead.evaluation.metric import ExplainedExample, parse_metric


def test_token_f1_by_hand(bert):
    text = "a fine film with no plot is it really goodly bad or a fine film"
    words = text.split()
    tokens = clearhead.explain(bert, text, "random").tokens
    assert tokens[10:12] == ("good", "##ly")
    relevance = [0.0] * len(tokens)
    relevance[11] = 5.0
    start = text.index("goodly")
    case = marked(bert, text, relevance, ((0, start, start + 6),))
    record = parse_metric("token-f1").measure(bert, [case])[0]
    assert len(words) == 15
    assert record["f1"][0] == pytest.approx(2 * (1 / 10) * 1 / (1 / 10 + 1))
    assert record["f1"][1:] == pytest.approx([2 * (1 / 15) / (1 / 15 + 1)] * 7)
    assert record["token-f1"] == pytest.approx(np.mean(record["f1"]))


def test_token_f1_of_oracle_and_reversed_explanations(bert):
    text = " ".join(["film"] * 30 + ["good"] * 10)
    gold = ((0, text.index("good"), len(text)),)
    relevance = np.array([0.0] * 31 + [1.0] * 10 + [0.0])
    curves = [
        parse_metric("token-f1").measure(bert, [marked(bert, text, scores, gold)])[0]["f1"]
        for scores in (relevance, -relevance)
    ]
    assert curves[0][:4] == pytest.approx([1, 2 / 3, 0.5, 0.4])
    assert curves[1][:4] == pytest.approx([0, 0, 0, 0.4])


def test_marked_words_past_the_models_length_count_unless_told(bert):
    text = "good " * 100
    own = clearhead.explain(bert, text, "random", long="truncate")
    case = ExplainedExample(Example("x", text, 0, ((0, 0, len(text)),)), {"label": own})
    seen = len(own.tokens) - 2
    first = parse_metric("token-f1").measure(bert, [case])[0]["f1"][0]
    second = parse_metric("token-f1:beyond=false").measure(bert, [case])[0]["f1"][0]
    assert first == pytest.approx(20 / 110)
    assert second == pytest.approx(20 / (10 + seen))


def test_precision_at_k_by_hand():
    model = tiny_models.answering_bert()
    text = ("is it good", "a fine film with no plot")
    own = clearhead.explain(model, text, "random")
    assert own.tokens[5:12] == ("a", "fine", "film", "with", "no", "plot", "[SEP]")
    start, end = np.zeros(12), np.zeros(12)
    start[[7, 1]], end[[8, 6]] = [3, 5], [4, 1]
    start[0] = 100
    explanations = {"start": replace(own, relevance=start), "end": replace(own, relevance=end)}
    answer = text[1].index("fine"), text[1].index("with")
    case = ExplainedExample(Example("x", text, None, ((1, *answer),)), explanations)
    assert parse_metric("precision-at-k:k=1").measure(model, [case])[0] == {"count": 0, "share": 0, "counts": [0]}
    record = parse_metric("precision-at-k:k=4").measure(model, [case])[0]
    assert record == {"count": 2, "share": 1, "counts": [0, 0, 1, 2]}
    unanswered = replace(case, example=replace(case.example, gold=()))
    measure = parse_metric("precision-at-k:k=4")
    records = measure.measure(model, [case, unanswered])
    assert records[1]["count"] is None
    assert measure.summarise(records) == {"count": 2, "share": 1}
