"""Inputs of language models with tokens removed: what the network gets."""

import pytest
import torch

import clearhead
from clearhead.model.inputs import Inputs, Item
from clearhead.perturbation.replacement import make_replacement, resolve_replacement
from clearhead.perturbation.rows import Rows
from tests.helpers.language_models import make_decoder, make_tokenizer

IDS = [10, 11, 12, 20, 21]
BOS = 0


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


def build(model, removed, replacement="delete", **tensors):
    """Return ids, mask and positions of one input with some tokens removed; every token is a feature of its own."""
    values = {"input_ids": IDS, "attention_mask": [1] * 5, "answer_positions": [2, 3, 4], **tensors}
    batch = Inputs({name: torch.tensor([row]) for name, row in values.items()}, (Item(),))
    replacer = make_replacement(model, batch, resolve_replacement(model, batch, replacement))
    present = torch.tensor([[True, *(index not in removed for index in range(5))]])
    rows = Rows(torch.tensor([0]), present, torch.arange(1, 6)[None])
    width = int(replacer.lengths(rows))
    built = replacer.build(rows, torch.tensor([0]), width)
    return tuple(built[name][0].tolist() for name in ("input_ids", "attention_mask", "answer_positions"))


def test_prompts_are_shortened_by_default(llama):
    assert build(llama, {1}, None) == ([10, 12, 20, 21], [1, 1, 1, 1], [1, 2, 3])


@pytest.mark.parametrize(
    ("removed", "expected"),
    [
        ({2}, ([10, 11, 20, 21], [1] * 4, [1, 2, 3])),
        ({3}, ([10, 11, 12, 21], [1] * 4, [2, 2, 3])),
        ({0, 1, 2}, ([BOS, 20, 21], [1] * 3, [0, 1, 2])),
        ({0, 1, 2, 3, 4}, ([BOS], [1], [0, 0, 0])),
    ],
)
def test_tokens_are_predicted_from_what_is_left(llama, removed, expected):
    assert build(llama, removed) == expected


def test_tokens_without_attention_predict_nothing(llama):
    assert build(llama, {2, 3}, "attention") == (IDS, [1, 1, 0, 0, 1], [1, 1, 4])
    assert build(llama, {0, 1, 2}, "attention") == ([BOS, *IDS[1:]], [1, 0, 0, 1, 1], [0, 3, 4])


def test_padding_keeps_its_place(llama):
    pad = llama.processor.pad_token_id
    assert build(llama, {2}, "pad") == ([10, 11, pad, 20, 21], [1] * 5, [2, 3, 4])


def test_encoder_and_decoder_close_their_own_gaps(llama):
    pad = llama.processor.pad_token_id
    two_sequences = {"answer_positions": [3, 4], "source_length": [3]}
    assert build(llama, {0}, **two_sequences) == ([11, 12, pad, 20, 21], [1, 1, 0, 1, 1], [3, 4])
    assert build(llama, {1, 4}, **two_sequences) == ([10, 12, pad, 20], [1, 1, 0, 1], [3, 3])
    assert build(llama, {0, 1, 2}, **two_sequences) == ([BOS, pad, pad, 20, 21], [1, 0, 0, 1, 1], [3, 4])
