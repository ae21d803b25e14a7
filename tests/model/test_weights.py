"""Weights as users bring them: quantised by modules of their own, spread by a device map, divided among experts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from helpers.language_models import make_tokenizer
from helpers.tiny_models import alone, network, tensors
from torch import nn

import clearhead
from clearhead import UnsupportedModel

METHODS = ("balanced-cat", "attn-lrp", "lrp", "gae", "gradient-x-input", "occlusion")


class Int8Linear(nn.Module):
    """A linear layer with 8-bit weights and a scale per output, as libraries for quantisation have them."""

    def __init__(self, layer):
        super().__init__()
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (layer.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def dequantise(self):
        return self.weight.to(self.scale.dtype) * self.scale

    def forward(self, values):
        return F.linear(values, self.dequantise(), self.bias)


class SealedLinear(Int8Linear):
    """The same by a kernel without a gradient."""

    @torch.no_grad()
    def forward(self, values):
        return super().forward(values)


def quantised(layer_type):
    net = network("bert")
    for layer in net.bert.encoder.layer:
        for parent in (layer.attention.self, layer.intermediate, layer.output):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, layer_type(child))
    return net


def dequantised():
    net = quantised(Int8Linear)
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Int8Linear):
                weight = child.dequantise()
                layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
                layer.weight.data, layer.bias.data = weight, child.bias.data
                setattr(parent, name, layer)
    return net


def test_quantised_layers_that_compute_with_dequantised_weights_are_explained_as_these():
    batch = tensors("bert")
    by_method = clearhead.compare(clearhead.load(quantised(Int8Linear)), batch, METHODS, 1, check=False)
    expected = clearhead.compare(clearhead.load(dequantised()), batch, METHODS, 1, check=False)
    for method in METHODS:
        for explanation, reference in zip(by_method[method], expected[method], strict=True):
            np.testing.assert_allclose(explanation.relevance, reference.relevance, rtol=0, atol=1e-9)


def test_quantised_layers_without_a_gradient_are_refused_in_one_line():
    model = clearhead.load(quantised(SealedLinear))
    with pytest.raises(UnsupportedModel, match=r"no gradient\. Load the model unquantised") as refused:
        clearhead.explain(model, tensors("bert"), "attn-lrp", check=False)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("device_map", [{"bert": "cuda:0", "classifier": 1}, {"bert": 0, "classifier": "disk"}])
def test_a_network_on_several_devices_is_refused(device_map):
    net = network("bert")
    net.hf_device_map = device_map
    with pytest.raises(UnsupportedModel, match=r"spread over .*one device"):
        clearhead.load(net)


def test_hooks_of_a_device_map_on_one_device_change_nothing():
    accelerate = pytest.importorskip("accelerate", reason="device maps need the package accelerate")
    names = ("bert.embeddings", "bert.encoder", "bert.pooler", "dropout", "classifier")
    placed = accelerate.dispatch_model(network("bert"), dict.fromkeys(names, "cpu"), force_hooks=True)
    batch = tensors("bert")
    methods = ("balanced-cat", "lrp", "gae")
    by_method = clearhead.compare(clearhead.load(placed), batch, methods, 1, check=False)
    expected = clearhead.compare(clearhead.load(network("bert")), batch, methods, 1, check=False)
    for method in methods:
        for explanation, reference in zip(by_method[method], expected[method], strict=True):
            np.testing.assert_allclose(explanation.relevance, reference.relevance, rtol=0, atol=1e-10)


EXPERTS = {
    "mixtral": hf.MixtralForCausalLM,
    "qwen2-moe": hf.Qwen2MoeForCausalLM,
    "qwen3-moe": hf.Qwen3MoeForCausalLM,
}
# Keys, queries and values have biases there.
WITHOUT_BIASES = ("mixtral", "qwen3-moe")


@pytest.mark.parametrize("family", EXPERTS)
def test_experts_of_classifiers(family):
    model = clearhead.load(network(family))
    batch = tensors(family)
    # The sigmoid of a gate has no rule in attn-lrp.
    methods = ("cp-lrp", "gradient-x-input", *(["attn-lrp"] if family in WITHOUT_BIASES else []))
    together = clearhead.compare(model, batch, methods, 1, check=False)
    for row in range(3):
        single = clearhead.compare(model, alone(batch, row), methods, 1, check=False)
        for method in methods:
            np.testing.assert_allclose(together[method][row].relevance, single[method][0].relevance, rtol=0, atol=1e-6)
        if family in WITHOUT_BIASES:
            # Routing, gates and attention are held, so that all is linear: nothing is lost.
            assert abs(together["cp-lrp"][row].diagnostics["completeness_gap"]) < 1e-5


@pytest.mark.parametrize("family", EXPERTS)
def test_experts_of_language_models(family):
    tokenizer = make_tokenizer()
    settings = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    net = network(family, network_class=EXPERTS[family], **settings)
    model = clearhead.load(net, tokenizer)
    options = {"answer": "paris", "scale": "logit", "check": False}
    explanation = clearhead.explain(model, "the capital of france is", "cp-lrp", **options)
    ids = tokenizer("the capital of france is paris", return_tensors="pt")["input_ids"]
    logits = net(input_ids=ids).logits[0].detach()
    prompt = len(tokenizer("the capital of france is")["input_ids"])
    expected = sum(float(logits[index - 1, ids[0, index]]) for index in range(prompt, ids.shape[1]))
    assert explanation.diagnostics["score"] == pytest.approx(expected, abs=1e-5)
    if family in WITHOUT_BIASES:
        assert abs(explanation.diagnostics["completeness_gap"]) < 1e-4
