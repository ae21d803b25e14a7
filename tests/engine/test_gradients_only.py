"""Traces for gradients only: the numbers of a whole trace, without attention maps and relevance."""

import pytest
import torch
from helpers.tensor_memory import measure_peak
from helpers.tiny_models import FAMILIES, network, tensors
from helpers.tiny_models import shared_model as model

import clearhead
from clearhead.attribution.method import METHODS, parse_method
from clearhead.engine.backward import BACKWARDS
from clearhead.errors import UnsupportedModel, UnsupportedOperation

clearhead.methods()
BY_GRADIENT = sorted(name for name, method in METHODS.items() if method.needs == {"gradients"})


def capture_gradients(family, target=0):
    return clearhead.capture(model(family), tensors(family), target, gradients_only=True)


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_coefficients_are_those_of_the_whole_trace(family, backward):
    expected = clearhead.capture(model(family), tensors(family), 0).coefficients(backward)
    coefficients = capture_gradients(family).coefficients(backward)
    pairs = zip(
        [*coefficients.hidden_states, *coefficients.block_inputs, coefficients.leaf],
        [*expected.hidden_states, *expected.block_inputs, expected.leaf],
        strict=True,
    )
    for tensor, other in pairs:
        torch.testing.assert_close(tensor, other, rtol=1e-9, atol=1e-12 * float(other.abs().max()))


@pytest.mark.parametrize("name", [name for name in BY_GRADIENT if name != "decoded-gradcam"])
def test_every_method_over_gradients_is_content_with_it(name):
    whole = parse_method(name)(clearhead.capture(model("bert"), tensors("bert"), 1))
    light = parse_method(name)(capture_gradients("bert", 1))
    torch.testing.assert_close(light.relevance_BT, whole.relevance_BT, rtol=1e-9, atol=1e-12)


def test_queries_that_attend_to_nothing_do_not_become_nan():
    """Padding on the left of a decoder masks whole rows, which fused kernels may answer with NaN."""
    batch = tensors("llama")
    padding = torch.zeros(3, 4).long()
    padded = {name: torch.cat([padding, value], 1) for name, value in batch.items()}
    expected = clearhead.capture(model("llama"), padded, 0).coefficients("attn-lrp").leaf
    light = clearhead.capture(model("llama"), padded, 0, gradients_only=True).coefficients("attn-lrp").leaf
    torch.testing.assert_close(light, expected, rtol=1e-9, atol=1e-12)


def test_a_part_that_was_not_kept_is_an_error():
    trace = capture_gradients("bert")
    with pytest.raises(UnsupportedModel, match="gradients_only=True"):
        _ = trace.attentions
    with pytest.raises(UnsupportedModel, match="gradients_only=True"):
        _ = trace.gradients.attentions
    with pytest.raises(UnsupportedOperation, match="gradients_only=True"):
        _ = trace.reading_BT


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["attn-lrp", "cat"], True), (["attn-lrp", "att-cat"], False), (["grads"], False), (["cat:heads=true"], False)],
)
def test_explain_keeps_only_what_its_methods_read(names, expected, monkeypatch):
    from clearhead.attribution import batch

    kept = []

    def capture(*args, gradients_only):
        kept.append(gradients_only)
        return clearhead.capture(*args, gradients_only=gradients_only)

    monkeypatch.setattr(batch, "capture", capture)
    clearhead.compare(model("bert"), tensors("bert"), names, 0)
    assert kept == [expected]


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp"])
def test_memory_is_that_of_a_gradient_and_a_little_more(name):
    explained = clearhead.load(network("bert", dtype=torch.float32, hidden_size=64, intermediate_size=256))
    batch = tensors("bert", rows=8, length=60)

    def run_plain():
        words = explained.network.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        logits = explained.network(inputs_embeds=words, attention_mask=batch["attention_mask"]).logits
        torch.autograd.grad(logits[:, 0].sum(), words)

    explained.network.requires_grad_(False)
    plain = measure_peak(run_plain)
    assert measure_peak(lambda: clearhead.explain(explained, batch, name, 0)) <= 1.6 * plain
