"""Words of scripts without blanks between them."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.answers import explained_answer
from helpers.explanations import explained

from clearhead.answer_explanation import Step
from clearhead.model.inputs import Item
from clearhead.model.unspaced import find_word_spans
from clearhead.model.word_columns import Characters, TokenColumns, WordColumns
from clearhead.perturbation.features import _number_tokens
from clearhead.views.answers import answer_relevance, list_words
from clearhead.views.text_spans import scored_spans, split_segments


def cut(text, starts):
    return [text[start:end] for start, end in find_word_spans(text, starts)]


@pytest.mark.parametrize(
    ("text", "starts", "words"),
    [
        ("我喜欢猫和狗。", [0, 1, 3, 4, 5, 6], ["我", "喜欢", "猫", "和", "狗", "。"]),
        # Three bytes of one character.
        ("猫和狗", [0, 0, 0, 1, 2], ["猫", "和", "狗"]),
        ("my iPhone很好 ok", [0, 3, 4, 9, 10, 12], ["my", "iPhone", "很", "好", "ok"]),
        ("ねこが すき", [0, 2, 4], ["ねこ", "が", "すき"]),
        ("ฉันรักแมว", [0, 3, 6], ["ฉัน", "รัก", "แมว"]),
        ("안녕하세요 세계", [0, 2, 6], ["안녕하세요", "세계"]),
        ("naïve Straße, don't", [0, 2, 6, 9, 12, 14, 17], ["naïve", "Straße,", "don't"]),
    ],
)
def test_tokens_are_words_only_where_there_are_no_blanks(text, starts, words):
    assert cut(text, starts) == words


def test_views_and_words_agree():
    offsets = ((0, 0), (0, 1), (1, 3), (3, 4))
    changes = {"tokens": ("<s>", "我", "喜欢", "猫"), "relevance": np.array([0.0, 0.1, 0.2, 0.3]), "offsets": offsets}
    special = np.array([True, False, False, False])
    explanation = explained("我喜欢猫", special=special, **changes)
    assert [word.text for word in explanation.words()] == ["我", "喜欢", "猫"]
    assert [span.text for span in scored_spans(explanation, "word")] == ["我", "喜欢", "猫"]
    assert explanation.top(1) == [("猫", 0.3)]


def test_columns_leave_such_texts_to_the_search():
    same = np.zeros(2, np.int64)
    for text, is_regular in (("我喜欢", False), ("abc", True)):
        tokens = TokenColumns(np.array([0, 2]), same, same, np.array([(0, 1), (1, 3)]), np.zeros(2, bool))
        assert WordColumns.of(tokens, Characters.of([text])).is_regular.tolist() == [is_regular]


def test_perturbation_hides_the_same_words():
    item = Item(
        ("我", "喜欢", "猫", "ok", "ay"), (False,) * 5, "我喜欢猫 okay", ((0, 1), (1, 3), (3, 4), (5, 7), (7, 9))
    )
    assert _number_tokens(item, "word") == [1, 2, 3, 4, 4]


def test_words_of_an_answer():
    steps = (Step("我", 0, 1, 0.5), Step("喜欢", 1, 3, 0.5), Step("pi", 3, 5, 0.5), Step("zza", 5, 8, 0.5))
    assert [word.text for word in list_words(explained_answer(answer="我喜欢pizza", steps=steps), "word")] == [
        "我",
        "喜欢",
        "pizza",
    ]


def test_what_no_token_stands_for_is_no_part_of_the_last_word():
    changes = {"tokens": ("我", "喜欢"), "relevance": np.array([0.1, 0.2]), "offsets": ((0, 1), (1, 3))}
    explanation = explained("我喜欢猫和狗", special=np.zeros(2, bool), **changes)
    assert [word.text for word in explanation.words()] == ["我", "喜欢"]


def test_the_last_token_of_an_answer_has_no_relevance():
    steps = (Step("喜欢", 0, 2, 0.5), Step("猫", 2, 3, 0.5))
    changes = {"tokens": ("a", "喜欢"), "relevance": np.array([0.1, 0.2]), "offsets": ((0, 0, 1), (1, 0, 2))}
    fields = {"text": ("a", "喜欢猫"), "special": np.zeros(2, bool), "prompt_length": 1, **changes}
    explanation = replace(explained_answer(answer="喜欢猫", steps=steps), **fields)
    assert answer_relevance(split_segments(explanation, "word"), list_words(explanation, "word")) == [0.2, 0.0]
