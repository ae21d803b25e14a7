"""Encoder–decoders in the engine: one leaf for two sequences, and the two stacks of blocks."""

import pytest
import torch

import clearhead
from clearhead.engine.blockwise import capture_blockwise
from clearhead.engine.embeddings import logits_from
from clearhead.errors import UnsupportedModel
from clearhead.model.answer_inputs import answer_prompt, encode_prompt
from clearhead.model.inputs import collate
from tests.helpers.language_models import ENCODER_DECODERS, make_encoder_decoder, make_tokenizer


def load(family, **settings):
    return clearhead.load(make_encoder_decoder(family, **settings), make_tokenizer())


def encode(model, *pairs):
    rows = [answer_prompt(model, encode_prompt(model, source), answer, {}) for source, answer in pairs]
    return collate(model, rows)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_both_sequences_are_joined_along_the_tokens(family):
    model = load(family)
    batch = encode(model, ("the river in london is", "paris and"), ("paris", "the river is long"))
    trace = clearhead.capture(model, batch)
    rows, tokens = trace.mask_BT.shape
    source = trace.source_tokens
    assert trace.leaf.shape[:2] == (rows, tokens)
    assert [hidden.shape for hidden in trace.hidden_states] == [trace.hidden_states[0].shape] * 3
    for attention in trace.attentions:
        assert attention.shape[-2:] == (tokens, tokens)
        # The source does not see the answer; the decoder's rows hold cross- and self-attention.
        assert torch.all(attention[:, :, :source, source:] == 0)
        real = attention[0][:, trace.mask_BT[0]].sum(-1)
        expected = torch.ones_like(real) + (torch.arange(tokens)[trace.mask_BT[0]] >= source)
        torch.testing.assert_close(real, expected)


@pytest.mark.parametrize("family", ["flan-t5", "marian"])
def test_the_network_computes_the_same_from_given_embeddings(family):
    model = load(family)
    batch = encode(model, ("the river in london is", "paris and"))
    trace = clearhead.capture(model, batch)
    logits = logits_from(model, batch.tensors, trace.leaf)
    torch.testing.assert_close(logits, trace.logits, rtol=0, atol=1e-12)
    # The last token of the decoder's input is part of the leaf as well.
    changed = trace.leaf.clone()
    changed[:, -1] += 1
    assert not torch.allclose(logits_from(model, batch.tensors, changed), trace.logits)


def test_the_recorded_pass_leaves_the_logits_as_they_are():
    model = load("bart")
    batch = encode(model, ("the river in london is", "paris and"))
    with torch.no_grad():
        expected = model.network(**batch.tensors)
    torch.testing.assert_close(clearhead.capture(model, batch).logits, expected, rtol=1e-10, atol=1e-12)


def test_two_stacks_are_not_traced_block_by_block():
    model = load("bart")
    with pytest.raises(UnsupportedModel, match="two stacks"):
        capture_blockwise(model, encode(model, ("the river", "is long")), [None])


def test_nothing_is_left_behind():
    network = make_encoder_decoder("bart").train()
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    names = ["attn-lrp", "trans-att", "integrated-gradients"]
    clearhead.compare(clearhead.load(network, make_tokenizer()), "the river", names, answer="is long", matrix=True)
    assert network.training and all(module.training for module in network.modules())
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) and parameter.requires_grad and parameter.grad is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("family", ["flan-t5", "bart"])
def test_a_trace_for_gradients_only_has_the_same_coefficients(family):
    model = load(family)
    batch = encode(model, ("the river in london is", "paris and"))
    whole = clearhead.capture(model, batch)
    lean = clearhead.capture(model, batch, gradients_only=True)
    for backward in ("gradient", "attn-lrp"):
        expected, actual = whole.coefficients(backward), lean.coefficients(backward)
        torch.testing.assert_close(actual.hidden_states, expected.hidden_states, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(actual.leaf, expected.leaf, rtol=1e-7, atol=1e-9)
