"""Long inputs: block by block gives what the whole trace gives."""

import copy

import numpy as np
import pytest
import torch
from helpers.tiny_models import FAMILIES, network, tensors
from helpers.tiny_models import shared_model as model
from transformers import BertForQuestionAnswering, BigBirdConfig, BigBirdForSequenceClassification
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

import clearhead
from clearhead.attribution.batch import list_blockwise_methods
from clearhead.attribution.method import parse_method
from clearhead.engine import memory, weighted_relevance
from clearhead.engine.backward import ATTN_LRP, BACKWARDS, BALANCED
from clearhead.engine.block_calls import PROBE_TOKENS, repeat_recorded
from clearhead.engine.blockwise import capture_blockwise
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import from_tensors
from clearhead.model.model import Model

clearhead.methods()
BY_GRADIENT = [
    "attn-lrp",
    "cp-lrp",
    "balanced-cat",
    "cat",
    "cat:hidden=input",
    "gradient",
    "gradient-x-input",
    "layer-gradcam",
]
WHOLE = [family for family in FAMILIES if family != "swin"]


@pytest.mark.parametrize("family", WHOLE)
def test_block_by_block_is_exact(family):
    batch = tensors(family)
    at_once = parse_method("trans-att")(clearhead.capture(model(family), batch, [0, 1, 2]))
    blocks = parse_method("trans-att")(capture_blockwise(model(family), batch, [0, 1, 2]))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)
    for blockwise, expected in zip(blocks.diagnostics, at_once.diagnostics, strict=True):
        assert blockwise["conservation_gap"] == pytest.approx(expected["conservation_gap"], abs=1e-9)
        assert blockwise["dropped"] == pytest.approx(expected["dropped"], abs=1e-9)


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", WHOLE)
def test_coefficients_block_by_block_are_exact(family, backward):
    batch = tensors(family)
    expected = clearhead.capture(model(family), batch, [0, 1, 2]).coefficients(backward)
    trace = capture_blockwise(model(family), batch, [0, 1, 2])
    coefficients = trace.coefficients(backward)
    assert_equal(coefficients.hidden_states, expected.hidden_states)
    assert_equal(coefficients.block_inputs, expected.block_inputs)
    assert_equal([coefficients.leaf], [expected.leaf])
    assert trace.coefficients(backward) is coefficients, "computed once"


def assert_equal(tensors, expected):
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-9, atol=1e-12 * float(other.abs().max()))


@pytest.mark.parametrize("target", [1, clearhead.Target(0, versus=2)])
@pytest.mark.parametrize("method", BY_GRADIENT)
def test_methods_over_gradients_go_block_by_block(method, target):
    batch = tensors("bert")
    at_once = parse_method(method)(clearhead.capture(model("bert"), batch, target))
    blocks = parse_method(method)(capture_blockwise(model("bert"), batch, target))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)
    if at_once.layers_BLT is not None:
        torch.testing.assert_close(blocks.layers_BLT, at_once.layers_BLT, rtol=1e-9, atol=1e-12)
    for blockwise, expected in zip(blocks.diagnostics, at_once.diagnostics, strict=True):
        assert blockwise == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rule", [ATTN_LRP, BALANCED])
@pytest.mark.parametrize(("family", "tolerance"), [("mpnet", 1e-12), ("t5", 1e-6), ("gemma2", 1e-6), ("mixtral", 1e-6)])
def test_relative_positions_and_experts_go_block_by_block(family, tolerance, rule):
    """RMSNorms compute in float32 even in a float64 network."""
    batch = tensors(family)
    expected = clearhead.capture(model(family), batch, 0).coefficients(rule).leaf
    coefficient = capture_blockwise(model(family), batch, 0).coefficients(rule).leaf
    torch.testing.assert_close(coefficient, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "trans-att"])
def test_an_answer_span_goes_block_by_block(method):
    answers = clearhead.load(network("bert", network_class=BertForQuestionAnswering, num_labels=2))
    target = clearhead.Target(span=(2, 4))
    at_once = parse_method(method)(clearhead.capture(answers, tensors("bert"), target))
    blocks = parse_method(method)(capture_blockwise(answers, tensors("bert"), target))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)


def test_balanced_passes_block_by_block_form_no_maps_and_no_relevance(monkeypatch):
    trace = capture_blockwise(model("bert"), tensors("bert"), 0)
    tapes = []

    def repeat(*args, **options):
        tape, output = repeat_recorded(*args, **options)
        tapes.append(tape)
        return tape, output

    monkeypatch.setattr("clearhead.engine.blockwise.repeat_recorded", repeat)
    coefficients = trace.coefficients("attn-lrp")
    assert len(tapes) == 3
    assert all(tape.maps[0].map is None for tape in tapes)
    assert "_walk" not in vars(trace), "the walk of trans-att"
    with pytest.raises(UnsupportedModel, match="block by block"):
        _ = coefficients.attentions


