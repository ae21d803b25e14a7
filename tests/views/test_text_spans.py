"""Texts cut into scored spans."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.explanations import explained, review
from helpers.html_reader import TEXTS

from clearhead.views.text_spans import default_level, escape_hidden, scored_spans, split_segments, strongest_spans


@pytest.mark.parametrize("level", ["word", "token"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_spans_joined_are_the_text(text, level):
    (spans,) = split_segments(explained(text), level)
    assert "".join(span.text for span in spans) == text


@pytest.mark.parametrize("text", [*TEXTS.values(), ("a joyless film", "never again")])
def test_words_are_those_of_the_explanation(text):
    explanation = explained(text)
    words = [(word.text, pytest.approx(word.relevance)) for word in explanation.words()]
    assert [(span.text, span.relevance) for span in scored_spans(explanation, "word")] == words


def test_tokens_that_share_characters_become_one_span():
    explanation = explained(
        "ok 🙂",
        tokens=("[CLS]", "ok", "ð", "Ł", "[SEP]"),
        relevance=np.array([0, 1, 2, 3, 0.0]),
        special=np.array([True, False, False, False, True]),
        offsets=((0, 0), (0, 2), (3, 4), (3, 4), (0, 0)),
    )
    assert [(span.text, span.relevance) for span in scored_spans(explanation, "token")] == [("ok", 1.0), ("🙂", 5.0)]


def test_scripts_without_spaces_are_shown_by_token():
    assert default_level(review()) == "word"
    assert default_level(explained("这部电影非常无聊我不推荐" * 3)) == "token"
    assert default_level(replace(review(), text=None, offsets=None)) == "token"


def test_strongest_counts_both_signs():
    assert [span.text for span in strongest_spans(review(), 4)] == ["tedious", "joyless", "Never", "heart"]


def test_hidden_characters_are_spelled_out_and_joiners_kept():
    assert escape_hidden("a\u202eb") == "a⟨U+202E⟩b"
    assert escape_hidden("\x1b[31m") == "⟨U+001B⟩[31m"
    assert escape_hidden("👩‍👧") == "👩‍👧"
    assert escape_hidden("a\u200db") == "a⟨U+200D⟩b"
