"""Networks that look their words up padded, transposed or twice, and activation functions written out in steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from helpers.tiny_models import T5, TEXT, alone, randomised, tensors

import clearhead
from clearhead.engine.embeddings import logits_from
from clearhead.errors import UnsupportedModel

SEQUENCE = {"vocab_size": 60, "d_model": 32, "max_position_embeddings": 64, "num_labels": 3, "pad_token_id": 0}
SEQUENCE |= {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
SEQUENCE |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "bos_token_id": 1, "eos_token_id": 2}
SEQUENCE |= {"decoder_start_token_id": 2}
XLNET = {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "num_labels": 3}
FUNNEL = {"vocab_size": 60, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}
SPARSE = {**TEXT, "attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1, "sep_token_id": 2}
NETWORKS = {
    "longformer": (hf.LongformerForSequenceClassification, hf.LongformerConfig, {**TEXT, "attention_window": 4}),
    "xlnet": (hf.XLNetForSequenceClassification, hf.XLNetConfig, XLNET),
    "funnel": (hf.FunnelForSequenceClassification, hf.FunnelConfig, {**FUNNEL, "num_labels": 3}),
    "bart": (hf.BartForSequenceClassification, hf.BartConfig, SEQUENCE),
    "t5": (hf.T5ForSequenceClassification, hf.T5Config, {**T5, "eos_token_id": 2, "decoder_start_token_id": 0}),
    "big-bird": (hf.BigBirdForSequenceClassification, hf.BigBirdConfig, SPARSE),
}
WITH_DECODER = ("bart", "t5")


def make_network(family):
    network_class, config_class, options = NETWORKS[family]
    torch.manual_seed(0)
    return randomised(network_class(config_class(**options)).double().eval())


def make_batch(family, rows=3, length=9):
    """Return a batch without repeated words; those with a decoder end with the token that it classifies at."""
    batch = tensors("bert", rows=rows, length=length)
    if family == "xlnet":
        # It classifies at the last token, padding or not.
        batch["attention_mask"][:] = 1
    for row in range(rows):
        count = int(batch["attention_mask"][row].sum())
        batch["input_ids"][row, :count] = 5 + torch.randperm(50, generator=torch.Generator().manual_seed(row))[:count]
        if family in WITH_DECODER:
            batch["input_ids"][row, count - 1] = 2
    return batch


def differentiate_table(net, inputs, target):
    """Return gradient × embedding of every word of the vocabulary, by autograd at the embedding table."""
    table = net.get_input_embeddings().weight
    table.requires_grad_(True)
    score = net(**inputs).logits[0, target]
    (gradient,) = torch.autograd.grad(score, table)
    return (gradient * table).sum(-1).detach()


@pytest.mark.parametrize("family", NETWORKS)
def test_gradients_are_placed_on_the_words(family):
    net = make_network(family)
    inputs = alone(make_batch(family), 0)
    (explanation,) = clearhead.explain(net, inputs, "gradient-x-input", 1)
    ids = inputs["input_ids"][0]
    # A start token that is also the last word of the text would count twice in the table.
    words = ids[:-1] if family in WITH_DECODER else ids
    expected = differentiate_table(net, inputs, 1)[words].numpy()
    assert np.abs(expected).max() > 1e-9
    # Longformer itself computes its softmax in float32.
    tolerance = 1e-5 if family == "longformer" else 1e-9
    np.testing.assert_allclose(explanation.relevance[: len(words)], expected, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("family", NETWORKS)
def test_embeddings_can_be_replaced_in_every_layout(family):
    net = make_network(family)
    model = clearhead.load(net)
    inputs = make_batch(family)
    words = F.embedding(inputs["input_ids"], net.get_input_embeddings().weight).detach()
    with torch.no_grad():
        torch.testing.assert_close(logits_from(model, inputs, words), net(**inputs).logits, rtol=1e-12, atol=1e-12)
        moved = logits_from(model, inputs, words.flip(0))
    assert not torch.allclose(moved, net(**inputs).logits)


@pytest.mark.parametrize("family", NETWORKS)
@pytest.mark.parametrize("method", ["gradient", "integrated-gradients", "attn-lrp", "cp-lrp", "occlusion"])
def test_batched_is_single_is_padded(family, method):
    net = make_network(family)
    batch = make_batch(family)
    together = clearhead.explain(net, batch, method, [0, 1, 2])
    for row in range(3):
        (single,) = clearhead.explain(net, alone(batch, row), method, row)
        np.testing.assert_allclose(together[row].relevance, single.relevance, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("family", NETWORKS)
def test_the_default_explains_every_network(family):
    explanations = clearhead.explain(make_network(family), make_batch(family))
    assert {explanation.method for explanation in explanations} == {"attn-lrp"}
    assert [len(explanation.relevance) for explanation in explanations][::2] == [9, 9]


@pytest.mark.parametrize("family", ["longformer", "xlnet", "bart", "t5"])
@pytest.mark.parametrize("method", ["trans-att", "rollout", "att-cat", "balanced-cat", "lrp"])
def test_blocks_with_other_tokens_are_refused(family, method):
    with pytest.raises(UnsupportedModel, match="other tokens than its input"):
        clearhead.explain(make_network(family), make_batch(family), method)


def test_a_square_batch_does_not_hide_that_tokens_come_first():
    net = make_network("xlnet")
    batch = make_batch("xlnet", rows=9)
    together = clearhead.explain(net, batch, "gradient-x-input", 0)
    (single,) = clearhead.explain(net, alone(batch, 4), "gradient-x-input", 0)
    np.testing.assert_allclose(together[4].relevance, single.relevance, rtol=1e-9, atol=1e-12)


def test_a_network_that_exchanges_its_attention_is_recorded_again():
    """BigBird gives up its sparse attention at the first short text."""
    net = make_network("big-bird")
    short = {name: value[:, :6] for name, value in make_batch("big-bird", length=20).items()}
    explanations = clearhead.explain(net, short, "balanced-cat", 0)
    again = clearhead.explain(net, short, "balanced-cat", 0)
    for first, second in zip(explanations, again, strict=True):
        np.testing.assert_array_equal(first.relevance, second.relevance)


@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "balanced-cat", "trans-att", "lrp"])
def test_a_gelu_written_out_is_a_gelu(method, monkeypatch):
    config = hf.EsmConfig(**{**TEXT, "pad_token_id": 0, "mask_token_id": 4, "position_embedding_type": "rotary"})
    net = randomised(hf.EsmForSequenceClassification(config).double().eval())
    written_out = clearhead.explain(net, tensors("bert"), method, 1)
    monkeypatch.setattr("transformers.models.esm.modeling_esm.gelu", F.gelu)
    for explanation, expected in zip(written_out, clearhead.explain(net, tensors("bert"), method, 1), strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-12)
