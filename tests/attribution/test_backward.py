"""Read-outs of the backward passes against plain formulas on a transcription of their rules."""

import numpy as np
import pytest
import torch
from helpers.balanced_reference import transcribe
from helpers.tiny_models import TEXT, alone, network, randomised, shared_model, tensors
from transformers import BertForMaskedLM, ConvBertConfig, ConvBertForSequenceClassification

import clearhead
from clearhead.attribution.batch import works_blockwise
from clearhead.attribution.method import methods, parse_method
from clearhead.engine import gradients
from clearhead.engine.backward import BACKWARDS
from clearhead.engine.blockwise import capture_blockwise
from clearhead.engine.head_relevance import head_relevances
from clearhead.errors import BadOption, UnsupportedModel

FAMILIES = ["bert", "gpt2", "vit"]
# The class token comes first, the last token of a decoder last.
READING = {"bert": 0, "gpt2": -1, "vit": 0}
# An input for which no method that clips negative relevance is zero everywhere.
ROW = 2
BALANCED_METHODS = ["attn-lrp", "cp-lrp", "balanced-cat"]
WITH_OPTION = [name for name, method in methods().items() if "backward" in method.options]


def block_names(trace):
    names = {id(module): name for name, module in trace.model.network.named_modules()}
    return [names[id(block.block)] for block in trace.forward.tape.blocks]


def referenced(family, backward, modules=()):
    """One input without padding, its trace, and the same pass by the transcription."""
    batch = alone(tensors(family), ROW)
    trace = clearhead.capture(shared_model(family), batch, 0, modules=modules)
    reference = transcribe(network(family, attention="eager"), batch, backward, block_names(trace), modules)
    return batch, trace, reference


def product(pair):
    activation, coefficient = pair
    return (activation * coefficient).sum(-1)[0]


def assert_close(values, expected):
    scale = float(expected.abs().max())
    assert scale > 0
    torch.testing.assert_close(torch.as_tensor(values), expected, rtol=0, atol=1e-10 * scale)


def expected_scores(reference, row):
    """The definition of each method, from activations and coefficients of one input."""
    impacts = [product(pair) for pair in reference.hidden_states[1:]]
    maps = [(attention[0], coefficient[0]) for attention, coefficient in reference.maps]
    last, last_coefficient = maps[-1]
    received = [attention.mean((0, 1)) for attention, _ in maps]
    positive = [(attention * coefficient.clamp(min=0)).mean(0)[row] for attention, coefficient in maps]
    counted = torch.ones(last.shape[-1], dtype=torch.float64)
    # A class token is left out, the last word of a decoder is not.
    if row == 0:
        counted[row] = 0
    weight = (last_coefficient[:, row] * counted).sum(-1) / counted.sum()
    return {
        "cat": sum(impacts),
        "att-cat": sum(weight * impact for weight, impact in zip(received, impacts, strict=True)),
        "grads": last_coefficient.mean(0)[row],
        "att-grads": sum(positive) / len(positive),
        "attention-gradcam": (weight[:, None] * last[:, row]).mean(0).clamp(min=0) * counted,
        "layer-gradcam:layer=1": product(reference.hidden_states[1]).clamp(min=0),
    }


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_read_out_follows_its_definition(family, backward):
    batch, _, reference = referenced(family, backward)
    for name, expected in expected_scores(reference, READING[family]).items():
        (explanation,) = clearhead.explain(shared_model(family), batch, name, target=0, backward=backward)
        assert_close(explanation.relevance, expected)


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_x_input(family, backward):
    batch, trace, reference = referenced(family, backward)
    leaf, coefficient = reference.leaf
    (explanation,) = clearhead.explain(shared_model(family), batch, "gradient-x-input", target=0, backward=backward)
    if family == "vit":
        assert_close(explanation.pixels, (leaf * coefficient).sum(1)[0])
        assert_close(explanation.relevance, trace.patches((leaf * coefficient).sum(1))[0])
    else:
        assert_close(explanation.relevance, (leaf * coefficient).sum(-1)[0])


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_trans_att_weighs_relevance_by_the_coefficients(family, backward):
    _, trace, reference = referenced(family, backward)
    maps = trace.relevances_weighted_by(backward)
    pairs = zip(maps, reference.maps, trace.attention_relevances, strict=True)
    for weighted, (_, coefficient), relevance in pairs:
        assert_close(weighted, (coefficient * relevance).clamp(min=0).mean(1))


def test_trans_att_rolls_out_what_it_is_given():
    batch, trace, _ = referenced("bert", "attn-lrp")
    product = torch.eye(9, dtype=torch.float64)
    for weighted in trace.relevances_weighted_by("attn-lrp"):
        product = (torch.eye(9) + weighted[0]) @ product
    (explanation,) = clearhead.explain(shared_model("bert"), batch, "trans-att", target=0, backward="attn-lrp")
    assert_close(explanation.relevance, product[0])


