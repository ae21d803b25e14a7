"""Words of any text, and the text of any words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.model.word_tokenizer import WordTokenizer


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_all_words_give_the_text_again(text):
    tokenizer = WordTokenizer()
    tokens = tokenizer(text)
    # A text of blanks alone has no words.
    expected = text if text.strip() else ""
    assert tokenizer.decode(tokens["input_ids"]) == expected
    for word, (start, end) in zip(
        tokenizer.convert_ids_to_tokens(tokens["input_ids"]), tokens["offset_mapping"], strict=True
    ):
        assert text[start:end] == word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's well-made, isn't it?", ["It's", "well-made", ",", "isn't", "it", "?"]),
        ("好电影 fine", ["好", "电", "影", "fine"]),
        ("déjà vu", ["déjà", "vu"]),
    ],
)
def test_words_of_a_text(text, words):
    tokenizer = WordTokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == words


def test_pairs_and_lists():
    tokenizer = WordTokenizer()
    pair = tokenizer("a b", "c")
    assert pair["special_tokens_mask"] == [0, 0, 1, 0]
    assert pair.sequence_ids() == [0, 0, None, 1]
    assert tokenizer.decode(pair["input_ids"]) == ("a b", "c")
    assert tokenizer(["a b", "c"])["offset_mapping"] == [[(0, 1), (2, 3)], [(0, 1)]]