def test_embeddings_in_place_of_ids_go_block_by_block():
    batch = tensors("bert")
    words = model("bert").network.get_input_embeddings()(batch["input_ids"]).detach()
    embedded = {"inputs_embeds": words, "attention_mask": batch["attention_mask"]}
    trace = capture_blockwise(model("bert"), embedded, 0)
    torch.testing.assert_close(trace.leaf, words)
    expected = clearhead.capture(model("bert"), batch, 0).leaf_gradient
    torch.testing.assert_close(trace.leaf_gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", WHOLE)
def test_gradients_that_are_let_go_are_the_same(family, monkeypatch):
    batch = tensors(family)
    kept = parse_method("trans-att")(clearhead.capture(model(family), batch, [0, 1, 2]))
    monkeypatch.setattr(weighted_relevance, "FREE_MAPS_FROM_BYTES", 0)
    trace = clearhead.capture(model(family), batch, [0, 1, 2])
    let_go = parse_method("trans-att")(trace)
    assert not trace._gradient_cache.is_computed
    torch.testing.assert_close(let_go.relevance_BT, kept.relevance_BT, rtol=1e-9, atol=1e-12)


def test_a_contrast_of_two_classes_goes_block_by_block():
    batch, target = tensors("bert"), clearhead.Target(0, versus=2)
    at_once = parse_method("trans-att")(clearhead.capture(model("bert"), batch, target))
    blocks = parse_method("trans-att")(capture_blockwise(model("bert"), batch, target))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)


def test_another_target_of_the_same_pass():
    batch = tensors("bert")
    blocks = parse_method("trans-att")(capture_blockwise(model("bert"), batch, 0).with_target(1))
    at_once = parse_method("trans-att")(clearhead.capture(model("bert"), batch, 1))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["rollout", "att-cat", "lrp", "partial-lrp", "trans-att:weight=attention"])
def test_methods_that_need_every_map_say_so(method):
    trace = capture_blockwise(model("bert"), tensors("bert"), 0)
    with pytest.raises(UnsupportedModel, match="too long for"):
        parse_method(method)(trace)


def test_the_methods_that_the_error_names_go_block_by_block():
    trace = capture_blockwise(model("bert"), tensors("bert"), 0)
    with pytest.raises(UnsupportedModel) as caught:
        _ = trace.attentions
    for name in list_blockwise_methods():
        assert name in str(caught.value)
        parse_method(name)(trace)


def test_windows_and_merging_are_refused():
    with pytest.raises(UnsupportedModel, match="does not relate"):
        capture_blockwise(model("swin"), tensors("swin"), 0)


class Between(torch.nn.Module):
    """BERT's encoder with something between its blocks."""

    def __init__(self, encoder):
        super().__init__()
        self.layer, self.between = encoder.layer, torch.nn.Linear(32, 32).double()

    def forward(self, hidden, attention_mask=None, **_):
        for block in self.layer:
            hidden = torch.nn.functional.gelu(self.between(block(hidden, attention_mask)))
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)


def test_something_between_the_blocks_is_not_skipped(monkeypatch):
    explained = clearhead.load(network("bert"))
    explained.network.bert.encoder = Between(explained.network.bert.encoder)
    with pytest.raises(UnsupportedModel, match="do not follow each other"):
        capture_blockwise(explained, tensors("bert"), 0)
    kept = clearhead.explain(explained, tensors("bert"), "trans-att", 0)
    monkeypatch.setattr(weighted_relevance, "FREE_MAPS_FROM_BYTES", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    freed = clearhead.explain(explained, tensors("bert"), "trans-att", 0)
    for explanation, expected in zip(freed, kept, strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("block", [0, 1])
def test_a_hook_of_the_users_on_a_block_runs_once(block):
    explained, turn = clearhead.load(network("bert")), torch.eye(32).double() * 1.5
    layer = explained.network.bert.encoder.layer[block]
    layer.register_forward_pre_hook(lambda module, args: (args[0] @ turn, *args[1:]))
    at_once = parse_method("trans-att")(clearhead.capture(explained, tensors("bert"), 0))
    try:
        blocks = parse_method("trans-att")(capture_blockwise(explained, tensors("bert"), 0))
    except UnsupportedModel:
        assert block > 0
        return
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)


def test_padding_on_the_left_is_stepped_over():
    batch = tensors("llama")
    ids = torch.cat([torch.zeros(3, 20).long(), batch["input_ids"]], 1)
    mask = torch.cat([torch.zeros(3, 20).long(), batch["attention_mask"]], 1)
    padded = {"input_ids": ids, "attention_mask": mask}
    at_once = parse_method("trans-att")(clearhead.capture(model("llama"), padded, 0))
    blocks = parse_method("trans-att")(capture_blockwise(model("llama"), padded, 0))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)


