"""Every method on every family: it runs or refuses, conserves relevance, and gives in a batch what it gives alone."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import FAMILIES, alone, network, tensors
from helpers.tiny_models import shared_model as model

import clearhead
from clearhead import UnsupportedModel
from clearhead.attribution.method import METHODS, parse_method
from clearhead.engine.lrp.linear import POSITIVE, Z_PLUS

clearhead.methods()
RELEVANCE = {"trans-att", "lrp", "partial-lrp"}
# No grid of tokens survives windows and merging, so whatever needs a token-to-token map refuses.
WITHOUT_MAPS = {"raw-attention", "rollout", "grads", "att-grads", "attention-gradcam", "att-cat", "trans-att"}
WITHOUT_MAPS |= {"partial-lrp", "layer-gradcam", "gae"}
TRACE_METHODS = [
    *("raw-attention", "rollout", "grads", "att-grads", "attention-gradcam", "lrp", "partial-lrp", "trans-att"),
    *("cat", "att-cat", "layer-gradcam", "gradient", "gradient-x-input", "random", "gae"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_conserved(family):
    trace = clearhead.capture(model(family), tensors(family), [0, 1, 2])
    for rules in (POSITIVE, Z_PLUS):
        for report in trace.conservation(rules):
            assert abs(report["conservation_gap"] - report["dropped"]) <= 1e-9 * (1 + report["dropped"])
    assert all(report["conservation_gap"] <= 1e-9 for report in trace.conservation())


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_sums_to_one_at_every_hidden_state(family):
    trace = clearhead.capture(model(family), tensors(family), 1)
    (relevance_pass,) = trace._relevance_cache.passes(POSITIVE)
    for hidden in reversed(trace.forward.hidden_states):
        sums = relevance_pass.at(hidden).sum(1) + relevance_pass.context.dropped_B
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "swin"])
def test_partial_lrp_stops_early_and_accounts_for_all_relevance(family):
    alone, after = (clearhead.capture(model(family), tensors(family), [0, 1, 2]) for _ in range(2))
    attribution = parse_method("partial-lrp")(alone)
    (relevance_pass,) = alone._relevance_cache.passes(Z_PLUS)
    assert relevance_pass.position > len(alone.forward.tape.steps) / 2
    for report in attribution.diagnostics:
        assert abs(report["conservation_gap"] - report["dropped"]) <= 1e-9 * (1 + report["dropped"])
    parse_method("lrp")(after)
    again = parse_method("partial-lrp")(after)
    assert list(attribution.diagnostics) == list(again.diagnostics)
    torch.testing.assert_close(attribution.relevance_BT, again.relevance_BT, rtol=0, atol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_traced_forward_is_the_models_own(family, attention):
    net = network(family, attention=attention)
    trace = clearhead.capture(clearhead.load(net), tensors(family))
    expected = net(**tensors(family)).logits
    # Some eager implementations compute their softmax in float32 even in float64; a trace does not.
    torch.testing.assert_close(trace.logits, expected, rtol=1e-5 if attention == "eager" else 1e-11, atol=1e-5)
    assert len(trace.attentions) == len(trace.hidden_states) - 1 == (4 if family == "swin" else 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_is_single_is_padded(family):
    names = [name for name in TRACE_METHODS if family != "swin" or name not in WITHOUT_MAPS]
    batch, explained = tensors(family), model(family)
    together = clearhead.compare(explained, batch, names, [0, 1, 2])
    for row in range(3):
        single = clearhead.compare(explained, alone(batch, row), names, row)
        for name in names:
            batched = together[name][row]
            (expected,) = single[name]
            scale = _scale(explained, alone(batch, row), name, row, batched)
            tolerance = 1e-7 if name in RELEVANCE else 1e-10
            assert batched.relevance.shape == expected.relevance.shape
            assert np.isfinite(batched.relevance).all()
            assert np.abs(batched.relevance - expected.relevance).max() <= tolerance * scale, name


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma"])
def test_padding_on_the_left_changes_nothing(family):
    names = ["trans-att", "att-cat", "rollout", "gae", "lrp", "gradient"]
    batch, explained, space = tensors(family), model(family), torch.zeros(3, 5).long()
    padded = {name: torch.cat([space, batch[name]], 1) for name in ("input_ids", "attention_mask")}
    # Relevance divides a rotation by place, so the tokens must keep theirs.
    padded["position_ids"] = (padded["attention_mask"].cumsum(1) - 1).clamp(min=0)
    unpadded = clearhead.compare(explained, batch, names, 1)
    left_padded = clearhead.compare(explained, padded, names, 1)
    for name in names:
        for explanation, expected in zip(left_padded[name], unpadded[name], strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", sorted(WITHOUT_MAPS))
def test_swin_refuses_what_needs_token_maps(method):
    with pytest.raises(UnsupportedModel):
        clearhead.explain(model("swin"), tensors("swin"), method)


def _scale(explained, batch, method, target, explanation):
    """Return the scale of rounding errors: features × gradients cancel to zero after a norm, so their terms count."""
    largest = np.abs(explanation.relevance).max()
    if method not in ("cat", "att-cat", "layer-gradcam"):
        return max(largest, 1e-300)
    trace = clearhead.capture(explained, batch, target)
    pairs = zip(trace.hidden_gradients, trace.hidden_states, strict=True)
    return max(largest, *(float((gradient * state).abs().sum(-1).max()) for gradient, state in pairs))


READING = {
    "bert": [1] + 8 * [0],
    "roberta": [1] + 8 * [0],
    "distilbert": [1] + 8 * [0],
    "modernbert-mean": 9 * [1 / 9],
    "llama": 8 * [0] + [1],
    "gpt2": 8 * [0] + [1],
    "vit": [1] + 16 * [0],
    "deit-teacher": [0.5, 0.5] + 16 * [0],
    "beit": [0] + 16 * [1 / 16],
    "clip": [0] + 16 * [1 / 16],
    "dinov2": [0.5] + 16 * [0.5 / 16],
}


@pytest.mark.parametrize("family", READING)
def test_the_rows_that_the_head_reads_are_found(family):
    trace = clearhead.capture(model(family), tensors(family))
    np.testing.assert_allclose(trace.reading_BT[0], READING[family], atol=1e-12)


def test_padding_is_never_read():
    for family in ("llama", "modernbert-mean"):
        reading = clearhead.capture(model(family), tensors(family)).reading_BT[1]
        assert reading[:6].sum() == pytest.approx(1)
        assert reading[6:].abs().max() == 0


@pytest.mark.parametrize("family", ["bert", "vit", "llama", "swin"])
def test_class_specific_methods_tell_classes_apart(family):
    names = [name for name in TRACE_METHODS if family != "swin" or name not in WITHOUT_MAPS]
    first, second = (clearhead.compare(model(family), tensors(family), names, target) for target in (0, 1))
    for name in names:
        pairs = zip(first[name], second[name], strict=True)
        same = all(np.allclose(left.relevance, right.relevance, rtol=1e-6, atol=1e-12) for left, right in pairs)
        assert same != METHODS[name].class_specific, name


def test_swin_spreads_merged_tokens_over_their_patches():
    trace = clearhead.capture(model("swin"), tensors("swin"), 1)
    explanation = clearhead.explain(model("swin"), tensors("swin"), "cat", 1)[0]
    assert explanation.grid == (8, 8)
    assert explanation.layers.shape == (4, 64)
    last = (trace.hidden_gradients[-1] * trace.hidden_states[-1]).sum(-1)[0]
    np.testing.assert_allclose(explanation.layers[-1].sum(), last.sum(), rtol=1e-9)
    np.testing.assert_allclose(explanation.layers[-1].reshape(8, 8)[:2, :2], float(last[0]) / 4)


def test_relevance_maps_can_be_asked_for_in_any_order():
    """trans-att may free maps as it uses them; asking for them before or afterwards gives the same numbers."""
    first = clearhead.capture(model("bert"), tensors("bert"), 1)
    maps = first.attention_relevances
    folded = first.weighted_relevances
    second = clearhead.capture(model("bert"), tensors("bert"), 1)
    torch.testing.assert_close(folded, second.weighted_relevances)
    torch.testing.assert_close(maps, second.attention_relevances)
    assert second.conservation() == first.conservation()


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"swin"}))
def test_gradients_that_trans_att_keeps_for_others_are_those_of_one_backward_pass(family, monkeypatch):
    monkeypatch.setattr("clearhead.engine.weighted_relevance.FREE_MAPS_FROM_BYTES", 0)
    shared, separate = (clearhead.capture(model(family), tensors(family), [0, 1, 2]) for _ in range(2))
    shared.keep_gradients()
    assert shared.forward.chain
    torch.testing.assert_close(shared.weighted_relevances, separate.weighted_relevances)
    assert shared._gradient_cache.is_computed
    assert not separate._gradient_cache.is_computed
    for name in ("attentions", "hidden_states", "block_inputs"):
        torch.testing.assert_close(getattr(shared.gradients, name), getattr(separate.gradients, name))
    torch.testing.assert_close(shared.leaf_gradient, separate.leaf_gradient)


def test_a_block_that_names_its_activation_function_is_still_a_block():
    net = network("bert")
    for layer in net.bert.encoder.layer:
        layer.act = torch.nn.functional.gelu
    trace = clearhead.capture(clearhead.load(net), tensors("bert"), 1)
    expected = clearhead.capture(model("bert"), tensors("bert"), 1)
    assert len(trace.hidden_states) == len(expected.hidden_states)
    torch.testing.assert_close(trace.hidden_states, expected.hidden_states)
