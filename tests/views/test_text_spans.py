"""Texts cut into scored spans."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.html_reader import TEXTS
from helpers.samples import explained, review

from clearhead.views.text_spans import level_for, pieces, scored, strongest, visible


@pytest.mark.parametrize("level", ["word", "token"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_pieces_joined_are_the_text(text, level):
    (part,) = pieces(explained(text), level)
    assert "".join(piece.text for piece in part) == text


@pytest.mark.parametrize("text", [*TEXTS.values(), ("a joyless film", "never again")])
def test_words_are_those_of_the_explanation(text):
    one = explained(text)
    wanted = [(word.text, pytest.approx(word.relevance)) for word in one.words()]
    assert [(piece.text, piece.relevance) for piece in scored(one, "word")] == wanted


def test_tokens_that_share_characters_become_one_piece():
    twice = explained(
        "ok 🙂",
        tokens=("[CLS]", "ok", "ð", "Ł", "[SEP]"),
        relevance=np.array([0, 1, 2, 3, 0.0]),
        special=np.array([True, False, False, False, True]),
        offsets=((0, 0), (0, 2), (3, 4), (3, 4), (0, 0)),
    )
    assert [(piece.text, piece.relevance) for piece in scored(twice, "token")] == [("ok", 1.0), ("🙂", 5.0)]


def test_scripts_without_blanks_are_shown_by_token():
    assert level_for(review()) == "word"
    assert level_for(explained("这部电影非常无聊我不推荐" * 3)) == "token"
    assert level_for(replace(review(), text=None, offsets=None)) == "token"


def test_strongest_counts_both_signs():
    assert [piece.text for piece in strongest(review(), 4)] == ["tedious", "joyless", "Never", "heart"]


def test_hidden_characters_are_spelled_out_and_joiners_kept():
    assert visible("a\u202eb") == "a⟨U+202E⟩b"
    assert visible("\x1b[31m") == "⟨U+001B⟩[31m"
    assert visible("👩‍👧") == "👩‍👧"
    assert visible("a\u200db") == "a⟨U+200D⟩b"
