"""Words that are found for many texts at once are those that are searched for in each text."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.tiny_models import network
from helpers.tiny_tokenizers import blank_tokenizer, byte_tokenizer, letter_tokenizer, plot_tokenizer
from helpers.tiny_tokenizers import word_piece_tokenizer as word_tokenizer

from clearhead.explanation import REDUCTIONS, Explanation
from clearhead.model.coverage import describe_coverage
from clearhead.model.inputs import encode_all
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.model.word_columns import Characters, PlacedOffsets, TokenColumns, WordColumns

TOKENIZERS = [word_tokenizer, letter_tokenizer, plot_tokenizer, byte_tokenizer, blank_tokenizer]
AWKWARD = [
    "a joyless film",
    "  a film \t with\u00a0blanks\u3000and\n\nlines  ",
    "film 😀 👩‍👩‍👧‍👦 good🙂film 🇫🇷",
    "film 日本の映画 好电影很棒 , 한국 영화",
    "film cafe\u0301 e\u0301\u0302 \u0301 nai\u0308ve",
    "film ... , !? (good) “not” — a-b-c 's",
    "film [SEP] good [CLS]film <s> [UNK]",
    "film \u200b \u200d good\u200bfilm \x00 \x01a",
    "film " + "joyless" * 9 + " a",
    "good " * 30,
]
"""Texts whose words, blanks and tokens do not begin and end together."""
INPUTS = {"texts": AWKWARD, "pairs": list(zip(AWKWARD, reversed(AWKWARD), strict=True))}


def encode_with(tokenizer, texts, overflow="truncate"):
    model = Model(network("bert", vocab_size=400, dtype=torch.float32), tokenizer(), name="tiny")
    return encode_all(model, texts, overflow=overflow)


def explain_item(item, seed=0):
    relevance = np.random.default_rng(seed).normal(size=len(item.tokens)).astype(np.float32)
    special = np.array(item.special, dtype=bool)
    return Explanation(item.tokens, relevance, special, Target(0), "x", "y", item.text, item.offsets)


def without_words(explanation):
    """Return the explanation as it is read from a file: with offsets that know no words."""
    return replace(explanation, offsets=tuple(explanation.offsets))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("texts", INPUTS.values(), ids=INPUTS)
def test_words_are_those_that_are_searched_for(tokenizer, texts, reduction):
    encoded = encode_with(tokenizer, texts)
    for number, row in enumerate(encoded):
        explanation = explain_item(row.item, number)
        assert isinstance(explanation.offsets, PlacedOffsets)
        assert explanation.words(reduction) == without_words(explanation).words(reduction)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("texts", INPUTS.values(), ids=INPUTS)
def test_the_share_that_was_read_is_that_of_each_text(tokenizer, texts):
    for row in encode_with(tokenizer, texts):
        searched = replace(row.item, offsets=tuple(row.item.offsets))
        assert describe_coverage(row.item, "[UNK]") == describe_coverage(searched, "[UNK]")


def test_most_words_need_no_search():
    encoded = encode_with(byte_tokenizer, AWKWARD)
    assert encoded.words.is_regular.mean() > 0.5
    regular = encoded[0].item
    assert regular.offsets.words.list_spans(regular.text, np.array(regular.special)) is not None


def make_columns(text, offsets, special=None):
    """Return the words of one text, whose tokens stand at these offsets."""
    count = len(offsets)
    special = np.zeros(count, bool) if special is None else np.array(special)
    same = np.zeros(count, np.int64)
    tokens = TokenColumns(np.array([0, count]), same, same, np.array(offsets), special)
    return WordColumns.of(tokens, Characters.of([text]))


def test_the_spans_of_words():
    special = [True, False, False, False, False]
    columns = make_columns("joyless  film!", [(0, 0), (0, 3), (3, 7), (9, 13), (13, 14)], special)
    assert columns.is_regular.tolist() == [True]
    assert columns.spans.T.tolist() == [[0, 7, 1, 2], [9, 14, 3, 2]]


@pytest.mark.parametrize(
    ("offsets", "special"),
    [
        ([(2, 6), (0, 1)], [False, False]),
        ([(2, 4), (0, 1), (4, 6)], [False, False, False]),
        ([(0, 1), (2, 4), (0, 0), (4, 6)], [False, False, False, False]),
        ([(0, 1), (2, 6)], [False, True]),
    ],
    ids=["other order", "interrupted", "a token without characters", "special characters"],
)
def test_irregular_tokens_are_left_to_the_search(offsets, special):
    assert not make_columns("a film", offsets, special).is_regular.any()


def test_tokens_without_characters_have_no_words():
    columns = make_columns("film", [(0, 0), (0, 0)])
    assert columns.spans.shape == (4, 0)
    assert columns.read_shares.tolist() == [0]


def test_words_follow_the_explanation_that_was_changed():
    explanation = explain_item(encode_with(word_tokenizer, ["a good film"])[0].item)
    explanation.relevance[:] = 2
    assert [word.relevance for word in explanation.words()] == [2, 2, 2]
    other = replace(explanation, text="a bad  film")
    assert other.words() == without_words(other).words()
    special = explanation.special.copy()
    special[1] = True
    marked = replace(explanation, special=special)
    assert marked.words() == without_words(marked).words()
    assert [word.text for word in marked.words()] == ["good", "film"]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_leave_the_words_of_other_texts_behind(duplicate):
    explanation = explain_item(encode_with(word_tokenizer, AWKWARD)[1].item)
    copied = duplicate(explanation)
    assert type(copied.offsets) is tuple
    assert copied.words() == explanation.words()
