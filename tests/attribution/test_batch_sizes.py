"""How many inputs share a batch, and what very many explanations cost."""

import gc
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from helpers.tiny_models import lonely_gpt, model, network, tensors, vit
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead.attribution import batch_sizes
from clearhead.attribution.batch_sizes import cut_rows, make_batches
from clearhead.engine.memory import count_fitting_rows, estimate_memory
from clearhead.explanation import Explanations
from clearhead.model.inputs import as_inputs, encode_all
from clearhead.model.model import Model

TEXTS = ["a good film", "the dull film is not good", "bad", "a film is not good"]


def sizes(model, lengths, batch_size=None):
    return [rows.stop - rows.start for rows in cut_rows(model, lengths, batch_size)]


@pytest.fixture
def budget(monkeypatch):
    """Set the tokens and the bytes that a batch may have."""

    def set_budget(tokens, free=2**40):
        monkeypatch.setattr(batch_sizes, "TOKENS_PER_BATCH", {"cpu": tokens})
        monkeypatch.setattr(batch_sizes, "free_bytes", lambda device: free)

    return set_budget


def test_a_batch_has_as_many_tokens_as_the_device_takes(text, budget):
    budget(20)
    # Padded to the longest: four of 5, then two of 8, and inputs that are longer than the budget alone.
    assert sizes(text, [2, 3, 4, 5, 7, 8, 21, 30]) == [4, 2, 1, 1]
    assert sizes(text, [1] * 45) == [20, 20, 5]


def test_other_devices_get_the_size_of_a_cpu(text, monkeypatch, budget):
    budget(20)
    monkeypatch.setattr(type(text), "device", torch.device("meta"))
    assert sizes(text, [5] * 5) == [4, 1]


def test_a_batch_takes_half_of_the_free_memory_at_most(text, budget):
    row = estimate_memory(text, as_inputs(text, ["a good film"]))
    assert count_fitting_rows(text, 5, 3 * row.whole) == 3
    budget(10_000, free=6 * row.whole)
    assert sizes(text, [5] * 7) == [3, 3, 1]
    budget(10_000, free=1)
    assert sizes(text, [5] * 3) == [1, 1, 1]


def test_a_given_size_is_kept(text, budget):
    budget(1, free=1)
    assert sizes(text, [5] * 7, 3) == [3, 3, 1]


def test_models_without_padding_take_one_input_at_a_time():
    assert sizes(lonely_gpt(), [5, 5]) == [1, 1]
    assert sizes(lonely_gpt(), [5, 5], 4) == [1, 1]


def test_images_count_their_patches(budget):
    budget(30)
    # 9 patches and a class token.
    assert sizes(vit(), [0] * 7) == [3, 3, 1]


def test_chosen_inputs_are_batched(text):
    batches = list(make_batches(text, encode_all(text, TEXTS), 2, [0, 1, 2]))
    assert [batch.indices for batch in batches] == [[2, 0], [1]]


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_explanations_do_not_depend_on_the_batch(text, batch_size):
    whole = clearhead.explain(text, TEXTS, "att-cat", batch_size=batch_size)
    for explanation, source in zip(whole, TEXTS, strict=True):
        alone = clearhead.explain(text, source, "att-cat")
        assert explanation.text == source
        assert (explanation.tokens, explanation.offsets) == (alone.tokens, alone.offsets)
        assert explanation.label == alone.label
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=0, atol=1e-12)
        assert explanation.probability == pytest.approx(alone.probability, abs=1e-12)


def test_tensors_are_cut_into_batches(budget):
    bert = model("bert")
    whole = clearhead.explain(bert, tensors(rows=3), "att-cat", 0)
    budget(9)
    parts = clearhead.explain(bert, tensors(rows=3), "att-cat", 0)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=0, atol=1e-12)


def test_explanations_are_the_same_as_long_as_they_are_used(text):
    explanations = clearhead.explain(text, TEXTS, "att-cat")
    assert isinstance(explanations, Explanations)
    first = explanations[0]
    assert explanations[0] is first
    assert explanations[:2][0] is first
    assert first in explanations
    assert explanations.index(explanations[3]) == 3
    assert explanations == list(explanations)
    assert explanations == explanations[:]
    assert [row.text for row in reversed(explanations)] == TEXTS[::-1]


def test_explanations_are_the_owners_to_change(text):
    explanations = clearhead.explain(text, TEXTS, "att-cat")
    first = explanations[0]
    before = explanations[1].relevance.copy()
    first.relevance[:] = 0
    first.diagnostics["note"] = 1
    np.testing.assert_array_equal(explanations[1].relevance, before)
    assert "note" not in explanations[1].diagnostics


def test_explanations_can_be_pickled(text):
    explanations = clearhead.explain(text, TEXTS, "att-cat")
    copies = pickle.loads(pickle.dumps(explanations))
    assert isinstance(copies, Explanations)
    for one, other in zip(explanations, copies, strict=True):
        assert (one.text, one.tokens, one.label) == (other.text, other.tokens, other.label)
        assert one.diagnostics == other.diagnostics
        np.testing.assert_array_equal(one.relevance, other.relevance)


def test_a_hundred_thousand_explanations_take_tens_of_megabytes():
    small = network("bert", dtype=torch.float32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    reader = Model(small, word_piece_tokenizer(), name="small")
    texts = [f"{'a good film is ' * 5}" for _ in range(2000)]
    clearhead.explain(reader, texts[:2], "att-cat")
    gc.collect()
    tracemalloc.start()
    explanations = clearhead.explain(reader, texts, "att-cat")
    for explanation in explanations:
        assert len(explanation.words()) == 20
    del explanation
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # Of 22 tokens each.
    assert size / len(explanations) < 800