@pytest.mark.parametrize("backward", ["balanced", "attn-lrp"])
def test_large_maps_are_weighted_one_by_one(backward, monkeypatch):
    """The walk over blocks gives what one backward pass gives, and keeps it if other methods will ask."""
    _, single_pass, _ = referenced("bert", backward)
    expected = single_pass.relevances_weighted_by(backward)
    monkeypatch.setattr("clearhead.engine.weighted_relevance.FREE_MAPS_FROM_BYTES", 0)
    _, trace, _ = referenced("bert", backward)
    trace.keep_gradients()
    torch.testing.assert_close(trace.relevances_weighted_by(backward), expected)
    monkeypatch.setattr(gradients, "compute_gradients", None)
    torch.testing.assert_close(trace.coefficients(backward).leaf, single_pass.coefficients(backward).leaf)


@pytest.mark.parametrize("backward", BACKWARDS)
def test_decoded_gradcam(backward):
    plain = network("bert")
    torch.manual_seed(0)
    lm = BertForMaskedLM(plain.config).double().eval()
    batch = alone(tensors("bert"), 0)
    explained = clearhead.load(plain, lm_head=lm)
    blocks = block_names(clearhead.capture(explained, batch, 0))
    hidden = transcribe(network("bert", attention="eager"), batch, backward, blocks).hidden_states[2]
    share = lm.cls(hidden[0]).softmax(-1)[0][:, batch["input_ids"][0]]
    expected = product(hidden).clamp(min=0) @ share
    (explanation,) = clearhead.explain(explained, batch, "decoded-gradcam:layer=2", target=0, backward=backward)
    assert_close(explanation.relevance, expected.detach())


@pytest.mark.parametrize("backward", ["balanced", "attn-lrp"])
@pytest.mark.parametrize("family", ["bert", "vit", "swin"])
def test_balanced_cat_is_cat_with_a_balanced_pass(family, backward):
    explained = shared_model(family)
    sums = clearhead.explain(explained, tensors(family), "balanced-cat", target=0, backward=backward)
    plain = clearhead.explain(explained, tensors(family), "cat", target=0, backward=backward)
    for explanation, expected in zip(sums, plain, strict=True):
        assert explanation.relevance == pytest.approx(expected.relevance, rel=1e-12, abs=1e-14)
        assert explanation.layers.sum(0) == pytest.approx(explanation.relevance)
        effect = explanation.diagnostics["score"]
        gaps = np.abs(explanation.layers.sum(1) - effect)
        assert explanation.diagnostics["completeness_gap"] == pytest.approx(gaps.max())


@pytest.mark.parametrize("name", BALANCED_METHODS)
def test_the_gap_leaves_out_padding_that_a_network_reads(name):
    """ConvBERT convolves over words and padding alike; only words are explained."""
    options = {**TEXT, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3}
    explained = clearhead.load(randomised(ConvBertForSequenceClassification(ConvBertConfig(**options)).double().eval()))
    for explanation in clearhead.explain(explained, tensors("bert"), name, target=0):
        totals = explanation.layers.sum(1) if name == "balanced-cat" else explanation.relevance.sum()
        gap = np.abs(totals - explanation.diagnostics["score"]).max()
        assert explanation.diagnostics["completeness_gap"] == pytest.approx(gap, rel=1e-6)


@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_balanced_cat_reads_the_words_of_a_decoder_at_the_embeddings(family, method):
    backward = {"attn-lrp": "attn-lrp", "cp-lrp": "balanced"}[method]
    explained = shared_model(family)
    sums = clearhead.explain(explained, tensors(family), "balanced-cat", target=0, backward=backward)
    at_embeddings = clearhead.explain(explained, tensors(family), method, target=0)
    for explanation, expected in zip(sums, at_embeddings, strict=True):
        blocks = len(explanation.layers)
        assert explanation.relevance == pytest.approx(blocks * expected.relevance, rel=1e-9, abs=1e-12)
        # The blocks keep their own relevance, which adds up to the score as far as the gap says.
        assert explanation.layers == pytest.approx(expected.layers, rel=1e-9, abs=1e-12)
        gaps = np.abs(explanation.layers.sum(1) - explanation.diagnostics["score"])
        assert explanation.diagnostics["completeness_gap"] == pytest.approx(gaps.max())


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_the_relevance_of_a_head_is_that_of_its_output(family, backward):
    """Σ A ⊙ c_A, read at the map, is Σ o ⊙ c_o of the head's output o = A · V."""
    _, trace, reference = referenced(family, backward)
    expected = [(output * coefficient).sum((2, 3)) for output, coefficient in reference.heads]
    assert_close(trace.head_relevance(backward), torch.stack(expected, 1))


