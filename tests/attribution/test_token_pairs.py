"""Pairs of tokens: contributions to the embedding by products with tokens, against passes for every dimension."""

import numpy as np
import pytest
import torch
from helpers.pictures import photo
from helpers.two_towers import TEXTS, WITH_PATCHES, sentence_model, tower_model

from clearhead.attribution import token_pairs
from clearhead.model.two_towers import SECOND


def divide_slowly(model, text, backward):
    """Return what each token contributes to the embedding, by a backward pass for each of its dimensions."""
    trace = token_pairs._trace_side(model, SECOND, text, "error", gradients_only=True)
    width = trace.forward.output.shape[-1]
    return token_pairs._contract(trace, torch.eye(width, dtype=model.dtype), backward)


@pytest.mark.parametrize("method", token_pairs.BACKWARDS)
@pytest.mark.parametrize("family", [*WITH_PATCHES, "sentences"])
def test_products_with_tokens_equal_passes_for_every_dimension(family, method):
    model = sentence_model() if family == "sentences" else tower_model(family)
    backward = token_pairs.BACKWARDS[method]
    trace = token_pairs._trace_side(model, SECOND, TEXTS[0], "error", gradients_only=False)
    expected = divide_slowly(model, TEXTS[0], backward)
    divided = token_pairs._split_embedding(trace, backward)
    np.testing.assert_allclose(divided, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("width", ["narrow", "wide"])
def test_the_width_of_the_embedding_costs_no_passes(monkeypatch, width):
    # CLIP's embeddings have 16 numbers here, the sentence encoder's 32; the text has as many tokens in both.
    model = tower_model("clip") if width == "narrow" else sentence_model()
    first = photo() if width == "narrow" else TEXTS[1]
    compute, calls = torch.autograd.grad, []

    def count(*arguments, **options):
        calls.append(arguments)
        return compute(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", count)
    pairs = token_pairs.relate_tokens(model, first, TEXTS[0], "cp-lrp")
    # One product and one pass for each token of the text, and the pass whose derivative the products are.
    assert len(calls) == 2 * pairs.shape[1] + 1


def test_memory_does_not_grow_with_the_square_of_the_text(monkeypatch):
    push, sizes = token_pairs.push_rows, []

    def measure(output, rows, tensor):
        sizes.append(rows.untyped_storage().nbytes() // rows[0].nbytes)
        return push(output, rows, tensor)

    model = sentence_model()
    expected = token_pairs.relate_tokens(model, TEXTS[1], TEXTS[0], "cp-lrp")
    monkeypatch.setattr(token_pairs, "push_rows", measure)
    monkeypatch.setattr(token_pairs, "TOKENS_PER_PASS", 1)
    pairs = token_pairs.relate_tokens(model, TEXTS[1], TEXTS[0], "cp-lrp")
    assert sizes == [1] * pairs.shape[1]
    np.testing.assert_allclose(pairs, expected, rtol=1e-9, atol=1e-12)
