"""Balanced backward passes against a transcription of their rules, and what they promise."""

import gc
import weakref
from functools import partial

import pytest
import torch
from helpers.balanced_reference import first_logit, transcribe
from helpers.tiny_models import alone, model, network, tensors, text_model
from torch import nn
from transformers import BertForQuestionAnswering

import clearhead
from clearhead.engine.backward import ATTN_LRP, BACKWARDS, BALANCED
from clearhead.errors import UnsupportedOperation

FAMILIES = [
    *("bert", "roberta", "xlm-r", "distilbert", "albert", "electra", "modernbert", "modernbert-mean", "deberta-v2"),
    *("mpnet", "t5", "t5-gated", "gpt2", "opt", "llama", "qwen3", "gemma", "gemma2", "mixtral", "qwen3-moe"),
    *("vit", "deit", "deit-teacher", "beit", "dinov2", "swin", "clip"),
]
# RMSNorms compute in float32 even in a float64 network.
WITHOUT_BIASES = {"bert": 1e-12, "vit": 1e-12, "llama": 1e-6, "gemma": 1e-6, "t5": 1e-6, "mixtral": 1e-6}
RULES = [ATTN_LRP, BALANCED]


def assert_transcribed(trace, plain, rule, score=first_logit):
    """Compare a trace with the transcription of a network that attends in elementary steps."""
    _, expected = transcribe(plain, trace.inputs.tensors, rule, score=score).leaf
    tolerance = 1e-10 * float(expected.abs().max())
    torch.testing.assert_close(trace.coefficients(rule).leaf, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("gradients_only", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", FAMILIES)
def test_coefficients_are_those_of_the_transcription(family, rule, gradients_only):
    trace = clearhead.capture(model(family), tensors(family), 0, gradients_only=gradients_only)
    assert_transcribed(trace, network(family, attention="eager"), rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", ["bert", "llama", "mpnet", "t5"])
def test_a_contrast_and_one_target_per_sample(family, rule):
    targets = [clearhead.Target(0, versus=2), clearhead.Target(1), clearhead.Target(2, versus=1)]
    trace = clearhead.capture(model(family), tensors(family), targets)

    def score(output):
        logits = output.logits
        return logits[0, 0] - logits[0, 2] + logits[1, 1] + logits[2, 2] - logits[2, 1]

    assert_transcribed(trace, network(family, attention="eager"), rule, score)


@pytest.mark.parametrize("rule", RULES)
def test_an_answer_span_is_start_plus_end(rule):
    trace = clearhead.capture(
        model("bert", network_class=BertForQuestionAnswering, num_labels=2),
        tensors("bert"),
        clearhead.Target(span=(2, 4)),
    )
    plain = network("bert", network_class=BertForQuestionAnswering, num_labels=2, attention="eager")
    assert_transcribed(
        trace, plain, rule, lambda output: output.start_logits[:, 2].sum() + output.end_logits[:, 4].sum()
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, 0),
        ({"problem_type": "multi_label_classification"}, 1),
    ],
)
def test_regression_and_multi_label(changes, target, rule):
    trace = clearhead.capture(model("bert", **changes), tensors("bert"), target)
    plain = network("bert", attention="eager", **changes)
    assert_transcribed(trace, plain, rule, lambda output: output.logits[:, target].sum())


def test_an_expert_behind_a_sigmoid_gate():
    """CP-LRP holds the gate; AttnLRP has no rule for σ(x)/x, which has no limit at 0."""
    trace = clearhead.capture(model("qwen2-moe"), tensors("qwen2-moe"), 0)
    assert_transcribed(trace, network("qwen2-moe", attention="eager"), BALANCED)
    with pytest.raises(UnsupportedOperation, match=r"'sigmoid' as used in 'model\.layers\.2\.mlp'"):
        trace.coefficients(ATTN_LRP)


@pytest.mark.parametrize("rule", RULES)
def test_experts_by_one_fused_product(rule):
    exact = clearhead.capture(model("mixtral"), tensors("mixtral"), 0).coefficients(rule).leaf
    fused = clearhead.capture(model("mixtral", dtype=torch.float32), tensors("mixtral"), 0).coefficients(rule).leaf
    torch.testing.assert_close(fused.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize(("family", "tolerance"), WITHOUT_BIASES.items())
def test_without_biases_cp_lrp_adds_up_to_the_logit(family, tolerance):
    plain = network(family)
    for name, parameter in plain.named_parameters():
        # For an image the learned positions and the class token are constants too: relevance ends at the pixels.
        if name.endswith(("bias", "cls_token", "vit.embeddings.position_embeddings")):
            nn.init.zeros_(parameter)
    for explanation in clearhead.explain(clearhead.load(plain), tensors(family), "cp-lrp", target=1):
        effect = explanation.diagnostics["score"]
        assert abs(effect) > 0.01
        assert explanation.diagnostics["completeness_gap"] <= tolerance
        assert explanation.relevance.sum() == pytest.approx(effect, abs=tolerance)


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp"])
@pytest.mark.parametrize("family", ["bert", "modernbert-mean", "llama", "vit"])
def test_alone_or_in_a_padded_batch(family, name):
    explained = model(family)
    batch = tensors(family)
    together = clearhead.explain(explained, batch, name, target=0)
    for row, explanation in enumerate(together):
        (single,) = clearhead.explain(explained, alone(batch, row), name, target=0)
        assert explanation.relevance == pytest.approx(single.relevance, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp"])
def test_a_contrast_is_a_difference(name):
    explained = text_model()
    first, second = (clearhead.explain(explained, "a good film", name, target=index) for index in (0, 1))
    contrast = clearhead.explain(explained, "a good film", name, target=clearhead.Target(0, versus=1))
    assert contrast.relevance == pytest.approx(first.relevance - second.relevance, abs=1e-12)


def test_the_gradient_is_not_touched():
    """The switchable graph gives the gradients of the plain network."""
    batch = tensors("bert")
    trace = clearhead.capture(model("bert"), batch, 0)
    for backward in BACKWARDS:
        trace.coefficients(backward)
    plain = network("bert").requires_grad_(False)
    leaves = []
    plain.get_input_embeddings().register_forward_hook(
        lambda module, args, out: leaves.append(out.detach().requires_grad_()) or leaves[0]
    )
    logits = plain(**batch).logits
    (gradient,) = torch.autograd.grad(logits[:, 0].sum(), leaves[0])
    torch.testing.assert_close(trace.leaf_gradient, gradient, rtol=1e-10, atol=1e-13)


class Sigmoid(nn.Module):
    """An activation function that is not 0 at 0, so that φ(x)/x has no limit."""

    def forward(self, x):
        return torch.sigmoid(x) + 0 * x


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp"])
def test_an_operation_without_a_rule_is_named(name):
    strange = network("bert")
    strange.bert.encoder.layer[1].intermediate.intermediate_act_fn = Sigmoid()
    explained = clearhead.load(strange)
    with pytest.raises(UnsupportedOperation, match=r"'sigmoid' as used in 'bert\.encoder\.layer\.1"):
        clearhead.explain(explained, tensors("bert"), name)
    # Methods that use the gradient still work.
    clearhead.explain(explained, tensors("bert"), "att-cat")


@pytest.mark.parametrize("function", [nn.SiLU(inplace=True), nn.Hardswish(inplace=True)])
def test_an_activation_that_overwrites_its_input_is_refused(function):
    strange = network("bert")
    strange.bert.encoder.layer[1].intermediate.intermediate_act_fn = function
    trace = clearhead.capture(clearhead.load(strange), tensors("bert"), 0)
    with pytest.raises(UnsupportedOperation, match=r"(?i)'(silu|hardswish).*' as used in 'bert\.encoder\.layer\.1"):
        trace.coefficients(ATTN_LRP)


def test_relu_may_overwrite_its_input():
    coefficients = []
    for inplace in (False, True):
        rectified = network("bert")
        rectified.bert.encoder.layer[1].intermediate.intermediate_act_fn = nn.ReLU(inplace=inplace)
        trace = clearhead.capture(clearhead.load(rectified), tensors("bert"), 0)
        coefficients.append(trace.coefficients(ATTN_LRP).leaf)
    torch.testing.assert_close(*coefficients)


def test_an_activation_at_zero_passes_its_slope():
    from clearhead.engine.activation_ratios import divide_by_input
    from clearhead.engine.balanced import activation_rule

    x = torch.tensor([0.0, 1.0, -2.0])
    slopes = activation_rule(partial(divide_by_input, nn.functional.gelu))(x, torch.ones(3))
    expected = torch.tensor([0.5, float(nn.functional.gelu(x[1])), float(nn.functional.gelu(x[2]) / -2)])
    torch.testing.assert_close(slopes, expected)


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp"])
def test_images_are_explained_at_their_pixels(name):
    for explanation in clearhead.explain(model("vit"), tensors("vit"), name, target=0):
        assert explanation.pixels is not None
        assert explanation.pixels.sum() == pytest.approx(explanation.relevance.sum(), rel=1e-9)
        assert explanation.layers.shape[0] == 3


def test_a_trace_is_freed_without_the_garbage_collector():
    """The engine pauses the collector, so a cycle would keep the activations of every batch."""
    trace = clearhead.capture(model("bert"), tensors("bert"), 0)
    for backward in BACKWARDS:
        trace.coefficients(backward)
    activation = weakref.ref(trace.forward.hidden_states[1])
    gc.disable()
    try:
        del trace
        assert activation() is None
    finally:
        gc.enable()
