"""Networks that look their words up padded, transposed or twice, and activation functions written out in steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from helpers.tiny_models import ROTARY, TEXT, alone, randomised, tensors
from helpers.word_layouts import FAMILIES, WITH_DECODER, layout_network, layout_tensors
from transformers.modeling_outputs import SequenceClassifierOutput

import clearhead
from clearhead.engine.embeddings import logits_from
from clearhead.errors import UnsupportedModel


def differentiate_table(net, inputs, target):
    """Return gradient × embedding of every word of the vocabulary, by autograd at the embedding table."""
    table = net.get_input_embeddings().weight
    table.requires_grad_(True)
    score = net(**inputs).logits[0, target]
    (gradient,) = torch.autograd.grad(score, table)
    return (gradient * table).sum(-1).detach()


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_placed_on_the_words(family):
    net = layout_network(family)
    inputs = alone(layout_tensors(family), 0)
    (explanation,) = clearhead.explain(net, inputs, "gradient-x-input", 1)
    ids = inputs["input_ids"][0]
    # A start token that is also the last word of the text would count twice in the table.
    words = ids[:-1] if family in WITH_DECODER else ids
    expected = differentiate_table(net, inputs, 1)[words].numpy()
    assert np.abs(expected).max() > 1e-9
    # Longformer itself computes its softmax in float32.
    tolerance = 1e-5 if family == "longformer" else 1e-9
    np.testing.assert_allclose(explanation.relevance[: len(words)], expected, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_can_be_replaced_in_every_layout(family):
    net = layout_network(family)
    model = clearhead.load(net)
    inputs = layout_tensors(family)
    words = F.embedding(inputs["input_ids"], net.get_input_embeddings().weight).detach()
    with torch.no_grad():
        torch.testing.assert_close(logits_from(model, inputs, words), net(**inputs).logits, rtol=1e-12, atol=1e-12)
        moved = logits_from(model, inputs, words.flip(0))
    assert not torch.allclose(moved, net(**inputs).logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["gradient", "integrated-gradients", "attn-lrp", "cp-lrp", "occlusion"])
def test_batched_is_single_is_padded(family, method):
    net = layout_network(family)
    batch = layout_tensors(family)
    together = clearhead.explain(net, batch, method, [0, 1, 2])
    for row in range(3):
        (single,) = clearhead.explain(net, alone(batch, row), method, row)
        np.testing.assert_allclose(together[row].relevance, single.relevance, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_default_explains_every_network(family):
    explanations = clearhead.explain(layout_network(family), layout_tensors(family))
    assert {explanation.method for explanation in explanations} == {"attn-lrp"}
    assert [len(explanation.relevance) for explanation in explanations][::2] == [9, 9]


LILT = {**TEXT, "hidden_size": 24, "channel_shrink_ratio": 1}


@pytest.mark.parametrize(
    ("network_class", "options"),
    [(hf.DiffLlamaForSequenceClassification, ROTARY), (hf.LiltForSequenceClassification, LILT)],
)
def test_the_default_explains_blocks_with_two_attentions(network_class, options):
    net = randomised(network_class(network_class.config_class(**options)).double().eval())
    assert {explanation.method for explanation in clearhead.explain(net, tensors("llama"))} == {"attn-lrp"}


@pytest.mark.parametrize("family", ["longformer", "xlnet", "bart", "t5"])
@pytest.mark.parametrize("method", ["trans-att", "rollout", "att-cat", "balanced-cat", "lrp"])
def test_blocks_with_other_tokens_are_refused(family, method):
    with pytest.raises(UnsupportedModel, match="other tokens than its input"):
        clearhead.explain(layout_network(family), layout_tensors(family), method)


def test_a_square_batch_does_not_hide_that_tokens_come_first():
    net = layout_network("xlnet")
    batch = layout_tensors("xlnet", rows=9)
    together = clearhead.explain(net, batch, "gradient-x-input", 0)
    (single,) = clearhead.explain(net, alone(batch, 4), "gradient-x-input", 0)
    np.testing.assert_allclose(together[4].relevance, single.relevance, rtol=1e-9, atol=1e-12)


def test_a_network_that_exchanges_its_attention_is_recorded_again():
    """BigBird gives up its sparse attention at the first short text."""
    net = layout_network("big-bird")
    short = {name: value[:, :6] for name, value in layout_tensors("big-bird", length=20).items()}
    explanations = clearhead.explain(net, short, "balanced-cat", 0)
    again = clearhead.explain(net, short, "balanced-cat", 0)
    for first, second in zip(explanations, again, strict=True):
        np.testing.assert_array_equal(first.relevance, second.relevance)


CTRL = {"vocab_size": 60, "n_positions": 64, "n_embd": 32, "dff": 48, "n_layer": 2, "n_head": 4, "num_labels": 3}


@pytest.mark.parametrize("method", ["gradient-x-input", "cp-lrp", "balanced-cat", "trans-att", "integrated-gradients"])
def test_a_network_may_write_into_its_embeddings(method, monkeypatch):
    """CTRL scales them in place."""
    net = randomised(hf.CTRLForSequenceClassification(hf.CTRLConfig(**CTRL, pad_token_id=0)).double().eval())
    batch = tensors("gpt2")
    explanations = clearhead.explain(net, batch, method, 1)
    copied = net.transformer.w.forward
    monkeypatch.setattr(net.transformer.w, "forward", lambda ids: copied(ids) * 1)
    for explanation, expected in zip(explanations, clearhead.explain(net, batch, method, 1), strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-12, atol=1e-12)


class WritesLate(hf.BertForSequenceClassification):
    """Reads its word embeddings, then overwrites them."""

    def forward(self, input_ids, attention_mask=None, **options):
        words = self.get_input_embeddings()(input_ids)
        start = words.mean(1)
        words.mul_(2)
        return SequenceClassifierOutput(logits=self.classifier(start + words.mean(1)))


def test_embeddings_that_were_read_before_they_are_overwritten_are_refused():
    net = randomised(WritesLate(hf.BertConfig(**TEXT)).double().eval())
    with pytest.raises(UnsupportedModel, match="WritesLate overwrites its word embeddings after it has read them"):
        clearhead.explain(net, tensors("bert"), "gradient-x-input", 0)


@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "balanced-cat", "trans-att", "lrp"])
def test_a_gelu_written_out_is_a_gelu(method, monkeypatch):
    config = hf.EsmConfig(**{**TEXT, "pad_token_id": 0, "mask_token_id": 4, "position_embedding_type": "rotary"})
    net = randomised(hf.EsmForSequenceClassification(config).double().eval())
    written_out = clearhead.explain(net, tensors("bert"), method, 1)
    monkeypatch.setattr("transformers.models.esm.modeling_esm.gelu", F.gelu)
    for explanation, expected in zip(written_out, clearhead.explain(net, tensors("bert"), method, 1), strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-12)