def test_a_network_that_short_inputs_change_is_never_given_one():
    config = BigBirdConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=60
    )
    explained = clearhead.load(BigBirdForSequenceClassification(config).eval())
    with pytest.raises(UnsupportedModel, match="changes itself"):
        capture_blockwise(explained, {"input_ids": torch.randint(5, 60, (1, 900))}, 0)
    assert explained.network.bert.attention_type == "block_sparse"


def test_an_overwritten_activation_is_no_cut():
    explained = clearhead.load(network("bert"))
    for layer in explained.network.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU(inplace=True)
    with pytest.raises(UnsupportedModel, match="do not follow each other"):
        capture_blockwise(explained, tensors("bert"), 0)


def test_a_network_that_changes_its_attention_with_length_is_refused():
    explained = clearhead.load(copy.deepcopy(model("bert").network))
    block = explained.network.bert.encoder.layer[1]
    forward = block.forward
    block.forward = lambda hidden, *rest, **more: (
        forward(hidden, *rest, **more) if hidden.shape[1] <= PROBE_TOKENS else hidden * 2
    )
    ids = torch.randint(5, 20, (1, 2 * PROBE_TOKENS))
    trace = capture_blockwise(explained, {"input_ids": ids}, 0)
    with pytest.raises(UnsupportedModel, match="another way to long inputs"):
        parse_method("trans-att")(trace)


def test_the_network_is_left_as_it_was():
    network = model("gpt2").network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules()]
    parse_method("trans-att")(capture_blockwise(model("gpt2"), tensors("gpt2"), 0))
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules()]


@pytest.mark.parametrize("method", ["trans-att", "attn-lrp", "cat"])
def test_explain_goes_block_by_block_where_the_whole_does_not_fit(method, monkeypatch):
    batch = tensors("bert")
    captured = []

    def capture(*args):
        captured.append(args)
        return capture_blockwise(*args)

    at_once = clearhead.explain(model("bert"), batch, method, 1)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    monkeypatch.setattr("clearhead.attribution.batch.capture_blockwise", capture)
    blocks = clearhead.explain(model("bert"), batch, method, 1)
    assert len(captured) == 3, "one input at a time"
    for explanation, expected in zip(blocks, at_once, strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)
    clearhead.explain(model("bert"), batch, "att-cat", 1)
    assert len(captured) == 3, "other methods take the whole trace, an input at a time"


def test_estimated_memory_grows_with_the_square_of_a_long_text():
    explained = model("bert")
    ids = torch.randint(5, 20, (2, 400))
    short = memory.estimate_memory(explained, from_tensors(explained, {"input_ids": ids[:, :20]}))
    long = memory.estimate_memory(explained, from_tensors(explained, {"input_ids": ids[:, :40]}))
    assert 2 < long.whole / short.whole < 4
    assert short.blockwise < short.whole
    assert long.blockwise < long.whole
    assert short.fits


def test_estimated_memory_of_gradients_alone_has_no_attention_maps():
    explained = model("bert")
    batch = from_tensors(explained, {"input_ids": torch.randint(5, 20, (2, 60))})
    with_maps = memory.estimate_memory(explained, batch)
    without = memory.estimate_memory(explained, batch, gradients_only=True)
    heads, blocks = explained.config.num_attention_heads, explained.config.num_hidden_layers
    map_bytes = len(batch) * heads * 60**2 * explained.dtype.itemsize
    assert with_maps.whole - without.whole >= 2 * blocks * map_bytes
    assert with_maps.blockwise - without.blockwise >= 2 * map_bytes


def test_estimated_memory_has_maps_if_the_network_computes_them_itself():
    explained = model("bert")
    network = copy.deepcopy(explained.network)
    network.config._attn_implementation = "eager"
    eager = clearhead.load(network, None)
    batch = from_tensors(eager, {"input_ids": torch.randint(5, 20, (2, 60))})
    expected = memory.estimate_memory(eager, batch)
    assert memory.estimate_memory(eager, batch, gradients_only=True).whole == expected.whole


def test_a_model_without_config_is_taken_to_fit():
    explained = Model(torch.nn.Linear(1, 1), None, name="plain")
    assert memory.estimate_memory(explained, from_tensors(model("bert"), {"input_ids": torch.ones(1, 9).long()})).fits
