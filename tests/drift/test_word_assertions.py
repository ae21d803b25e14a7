"""Assertions for tests of a model: single explanations, minimal pairs, baselines."""

import numpy as np
import pytest
from helpers.tiny_models import text_model

import clearhead
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.model.target import Target
from clearhead.testing import (
    BaselineTest,
    assert_ignores,
    assert_relies_on,
    assert_same_reasons,
    assert_same_reasons_for_pair,
)

TEXT = "She wants a refund , now !"
RELEVANCE = [0.1, 0.05, 0.0, 0.6, 0.0, -0.2, 0.05]


def make_explanation(text=TEXT, relevance=RELEVANCE, label="complaint"):
    words = text.split(" ")
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    offsets = tuple((int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True))
    special = np.zeros(len(words), dtype=bool)
    return Explanation(tuple(words), np.array(relevance), special, Target(0), label, "cat", text=text, offsets=offsets)


def test_a_model_relies_on_what_has_a_large_share():
    explanation = make_explanation()
    assert_relies_on(explanation, "refund")
    assert_relies_on(explanation, "a refund")
    assert_relies_on(explanation, "she", min_share=0.1)
    with pytest.raises(AssertionError, match=r"rely on 'she': its share is \+10.0%, at least \+14.3% is asked"):
        assert_relies_on(explanation, "she")
    # Against the answer.
    with pytest.raises(AssertionError, match=r"'complaint' .*−?-20.0%.*Strongest: 'refund' \+60"):
        assert_relies_on(explanation, "now")


def test_a_model_ignores_what_has_a_small_share():
    explanation = make_explanation()
    assert_ignores(explanation, ["wants", "he", "!"])
    assert_ignores(explanation, "she", max_share=0.1)
    with pytest.raises(AssertionError, match=r"does not ignore 'She' \+10.0%, 'now' -20.0%: at most \+7.1% each"):
        assert_ignores(explanation, ["She", "now", ","])


def test_occurrences_for_and_against_do_not_cancel_out():
    explanation = make_explanation("he or he not", [0.4, 0.1, -0.4, 0.1])
    with pytest.raises(AssertionError, match="'he'"):
        assert_ignores(explanation, "he")


def test_assertions_that_could_not_fail_are_errors():
    explanation = make_explanation()
    with pytest.raises(BadInput, match="'delivery' does not occur"):
        assert_relies_on(explanation, "delivery")
    with pytest.raises(BadInput, match="None of he, his occurs"):
        assert_ignores(explanation, ["he", "his"])
    with pytest.raises(BadInput, match="empty"):
        assert_relies_on(explanation, " ")
    with pytest.raises(BadOption, match="one explanation"):
        assert_relies_on([explanation], "refund")
    with pytest.raises(BadOption, match="max_share"):
        assert_ignores(explanation, "she", max_share=2)


def explain_pair(monkeypatch, first, second):
    monkeypatch.setattr("clearhead.drift.word_assertions.explain", lambda *_, **__: [first, second])


def test_pairs_have_the_same_reasons(monkeypatch):
    second = make_explanation("He wants a refund , now !")
    explain_pair(monkeypatch, make_explanation(), second)
    assert_same_reasons_for_pair(text_model(), "", "")


def test_pairs_with_other_reasons_fail(monkeypatch):
    moved = make_explanation("He wants a refund , now !", [0.6, 0.05, 0.0, 0.1, 0.0, -0.2, 0.05])
    explain_pair(monkeypatch, make_explanation(), moved)
    with pytest.raises(AssertionError, match=r"50% of the reasons moved.*Most: 'She/He' \+10.0% → \+60.0%, 'refund'"):
        assert_same_reasons_for_pair(text_model(), "", "")
    assert_same_reasons_for_pair(text_model(), "", "", max_shift=0.51)


def test_words_of_one_text_alone_count_whole(monkeypatch):
    shorter = make_explanation("She wants a refund , now", [0.1, 0.05, 0.0, 0.65, 0.0, -0.2])
    explain_pair(monkeypatch, make_explanation(), shorter)
    with pytest.raises(AssertionError, match=r"5% of the reasons moved.*'!' \+5.0% → \+0.0%"):
        assert_same_reasons_for_pair(text_model(), "", "", max_shift=0.04)


def test_pairs_with_other_answers_fail(monkeypatch):
    explain_pair(monkeypatch, make_explanation(), make_explanation("He wants", [0.5, 0.5], "praise"))
    with pytest.raises(AssertionError, match=r"different answers.*'praise'.*First: Strongest: 'refund'"):
        assert_same_reasons_for_pair(text_model(), "", "")


def test_a_model_is_explained_for_pairs():
    assert_same_reasons_for_pair(text_model(), "a good film", "a good film", max_shift=0, method="cat")


def test_baselines():
    model = text_model()
    taken = clearhead.snapshot(model, ["a bad film", "a good film"], noise=0, method="cat")
    assert_same_reasons(taken, model)
    other = clearhead.snapshot(model, ["a bad film", "a good film"], noise=0, method="cat")
    for example in other.examples:
        example.shares[:] = example.shares[::-1].copy()
    test = BaselineTest(other, model)
    with pytest.raises(AssertionError, match=r"(?s)FAILED: .*at most 0.1%.*0: .*moved\..*Before: .*Strongest: .*After"):
        test.assert_same_reasons(max_shift=0.001)
    assert test.diff is test.diff
