"""Texts that are encoded together are those that are encoded one by one."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.tiny_models import network
from helpers.tiny_tokenizers import blank_tokenizer, byte_tokenizer, letter_tokenizer, plot_tokenizer
from helpers.tiny_tokenizers import word_piece_tokenizer as word_tokenizer

from clearhead.errors import BadInput, TooLong
from clearhead.model import inputs as encoding
from clearhead.model.batches import EncodedList, collate
from clearhead.model.inputs import encode, encode_all
from clearhead.model.model import Model
from clearhead.model.text_columns import TEXTS_PER_CALL, TextColumns
from clearhead.model.text_encodings import tokenise_many

TOKENIZERS = {
    "words": word_tokenizer,
    "letters": letter_tokenizer,
    "segments": plot_tokenizer,
    "bytes": byte_tokenizer,
    "blanks": blank_tokenizer,
}
PIECES = ["a", " film", "film", "  ", "\t", "\u3000", "\u00a0good", " not", "é", "日本", "😀", ".", "joyless", "\n is"]
"""Words, and blanks and characters that tokenizers count to their neighbours, or take apart."""


def model_with(tokenizer):
    return Model(network("bert", vocab_size=400, dtype=torch.float32), tokenizer, name="tiny")


@pytest.fixture(scope="module", params=TOKENIZERS)
def model(request):
    return model_with(TOKENIZERS[request.param]())


def random_texts(count, pieces=12, seed=0):
    """Return texts of the words above; every one begins with a word that all tokenizers know."""
    chosen = random.Random(seed)
    return ["film" + "".join(chosen.choices(PIECES, k=chosen.randint(1, pieces))) for _ in range(count)]


def random_pairs(count):
    return list(zip(random_texts(count, 5, seed=1), random_texts(count, 5, seed=2), strict=True))


@pytest.mark.parametrize("overflow", ["truncate", "windows"])
@pytest.mark.parametrize("texts", [random_texts(200), random_pairs(100)], ids=["texts", "pairs"])
def test_texts_are_encoded_as_one_by_one(model, texts, overflow):
    encoded = encode_all(model, texts, overflow=overflow)
    assert isinstance(encoded, TextColumns)
    assert list(encoded) == [encode(model, text, overflow=overflow) for text in texts]
    assert encoded.lengths.tolist() == [row.length for row in encoded]


def test_batches_are_padded_as_from_a_list(model):
    encoded = encode_all(model, random_texts(20), overflow="truncate")
    indices = [7, 3, 19, 0]
    ours = encoded.collate(model, indices)
    expected = collate(model, [encoded[index] for index in indices])
    assert list(ours.tensors) == list(expected.tensors)
    for name, tensor in ours.tensors.items():
        torch.testing.assert_close(tensor, expected.tensors[name], rtol=0, atol=0)
    assert tuple(ours.items) == expected.items


def test_more_texts_than_the_tokenizer_gets_at_a_time():
    model = model_with(word_tokenizer())
    texts = random_texts(TEXTS_PER_CALL + 3, 4)
    encoded = encode_all(model, texts, overflow="truncate")
    assert len(encoded) == len(texts)
    for index in (0, TEXTS_PER_CALL - 1, TEXTS_PER_CALL, len(texts) - 1):
        assert encoded[index] == encode(model, texts[index], overflow="truncate")
    assert encoded[-1] == encoded[len(texts) - 1]
    assert encoded[-2:] == [encoded[len(texts) - 2], encoded[len(texts) - 1]]


@pytest.mark.parametrize(
    ("texts", "error", "says"),
    [
        (["a film", " ", 3], BadInput, "empty"),
        (["a film", 3, " "], BadInput, "int"),
        (["a film", "bad \udc80", ""], BadInput, "character 5"),
        (["a film", "good " * 99, ""], TooLong, "101 tokens"),
        (["a film", ("a", " ")], BadInput, "empty"),
        (["a film", "\x00"], BadInput, "finds no token"),
    ],
)
def test_the_first_invalid_text_is_reported(texts, error, says):
    with pytest.raises(error, match=says):
        encode_all(model_with(word_tokenizer()), texts)


class SlowTokenizer:
    """A tokenizer that does not tell where tokens come from."""

    is_fast = False

    def __call__(self, text, **options):
        ids = list(map(len, text.split()))
        return {"input_ids": ids, "special_tokens_mask": [0] * len(ids)}

    def convert_ids_to_tokens(self, ids):
        return [f"▁{'x' * index}" for index in ids]


@pytest.mark.parametrize("inputs", [["a good film", "a"], ["a good film", ("a", "film")]], ids=["slow", "mixed"])
def test_what_cannot_be_encoded_together_is_encoded_one_by_one(inputs):
    is_mixed = isinstance(inputs[1], tuple)
    model = model_with(word_tokenizer() if is_mixed else SlowTokenizer())
    encoded = encode_all(model, inputs)
    assert isinstance(encoded, EncodedList)
    assert list(encoded) == [encode(model, source) for source in inputs]
    assert encoded.lengths.tolist() == [row.length for row in encoded]


class PatchedTokenizer:
    """A fast tokenizer that changes the ids after the library has made them."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __call__(self, texts, *args, **options):
        result = self._tokenizer(texts, *args, **options)
        if isinstance(texts, list):
            result["input_ids"] = [[*ids, 0] for ids in result["input_ids"]]
        return result


