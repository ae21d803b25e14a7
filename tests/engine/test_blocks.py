"""Blocks that are left out or are not whole: what would read them is refused."""

import numpy as np
import pytest
import torch
import transformers as hf
from helpers.tiny_models import ROTARY, TEXT, randomised
from transformers.modeling_outputs import SequenceClassifierOutput

import clearhead
from clearhead import UnsupportedModel

TOKENS = {"input_ids": torch.tensor([[5, 9, 22, 41, 17, 30]])}
OF_BLOCKS = ("raw-attention", "rollout", "gae", "att-grads", "trans-att", "lrp", "cat", "att-cat", "layer-gradcam")


class LastToken(hf.Lfm2Model):
    """LFM2, whose blocks attend or convolve, with a head on the last token."""

    def __init__(self, config):
        super().__init__(config)
        self.score = torch.nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, attention_mask=None):
        hidden = super().forward(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.score(hidden[:, -1]))


def lfm2(layer_types):
    config = hf.Lfm2Config(**ROTARY, layer_types=layer_types, block_auto_adjust_ff_dim=False)
    return clearhead.load(randomised(LastToken(config).double().eval()))


@pytest.mark.parametrize("method", OF_BLOCKS)
def test_blocks_without_attention_are_not_left_out(method):
    model = lfm2(["conv", "full_attention", "conv"])
    # The second pass hooks fewer modules.
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="Some blocks of LastToken have no attention maps"):
            clearhead.explain(model, TOKENS, method, 1)


def test_relevance_at_the_words_is_not_read_above_a_block_without_attention():
    model = lfm2(["conv", "full_attention", "conv"])
    trace = clearhead.capture(model, TOKENS, 1)
    (explanation,) = clearhead.explain(model, TOKENS, "attn-lrp", 1)
    expected = (trace.coefficients("attn-lrp").leaf * trace.leaf).sum(-1)[0]
    np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-9)
    assert explanation.layers is None


def test_blocks_that_merge_tokens_are_not_left_out():
    sizes = {
        "image_size": [32, 32],
        "embed_dim": 16,
        "depths": [1, 2, 2, 1],
        "num_heads": [1, 2, 4, 4],
        "num_labels": 3,
    }
    network = hf.HieraForImageClassification(hf.HieraConfig(**sizes)).double().eval()
    pixels = {"pixel_values": torch.randn(1, 3, 32, 32).double()}
    with pytest.raises(UnsupportedModel, match="merge patches"):
        clearhead.explain(network, pixels, "cat", 1)
    # The pixels are known all the same, and the default reads them.
    (by_default,) = clearhead.explain(network, pixels, target=1)
    (gradient,) = clearhead.explain(network, pixels, "gradient-x-input", 1)
    assert by_default.method == "attn-lrp"
    assert by_default.grid == gradient.grid == (8, 8)


def test_blocks_that_read_parts_of_pictures_as_inputs_of_their_own_are_not_read():
    """MobileViT attends among pixels at the same place of each patch: four inputs from one picture."""
    sizes = {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 8, 8, 16, 16, 32]}
    config = hf.MobileViTConfig(**sizes, num_attention_heads=2, num_labels=3)
    network = hf.MobileViTForImageClassification(config).double().eval()
    pixels = {"pixel_values": torch.randn(2, 3, 64, 64).double()}
    with pytest.raises(UnsupportedModel, match="integrated-gradients"):
        clearhead.explain(network, pixels, "cat", 1)
    by_default = clearhead.explain(network, pixels, target=1)
    assert [explanation.method for explanation in by_default] == ["attn-lrp", "attn-lrp"]
    assert all(np.isfinite(explanation.relevance).all() for explanation in by_default)
    for explanation in clearhead.explain(network, pixels, "gradient-x-input", 1):
        assert explanation.grid == (8, 8)


def test_a_stack_of_attention_alone_has_no_gaps():
    assert len(clearhead.capture(lfm2(["full_attention"] * 3), TOKENS, 1).hidden_states) == 4


def test_attention_without_its_residual_gives_no_hidden_states():
    sizes = {"vocab_size": 60, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "num_labels": 3}
    model = clearhead.load(randomised(hf.FlaubertForSequenceClassification(hf.FlaubertConfig(**sizes)).double().eval()))
    trace = clearhead.capture(model, TOKENS, 1)
    for read in (lambda: trace.hidden_states, lambda: trace.hidden_gradients):
        with pytest.raises(UnsupportedModel, match="no modules of their own"):
            read()
    for method in ("cat", "att-cat", "layer-gradcam", "balanced-cat"):
        with pytest.raises(UnsupportedModel, match="no modules of their own"):
            clearhead.explain(model, TOKENS, method, 1)
    assert clearhead.explain(model, TOKENS, target=1)[0].method == "attn-lrp"
    # What reads maps or embeddings is right as it is.
    own = model.network(**TOKENS, output_attentions=True).attentions
    torch.testing.assert_close(trace.attentions, list(own), check_dtype=False)
    for method in ("rollout", "trans-att", "lrp", "attn-lrp"):
        assert np.isfinite(clearhead.explain(model, TOKENS, method, 1)[0].relevance).all()


class FirstStreams(hf.Gemma3nTextModel):
    """Gemma 3n, whose hidden states have four streams, with a head on the last token."""

    def __init__(self, config):
        super().__init__(config)
        self.score = torch.nn.Linear(config.hidden_size, 3)

    def forward(self, input_ids, attention_mask=None):
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
        return SequenceClassifierOutput(logits=self.score(super().forward(**inputs).last_hidden_state[:, -1]))


def test_the_input_of_one_of_several_streams_is_not_the_embedding_output():
    sizes = {**ROTARY, "vocab_size_per_layer_input": 60, "hidden_size_per_layer_input": 8, "laurel_rank": 4}
    sizes |= {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "num_kv_shared_layers": 0}
    config = hf.Gemma3nTextConfig(**sizes, activation_sparsity_pattern=[0.0] * 3)
    model = clearhead.load(randomised(FirstStreams(config).double().eval()))
    trace = clearhead.capture(model, TOKENS, 1)
    with pytest.raises(UnsupportedModel, match="several streams"):
        clearhead.explain(model, TOKENS, "cat", 1)
    (explanation,) = clearhead.explain(model, TOKENS, "attn-lrp", 1)
    expected = (trace.coefficients("attn-lrp").leaf * trace.leaf).sum(-1)[0]
    np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-9)


def test_networks_whose_blocks_add_have_hidden_states():
    network = hf.BertForSequenceClassification(hf.BertConfig(**TEXT)).double().eval()
    assert len(clearhead.capture(clearhead.load(network), TOKENS, 1).hidden_states) == 4