@pytest.mark.parametrize("name", [*BALANCED_METHODS, "cat", "att-cat"])
def test_heads_are_an_option(name):
    explained = shared_model("bert")
    without = clearhead.explain(explained, tensors("bert"), name, target=0)
    assert all(explanation.heads is None for explanation in without)
    for row, explanation in enumerate(clearhead.explain(explained, tensors("bert"), name, target=0, heads=True)):
        assert explanation.heads.shape == (3, 4)
        (single,) = clearhead.explain(explained, alone(tensors("bert"), row), name, target=0, heads=True)
        assert explanation.heads == pytest.approx(single.heads, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("family", ["deberta-v2", "opt", "llama", "modernbert-mean", "beit", "albert"])
def test_heads_of_other_families(family):
    (explanation, *_) = clearhead.explain(shared_model(family), tensors(family), "balanced-cat:heads=true", target=0)
    assert explanation.heads.shape == (3, 4)
    assert np.abs(explanation.heads).min() > 0


def test_maps_without_an_axis_of_heads_are_refused():
    maps = [torch.ones(6, 4, 4)]
    with pytest.raises(UnsupportedModel, match=r"maps of shape \(6, 4, 4\).*heads=True"):
        head_relevances(maps, maps, samples=2, backward="gradient")


def test_heads_need_the_maps_of_all_blocks():
    trace = capture_blockwise(shared_model("bert"), tensors("bert", length=30))
    with pytest.raises(UnsupportedModel, match="too long"):
        trace.head_relevance()


def test_heads_of_windows_belong_to_their_image():
    """Swin attends within windows, and its stages have different numbers of heads."""
    explained, batch = shared_model("swin"), tensors("swin")
    together = clearhead.explain(explained, batch, "attn-lrp:heads=true", target=0)
    for row, explanation in enumerate(together):
        assert np.isnan(explanation.heads).tolist() == [[False] * 2 + [True] * 2] * 2 + [[False] * 4] * 2
        (single,) = clearhead.explain(explained, alone(batch, row), "attn-lrp:heads=true", target=0)
        assert explanation.heads == pytest.approx(single.heads, rel=1e-9, abs=1e-12, nan_ok=True)


# decoded-gradcam needs a language-model head.
@pytest.mark.parametrize("name", sorted({*WITH_OPTION, *BALANCED_METHODS} - {"decoded-gradcam"}))
@pytest.mark.parametrize("family", FAMILIES)
def test_alone_or_in_a_padded_batch(family, name):
    explained, batch = shared_model(family), tensors(family)
    options = {"backward": "attn-lrp"} if name in WITH_OPTION else {}
    for row, explanation in enumerate(clearhead.explain(explained, batch, name, target=0, **options)):
        (single,) = clearhead.explain(explained, alone(batch, row), name, target=0, **options)
        assert explanation.relevance == pytest.approx(single.relevance, rel=1e-8, abs=1e-11)


def test_the_methods_with_the_option():
    assert set(WITH_OPTION) == {
        *("cat", "att-cat", "grads", "att-grads", "attention-gradcam", "layer-gradcam", "decoded-gradcam"),
        *("gradient-x-input", "trans-att", "balanced-cat"),
    }


@pytest.mark.parametrize("name", WITH_OPTION)
def test_an_unknown_backward_is_refused(name):
    with pytest.raises(BadOption, match=r"Invalid backward='lrp'\. Available: .*balanced"):
        clearhead.explain(shared_model("bert"), tensors("bert"), name, backward="lrp")


def test_block_by_block_there_is_only_the_gradient():
    assert works_blockwise(parse_method("trans-att"))
    assert not works_blockwise(parse_method("trans-att", backward="attn-lrp"))
    trace = capture_blockwise(shared_model("bert"), tensors("bert", length=30))
    with pytest.raises(UnsupportedModel, match="too long"):
        trace.relevances_weighted_by("attn-lrp")


def test_balanced_cat_takes_no_gradient():
    with pytest.raises(BadOption, match=r"Available: attn-lrp, balanced\."):
        clearhead.explain(shared_model("bert"), tensors("bert"), "balanced-cat:backward=gradient")


def test_a_backward_pass_is_shared(monkeypatch):
    """Whatever the number of methods, there is one forward pass and one backward pass of each name."""
    passes = []
    compute = gradients.compute_gradients

    def count(forward, direction):
        passes.append(forward.tape.switch.backward)
        return compute(forward, direction)

    monkeypatch.setattr(gradients, "compute_gradients", count)
    names = ("cat", "att-cat", "grads", "trans-att")
    specs = [f"{name}:backward={backward}" for backward in BACKWARDS for name in names]
    comparison = clearhead.compare(shared_model("bert"), tensors("bert"), [*specs, *BALANCED_METHODS])
    assert len(comparison) == len(specs) + 3
    assert sorted(passes) == sorted(BACKWARDS)