def test_ids_that_are_not_those_of_the_encodings_are_read_text_by_text():
    plain = model_with(word_tokenizer())
    patched = model_with(PatchedTokenizer(plain.processor))
    texts = ["a good film", "a film"]
    assert tokenise_many(plain, [texts], "error") is not None
    assert tokenise_many(patched, [texts], "error") is None
    encoded = encode_all(patched, texts)
    assert isinstance(encoded, EncodedList)
    assert list(encoded) == [encode(plain, text) for text in texts]


def test_the_network_gets_what_the_tokenizer_makes_for_it():
    tokenizer = word_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    model = model_with(tokenizer)
    columns = encode_all(model, ["a good film", "a"])
    assert isinstance(columns, TextColumns) and list(columns.values) == ["input_ids", "attention_mask"]
    assert columns.values["attention_mask"].tolist() == [1] * len(columns.values["input_ids"])


def test_a_gpu_gets_texts_in_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "_cut_chunks", lambda model, inputs: encoding.cut_growing([1] * len(inputs), 4))
    model = model_with(word_tokenizer())
    texts = random_texts(10, 4)
    chunks = list(encoding.encode_chunks(model, texts, overflow="truncate"))
    # The first ones are small, because the GPU waits for them.
    assert [start for start, _ in chunks] == [0, 1, 3, 7]
    rows = [row for _, encoded in chunks for row in encoded]
    assert rows == list(encode_all(model, texts, overflow="truncate"))


@pytest.mark.parametrize(
    ("sizes", "ends"),
    [
        # A sixteenth of 64 at first, then twice as many characters each time.
        ([4] * 40, [1, 3, 7, 15, 31, 40]),
        ([100, 100, 1, 1], [1, 2, 4]),
        ([1, 100, 1], [1, 2, 3]),
        ([], []),
    ],
)
def test_parts_double_up_to_the_largest_and_have_an_item_each(sizes, ends):
    assert list(encoding.cut_growing(sizes, 64)) == list(pairwise([0, *ends]))


def test_long_texts_come_in_smaller_chunks(monkeypatch):
    model = model_with(word_tokenizer())
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(encoding, "CHARACTERS_PER_CHUNK", 64)

    def count_texts(text):
        return [end - start for start, end in encoding._cut_chunks(model, [text] * 100)]

    assert max(count_texts("a film")) == 10
    assert max(count_texts("a good film " * 2)) == 2
    # Both texts of a pair count.
    assert max(count_texts(("a film", "a film"))) == 5


def test_columns_are_small():
    model = model_with(word_tokenizer())
    encoded = encode_all(model, ["a good film " * 6] * 100)
    arrays = [encoded.starts, encoded.special, encoded.offsets, *encoded.values.values()]
    assert sum(np.asarray(array).nbytes for array in arrays) < 100 * 20 * 32
