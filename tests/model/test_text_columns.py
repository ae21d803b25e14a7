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
from clearhead.model.focus import FocusedInput
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


TEXTS = random_texts(200)


@pytest.mark.parametrize(
    ("texts", "overflow"),
    [(TEXTS, "truncate"), (TEXTS, "windows"), (random_pairs(100), "truncate")],
    ids=["texts-truncate", "texts-windows", "pairs-truncate"],
)
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


class ChangedResults:
    """A tokenizer of the library whose results are changed."""

    def __init__(self, change):
        self.change = change

    def make(self):
        tokenizer = word_tokenizer()
        change = self.change

        class Changed(type(tokenizer)):
            def __call__(self, *texts, **options):
                return change(super().__call__(*texts, **options))

        tokenizer.__class__ = Changed
        return tokenizer


def change_rows(name, change):
    def change_result(result):
        rows = result[name]
        result[name] = [change(row) for row in rows] if isinstance(rows[0], list) else change(rows)
        return result

    return change_result


@pytest.mark.parametrize("change", [lambda row: [*row, 0], lambda row: [row[0], 7, *row[2:]]])
def test_ids_that_are_not_those_of_the_encodings_are_read_text_by_text(change):
    changed = model_with(ChangedResults(change_rows("input_ids", change)).make())
    texts = ["a good film", "a film"]
    assert tokenise_many(model_with(word_tokenizer()), [texts], "error") is not None
    ids = changed.processor(texts)["input_ids"]
    assert ids != word_tokenizer()(texts)["input_ids"]
    assert tokenise_many(changed, [texts], "error") is None
    assert [row.values["input_ids"] for row in encode_all(changed, texts)] == ids


def test_masks_are_those_that_the_tokenizer_returns():
    hide_first = change_rows("attention_mask", lambda row: [0, *row[1:]])
    model = model_with(ChangedResults(hide_first).make())
    columns = encode_all(model, ["a good film", "a"])
    assert isinstance(columns, TextColumns)
    assert [row.values["attention_mask"][:2] for row in columns] == [[0, 1], [0, 1]]


class Wrapper:
    """Something that is called like a tokenizer."""

    is_fast = True

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(
        self, text, add_special_tokens, return_special_tokens_mask, return_offsets_mapping, verbose, truncation
    ):
        options = {"return_special_tokens_mask": True, "return_offsets_mapping": True}
        return self.tokenizer(text, add_special_tokens=add_special_tokens, **options)

    def convert_ids_to_tokens(self, ids):
        return self.tokenizer.convert_ids_to_tokens(ids)


def test_other_objects_than_tokenizers_of_the_library_are_called_text_by_text():
    texts = ["a good film", "a film"]
    encoded = encode_all(model_with(Wrapper(word_tokenizer())), texts)
    assert isinstance(encoded, EncodedList)
    assert list(encoded) == [encode(model_with(word_tokenizer()), text) for text in texts]


def test_columns_are_in_the_order_of_single_texts(model):
    names = list(encode_all(model, ["a good film", "a"]).values)
    assert names == list(encode(model, "a good film").values)


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
    monkeypatch.setattr(encoding, "LEAST_CHARACTERS", 4)

    def count_texts(text):
        return [end - start for start, end in encoding._cut_chunks(model, [text] * 100)]

    assert max(count_texts("a film")) == 10
    assert max(count_texts("a good film " * 2)) == 2
    # Both texts of a pair count.
    assert max(count_texts(("a film", "a film"))) == 5
    assert max(count_texts(FocusedInput("a good film " * 2, "film"))) == 2
    assert max(count_texts("a")) == 16


def test_columns_are_small():
    model = model_with(word_tokenizer())
    encoded = encode_all(model, ["a good film " * 6] * 100)
    arrays = [encoded.starts, encoded.special, encoded.offsets, *encoded.values.values()]
    assert sum(np.asarray(array).nbytes for array in arrays) < 100 * 20 * 32
