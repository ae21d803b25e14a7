"""Language models as users bring them: quantised, padded on the left, placed by a device map, or not writing at all."""

import numpy as np
import pytest
import torch
from helpers.language_models import make_decoder, make_tokenizer
from torch import nn

import clearhead
from clearhead.errors import BadInput, UnsupportedModel

PROMPTS = ["the capital of france is", "the river in london is"]
ANSWERS = ["paris", "long, the river"]


def test_a_quantised_network_is_refused_in_one_line():
    network = make_decoder("llama").float()
    quantised = torch.ao.quantization.quantize_dynamic(network, {nn.Linear})
    with pytest.raises(UnsupportedModel, match="quantised"):
        clearhead.load(quantised, make_tokenizer())


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_padding_side_of_the_tokenizer_does_not_matter(side):
    tokenizer = make_tokenizer()
    tokenizer.padding_side = side
    model = clearhead.load(make_decoder("gpt2"), tokenizer)
    together = clearhead.explain(model, PROMPTS, "attn-lrp", answer=ANSWERS)
    for prompt, answer, explanation in zip(PROMPTS, ANSWERS, together, strict=True):
        alone = clearhead.explain(model, prompt, "attn-lrp", answer=answer)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-10, atol=1e-13)


def test_a_device_map_of_one_device_works(tmp_path):
    pytest.importorskip("accelerate", reason="device maps need the package accelerate")
    from transformers import AutoModelForCausalLM

    network = make_decoder("llama")
    network.save_pretrained(tmp_path)
    placed = AutoModelForCausalLM.from_pretrained(tmp_path, device_map={"": "cpu"}, dtype=torch.float64)
    expected = clearhead.explain(clearhead.load(network, make_tokenizer()), PROMPTS[0], answer="paris")
    explanation = clearhead.explain(clearhead.load(placed, make_tokenizer()), PROMPTS[0], answer="paris")
    np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-10)


def test_the_network_is_left_as_it_was():
    network = make_decoder("llama").train()
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    hooks = [len(module._forward_hooks) for module in network.modules()]
    clearhead.explain(clearhead.load(network, make_tokenizer()), PROMPTS[0], answer="paris", matrix=True)
    assert network.training
    assert [len(module._forward_hooks) for module in network.modules()] == hooks
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad and parameter.grad is None


def test_tensors_are_no_prompt():
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    with pytest.raises(BadInput, match="dict cannot be explained by LlamaForCausalLM"):
        clearhead.explain(model, dict(make_tokenizer()(PROMPTS[0], return_tensors="pt")), answer="paris")
