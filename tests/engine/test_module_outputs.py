"""Relevance of units: outputs of named modules and their coefficients."""

import pytest
import torch
from helpers.balanced_reference import transcribe
from helpers.tiny_models import alone, model, network, shared_model, tensors

import clearhead
from clearhead.engine.backward import BACKWARDS
from clearhead.engine.blockwise import capture_blockwise
from clearhead.errors import BadOption, UnknownName, UnsupportedModel, UnsupportedOperation

UNITS = {
    "bert": ("bert.encoder.layer.0.intermediate", "bert.encoder.layer.2.attention.self.value"),
    "gpt2": ("transformer.h.1.mlp.act", "transformer.h.0.mlp.c_fc"),
    "llama": ("model.layers.1.mlp.act_fn", "model.layers.2.mlp.up_proj"),
    "vit": ("vit.layers.0.mlp.fc1", "vit.layernorm"),
}


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", UNITS)
def test_units_get_activation_times_coefficient(family, backward):
    batch = alone(tensors(family), 0)
    trace = clearhead.capture(shared_model(family), batch, 0, modules=UNITS[family])
    reference = transcribe(network(family, attention="eager"), batch, backward, modules=UNITS[family])
    for name, (activation, coefficient) in reference.modules.items():
        expected = activation * coefficient
        tolerance = 1e-10 * float(expected.abs().max())
        torch.testing.assert_close(trace.module_relevance(name, backward), expected, rtol=0, atol=tolerance)


def test_units_alone_or_in_a_padded_batch():
    name = UNITS["bert"][0]
    batch = tensors("bert")
    together = clearhead.capture(shared_model("bert"), batch, 0, modules=name).module_relevance(name)
    for row in range(3):
        single = clearhead.capture(shared_model("bert"), alone(batch, row), 0, modules=name).module_relevance(name)
        tokens = single.shape[1]
        torch.testing.assert_close(together[row : row + 1, :tokens], single)
        assert not together[row, tokens:].any()


def test_another_target_has_coefficients_of_its_own():
    name = "classifier"
    trace = clearhead.capture(shared_model("bert"), tensors("bert"), 0, modules=[name])
    first, second = trace.module_relevance(name), trace.with_target(1).module_relevance(name)
    torch.testing.assert_close(first[:, 0], trace.logits[:, 0])
    torch.testing.assert_close(second[:, 1], trace.logits[:, 1])
    assert not first[:, 1:].any()


def test_a_module_that_is_called_once_per_block():
    """ALBERT uses the same weights in every block."""
    name = "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn"
    trace = clearhead.capture(shared_model("albert"), tensors("albert"), 0, modules=name)
    calls = [trace.module_relevance(name, call=call) for call in range(3)]
    assert not torch.equal(calls[0], calls[2])
    with pytest.raises(BadOption, match=r"Invalid call=3: .* called 3 times"):
        trace.module_relevance(name, call=3)


def test_unknown_modules_are_named():
    with pytest.raises(UnknownName, match=r"Similar names: bert\.encoder\.layer\.0\.intermediate"):
        clearhead.capture(shared_model("bert"), tensors("bert"), modules="bert.encoder.layer.0.intermediates")
    with pytest.raises(UnknownName, match="named_modules"):
        clearhead.capture(shared_model("bert"), tensors("bert"), modules=["?"])


def test_modules_are_named_before_the_forward_pass():
    trace = clearhead.capture(shared_model("bert"), tensors("bert"))
    with pytest.raises(BadOption, match=r"capture it with modules=\('classifier',\)"):
        trace.module_relevance("classifier")
    trace = clearhead.capture(shared_model("bert"), tensors("bert"), modules="bert.pooler")
    with pytest.raises(BadOption, match=r"Available: bert\.pooler"):
        trace.module_relevance("classifier")
    with pytest.raises(BadOption, match="Invalid backward='none'"):
        trace.module_relevance("bert.pooler", "none")


def test_a_module_that_does_not_run_or_depends_on_nothing():
    trace = clearhead.capture(shared_model("bert"), tensors("bert"), modules="bert.embeddings.position_embeddings")
    with pytest.raises(UnsupportedModel, match="not called, or its output does not depend on the input"):
        trace.module_relevance("bert.embeddings.position_embeddings")


def test_block_by_block_no_outputs_are_kept():
    trace = capture_blockwise(shared_model("bert"), tensors("bert", length=30))
    with pytest.raises(BadOption, match="keeps no outputs of modules"):
        trace.module_relevance("classifier")


def test_an_overwritten_output_is_refused():
    changed = network("bert")
    changed.bert.pooler.register_forward_hook(lambda module, args, out: out)
    changed.dropout.forward = lambda pooled: pooled.mul_(2.0)
    trace = clearhead.capture(clearhead.load(changed), tensors("bert"), 0, modules="bert.pooler")
    with pytest.raises(UnsupportedOperation, match=r"overwrites the output of 'bert\.pooler'"):
        trace.module_relevance("bert.pooler", "gradient")


def test_no_hook_is_left_behind():
    explained = model("bert")
    clearhead.capture(explained, tensors("bert"), 0, modules=UNITS["bert"])
    assert not any(module._forward_hooks for module in explained.network.modules())
