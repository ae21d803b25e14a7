"""Roll-outs without the identity path: the definition, class tokens, padding, precision, long inputs; and gae."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import alone, answering_bert, network, tensors
from helpers.tiny_models import shared_model as model

import clearhead
from clearhead.attribution.method import parse_method
from clearhead.attribution.roll_out import reads_first_token
from clearhead.engine.blockwise import capture_blockwise

CLASS_TOKEN = ("bert", "modernbert", "vit")
OTHERS = ("gpt2", "llama", "modernbert-mean", "beit", "dinov2", "deit-teacher")
ROLL_OUTS = ("trans-att", "rollout", "gae")


def maps_of(trace, name):
    """Return the maps that a method rolls out, each (B,T,S)."""
    if name == "trans-att":
        return trace.weighted_relevances
    if name == "rollout":
        return [attention.mean(1) for attention in trace.attentions]
    pairs = zip(trace.attentions, trace.attention_gradients, strict=True)
    return [(attention * gradient).clamp(min=0).mean(1) for attention, gradient in pairs]


def products(maps, *, normalise_rows=False):
    """Return C and the product of the identities alone, by plain products of matrices."""
    product = path = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype).expand_as(maps[0])
    for map_BTS in maps:
        identity = torch.eye(map_BTS.shape[-1], dtype=map_BTS.dtype).expand_as(map_BTS)
        total = (identity + map_BTS).sum(-1, keepdim=True) if normalise_rows else 1
        product = (identity + map_BTS) / total @ product
        path = identity / total @ path
    return product, path


def read(trace, map_BTS):
    return torch.einsum("bt,bts->bs", trace.reading_BT, map_BTS)


@pytest.mark.parametrize("name", ROLL_OUTS)
@pytest.mark.parametrize("family", OTHERS)
def test_the_identity_path_is_removed(family, name):
    trace = clearhead.capture(model(family), tensors(family), [0, 1, 2])
    attribution = parse_method(name)(trace)
    product, path = products(maps_of(trace, name))
    torch.testing.assert_close(attribution.relevance_BT, read(trace, product - path), rtol=1e-10, atol=1e-12)
    for row, report in enumerate(attribution.diagnostics):
        assert report["identity_share"] == pytest.approx(1 / float(read(trace, product)[row].sum()))


@pytest.mark.parametrize("name", ["trans-att", "rollout"])
@pytest.mark.parametrize("family", OTHERS)
def test_normalised_identities_are_removed(family, name):
    trace = clearhead.capture(model(family), tensors(family), [0, 1, 2])
    attribution = parse_method(name, normalise_rows=True)(trace)
    product, path = products(maps_of(trace, name), normalise_rows=True)
    torch.testing.assert_close(attribution.relevance_BT, read(trace, product - path), rtol=1e-9, atol=1e-12)
    for row, report in enumerate(attribution.diagnostics):
        assert report["identity_share"] == pytest.approx(float(read(trace, path)[row].sum()))


@pytest.mark.parametrize("name", ROLL_OUTS)
@pytest.mark.parametrize("family", CLASS_TOKEN)
def test_a_class_token_keeps_its_row_bit_for_bit(family, name):
    trace = clearhead.capture(model(family), tensors(family), [0, 1, 2])
    attribution = parse_method(name)(trace)
    row = trace.reading_BT[:, None]
    for map_BTS in reversed(maps_of(trace, name)):
        row = torch.baddbmm(row, row, map_BTS)
    torch.testing.assert_close(attribution.relevance_BT, row[:, 0], rtol=0, atol=0)
    assert not any("identity_share" in report for report in attribution.diagnostics)


def test_samples_are_decided_one_by_one():
    text, spans = "a fine film with no plot", [(0, 0), (2, 4), (3, 3)]
    explained = answering_bert()
    targets = [clearhead.Target(span=span) for span in spans]
    trace = clearhead.capture(explained, [text] * 3, targets)
    assert reads_first_token(trace).tolist() == [True, False, False]
    for name in ROLL_OUTS:
        together = clearhead.explain(explained, [text] * 3, name, targets)
        assert ["identity_share" in explanation.diagnostics for explanation in together] == [False, True, True]
        for explanation, target in zip(together, targets, strict=True):
            expected = clearhead.explain(explained, text, name, target)
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*ROLL_OUTS, "attention-flow"])
@pytest.mark.parametrize("family", ["bert", "llama", "modernbert-mean"])
def test_batched_is_single(family, name):
    batch = tensors(family)
    together = clearhead.explain(model(family), batch, name, [0, 1, 2])
    for row, explanation in enumerate(together):
        (expected,) = clearhead.explain(model(family), alone(batch, row), name, row)
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-7, atol=1e-9)
        share = expected.diagnostics.get("identity_share")
        assert explanation.diagnostics.get("identity_share") == pytest.approx(share)


@pytest.mark.parametrize("name", [*ROLL_OUTS, "attention-flow"])
def test_the_first_token_stands_behind_the_padding_on_the_left(name):
    batch, space = tensors("llama"), torch.zeros(3, 5).long()
    padded = {key: torch.cat([space, batch[key]], 1) for key in ("input_ids", "attention_mask")}
    padded["position_ids"] = (padded["attention_mask"].cumsum(1) - 1).clamp(min=0)
    expected = clearhead.explain(model("llama"), batch, name, 1)
    for left_padded, unpadded in zip(clearhead.explain(model("llama"), padded, name, 1), expected, strict=True):
        np.testing.assert_allclose(left_padded.relevance, unpadded.relevance, rtol=1e-6, atol=1e-9)
        assert left_padded.diagnostics["identity_share"] == pytest.approx(unpadded.diagnostics["identity_share"])


def test_a_decoder_that_reads_its_only_token_keeps_it():
    batch = {"input_ids": torch.tensor([[0, 0, 7]]), "attention_mask": torch.tensor([[0, 0, 1]])}
    trace = clearhead.capture(model("llama"), batch, 0)
    assert reads_first_token(trace).tolist() == [True]


def test_relevance_far_below_the_identity_keeps_its_digits():
    single = clearhead.load(network("llama", dtype=torch.float32))
    trace, exact = (clearhead.capture(explained, tensors("llama"), 1) for explained in (single, model("llama")))
    for captured in (trace, exact):
        maps = [1e-7 * map_BTS for map_BTS in maps_of(captured, "rollout")]
        captured.__dict__["weighted_relevances"] = maps
    rounded, expected = (parse_method("trans-att")(captured).relevance_BT for captured in (trace, exact))
    torch.testing.assert_close(rounded.double(), expected, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "modernbert-mean", "beit"])
def test_block_by_block_reports_the_same_share(family):
    batch = tensors(family)
    at_once = parse_method("trans-att")(clearhead.capture(model(family), batch, [0, 1, 2]))
    blocks = parse_method("trans-att")(capture_blockwise(model(family), batch, [0, 1, 2]))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=1e-9, atol=1e-12)
    for blockwise, expected in zip(blocks.diagnostics, at_once.diagnostics, strict=True):
        assert blockwise["identity_share"] == pytest.approx(expected["identity_share"], rel=1e-12)


def test_a_flow_loses_what_identity_edges_alone_carry():
    trace = clearhead.capture(model("gpt2"), alone(tensors("gpt2"), 0), 1)
    attribution = parse_method("attention-flow")(trace)
    # Only the last token attends to itself in a decoder, so its flow is that of its narrowest edge.
    narrowest = min(float(attention[0, :, -1, -1].mean()) for attention in trace.attentions)
    assert float(attribution.relevance_BT[0, -1]) == pytest.approx(0.5 * narrowest, abs=1e-6)
    total = float(attribution.relevance_BT.sum()) + 0.5
    assert attribution.diagnostics[0]["identity_share"] == pytest.approx(0.5 / total)


def test_grad_cam_leaves_out_class_tokens_only():
    (decoder,) = clearhead.explain(model("gpt2"), alone(tensors("gpt2"), 0), "attention-gradcam", 1)
    (encoder,) = clearhead.explain(model("bert"), alone(tensors("bert"), 0), "attention-gradcam", 1)
    assert encoder.relevance[0] == 0
    trace = clearhead.capture(model("gpt2"), alone(tensors("gpt2"), 0), 1)
    row, gradient = trace.attentions[-1][0, :, -1], trace.attention_gradients[-1][0, :, -1]
    expected = (gradient.mean(1, keepdim=True) * row).mean(0).clamp(min=0)
    np.testing.assert_allclose(decoder.relevance, expected, rtol=1e-9, atol=1e-15)


def explain_by_autograd(net, batch, target):
    """Return R = Π (I + E_h (∇A ⊙ A)⁺) of each sample (B,T,S), by the network's own attention maps and autograd."""
    output = net(**batch, output_attentions=True)
    gradients = torch.autograd.grad(output.logits[:, target].sum(), output.attentions)
    relevance = torch.eye(output.attentions[0].shape[-1], dtype=torch.float64)
    for attention, gradient in zip(output.attentions, gradients, strict=True):
        relevance = relevance + (gradient * attention).clamp(min=0).mean(1) @ relevance
    return relevance.detach()


@pytest.mark.parametrize("family", ["bert", "distilbert", "vit", "gpt2", "llama"])
def test_gae_is_its_definition(family, monkeypatch):
    net, batch = network(family, attention="eager"), tensors(family)
    with monkeypatch.context() as patch:
        # Some eager implementations compute their softmax in float32 even in float64.
        patch.setattr(torch.nn.functional, "softmax", lambda scores, dim, dtype=None: scores.softmax(dim))
        relevance_BTS = explain_by_autograd(net, batch, 2)
    for row, explanation in enumerate(clearhead.explain(clearhead.load(net), batch, "gae", 2)):
        tokens = len(explanation.relevance)
        expected = relevance_BTS[row, 0, :tokens]
        if family in ("gpt2", "llama"):
            expected = relevance_BTS[row, tokens - 1, :tokens] - torch.eye(tokens)[-1]
        np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-10, atol=1e-13)
