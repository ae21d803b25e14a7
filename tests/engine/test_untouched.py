"""The model is left as found, and what surrounds the call does not change the answer."""

import copy
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers.precision import require_half_precision
from helpers.tiny_models import model, network, tensors
from torch import nn

import clearhead
from clearhead.attribution.method import METHODS, Attribution, method
from clearhead.model.placement import with_precision

NAMES = ["trans-att", "lrp", "att-cat", "rollout", "gradient", "balanced-cat:heads=true", "grads:backward=balanced"]


def state(net):
    """Everything about a network that a careless tool might leave changed."""
    return {
        "parameters": {
            name: (value.clone(), value.requires_grad, value.grad) for name, value in net.named_parameters()
        },
        "buffers": {name: value.clone() for name, value in net.named_buffers()},
        "training": [module.training for module in net.modules()],
        "hooks": [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in net.modules()],
        "forwards": ["forward" in module.__dict__ for module in net.modules()],
        "config": net.config.to_dict(),
        "attention": net.config._attn_implementation,
    }


def assert_same(before, after):
    for name, (value, trainable, gradient) in before["parameters"].items():
        assert torch.equal(value, after["parameters"][name][0])
        assert (trainable, gradient) == after["parameters"][name][1:]
    assert all(torch.equal(value, after["buffers"][name]) for name, value in before["buffers"].items())
    for key in ("training", "hooks", "forwards", "config", "attention"):
        assert before[key] == after[key]


@pytest.mark.parametrize("family", ["bert", "vit", "llama"])
@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_left_behind(family, training):
    net = network(family).train(training)
    next(net.parameters()).requires_grad_(False)
    before = state(net)
    clearhead.compare(net, tensors(family), NAMES)
    assert_same(before, state(net))


class Broken(nn.Module):
    def forward(self, *args, **kwargs):
        raise RuntimeError("injected")


def test_nothing_is_left_behind_after_an_exception_in_the_network():
    net = network("bert").train()
    net.classifier = Broken()
    before = state(net)
    with pytest.raises(RuntimeError, match="injected"):
        clearhead.explain(net, tensors("bert"))
    assert_same(before, state(net))


def test_nothing_is_left_behind_after_an_exception_in_a_method():
    @method(paper="none", signed=False, class_specific=False)
    def breaks_on_purpose(trace) -> Attribution:
        raise RuntimeError("injected")

    net = network("bert").train()
    before = state(net)
    try:
        with pytest.raises(RuntimeError, match="injected"):
            clearhead.explain(net, tensors("bert"), "breaks-on-purpose")
    finally:
        METHODS._objects.pop("breaks-on-purpose")
    assert_same(before, state(net))


def test_the_masked_lm_is_left_as_found():
    import transformers

    net = network("bert")
    lm = transformers.BertForMaskedLM(net.config).double().eval()
    before = state(lm)
    clearhead.explain(clearhead.load(net, lm_head=lm), tensors("bert"), "decoded-gradcam")
    assert_same(before, state(lm))


@pytest.fixture(scope="module")
def plain():
    relevance = {}
    for name, explanations in explained(network("bert")).items():
        relevance[name] = [explanation.relevance for explanation in explanations]
    return relevance


def explained(net, batch=None, **options):
    return clearhead.compare(net, batch or tensors("bert"), NAMES, 1, **options)


def assert_plain(explanations, plain, tolerance=1e-9):
    for name, values in plain.items():
        for explanation, expected in zip(explanations[name], values, strict=True):
            assert np.abs(explanation.relevance - expected).max() <= tolerance * np.abs(expected).max()


def test_training_mode(plain):
    net = network("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5).train()
    assert_plain(explained(net), plain)


def test_surrounding_no_grad_and_inference_mode(plain):
    net = network("bert")
    with torch.no_grad():
        assert_plain(explained(net), plain)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        assert_plain(explained(net, tensors("bert")), plain)


def test_every_method_and_loading_inside_inference_mode():
    net, batch = network("bert"), tensors("bert")
    # One needs a masked-LM head, the other the sentences of a text.
    names = [name for name in METHODS if name not in ("decoded-gradcam", "context-cite")]
    outside = clearhead.compare(net, batch, names, 1)
    with torch.inference_mode():
        loaded = clearhead.load(net, dtype="float32")
        inside = clearhead.compare(net, batch, names, 1)
        clearhead.explain(net, batch, "att-cat", precision="float32")
    for name in names:
        for explanation, expected in zip(inside[name], outside[name], strict=True):
            np.testing.assert_array_equal(explanation.relevance, expected.relevance)
    clearhead.explain(loaded, batch, "att-cat")


def test_surrounding_autocast(plain):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_plain(explained(network("bert")), plain)


def test_frozen_parameters(plain):
    assert_plain(explained(network("bert").requires_grad_(False)), plain)


def test_gradient_checkpointing(plain):
    net = network("bert").train()
    net.gradient_checkpointing_enable()
    assert_plain(explained(net), plain)
    assert net.is_gradient_checkpointing


def test_eager_attention(plain):
    assert_plain(explained(network("bert", attention="eager")), plain)


@pytest.mark.parametrize("compiled", [lambda net: torch.compile(net), lambda net: net.compile() or net])
def test_compiled_model(plain, compiled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_plain(explained(compiled(network("bert"))), plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    """Half-precision networks are explained with relevance carried in float32."""
    require_half_precision(str(dtype).removeprefix("torch."))
    # With its check, what loses digits would be computed in float64.
    explanations = explained(network("bert", dtype=dtype), check=False)
    exact = explained(network("bert", dtype=dtype).double())
    for name in NAMES:
        for explanation, expected in zip(explanations[name], exact[name], strict=True):
            assert explanation.relevance.dtype == np.float32
            diagnostics = explanation.diagnostics
            assert diagnostics.get("conservation_gap", 0) <= 1e-4 + diagnostics.get("dropped", 0)
            # Without the add rule's normalisation, z-plus relevance amplifies the rounding of the activations.
            assert name == "lrp" or np.corrcoef(explanation.relevance, expected.relevance)[0, 1] > 0.9, name


def test_float64_on_request():
    """precision="float64" gives a float32 model the digits of its float64 twin, and leaves it float32."""
    net = network("vit", dtype=torch.float32)
    twin = copy.deepcopy(net).double()
    loaded = clearhead.load(net)
    for name in NAMES:
        for explanation, expected in zip(
            clearhead.explain(loaded, tensors("vit"), name, 1, precision="float64"),
            clearhead.explain(twin, tensors("vit"), name, 1),
            strict=True,
        ):
            np.testing.assert_array_equal(explanation.relevance, expected.relevance)
            assert explanation.diagnostics["precision"] == "float64"
    assert next(net.parameters()).dtype == torch.float32


def test_adapters_merged_or_not():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    net = network("bert")
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], init_lora_weights=False)
    adapted = peft.get_peft_model(net, settings).eval()
    before = state(adapted.get_base_model())
    apart = explained(adapted)
    assert_same(before, state(adapted.get_base_model()))
    for explanation in apart["trans-att"]:
        # Two-dimensional adapters often have no positive contribution to an output: that share is dropped.
        dropped = explanation.diagnostics["dropped"]
        assert explanation.diagnostics["conservation_gap"] == pytest.approx(dropped, abs=1e-9)
    merged = explained(copy.deepcopy(adapted).merge_and_unload())
    for name in ("att-cat", "rollout", "gradient"):
        for explanation, expected in zip(apart[name], merged[name], strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-8, atol=1e-12)


def test_dynamically_quantised_models_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = torch.ao.quantization.quantize_dynamic(network("bert", dtype=torch.float32), {nn.Linear})
    with pytest.raises(clearhead.UnsupportedModel, match="quantised"):
        clearhead.explain(net, tensors("bert"))


def test_the_same_seed_gives_the_same_numbers():
    first, second = (clearhead.explain(model("bert"), tensors("bert"), "random", seed=4) for _ in range(2))
    third = clearhead.explain(model("bert"), tensors("bert"), "random", seed=5)
    for explanation, repeated, reseeded in zip(first, second, third, strict=True):
        np.testing.assert_array_equal(explanation.relevance, repeated.relevance)
        assert not np.allclose(explanation.relevance, reseeded.relevance)


def test_several_classes_share_one_forward():
    net = network("bert")
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    trace = clearhead.capture(net if isinstance(net, clearhead.Model) else clearhead.load(net), tensors("bert"), 0)
    both = [trace.with_target(target).attention_relevances[0] for target in (0, 1)]
    assert len(calls) == 1
    assert not torch.allclose(*both)


def test_threads_take_turns(plain):
    net = network("bert")
    with ThreadPoolExecutor(4) as pool:
        for explanations in pool.map(lambda _: explained(net), range(6)):
            assert_plain(explanations, plain)
    assert all(not module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("name", NAMES)
def test_a_surrounding_autocast_does_not_round(name):
    explained, batch = model("bert", dtype=torch.float32), tensors("bert")
    plain = clearhead.explain(explained, batch, name, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = clearhead.explain(explained, batch, name, 0)
    for explanation, expected in zip(inside, plain, strict=True):
        np.testing.assert_array_equal(explanation.relevance, expected.relevance)


def test_another_thread_runs_the_network_meanwhile(plain):
    net, batch = network("bert"), tensors("bert")
    expected = net(**batch).logits.detach()
    stopped = threading.Event()

    def run():
        count = 0
        while not stopped.is_set():
            with torch.no_grad():
                assert torch.allclose(net(**batch).logits, expected)
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        runs = pool.submit(run)
        try:
            for _ in range(8):
                assert_plain(explained(net), plain)
        finally:
            stopped.set()
        assert runs.result() > 0


def test_two_threads_decode_at_once():
    import transformers

    net, batch = network("bert"), tensors("bert")
    lm = transformers.BertForMaskedLM(net.config).double().eval()
    loaded = clearhead.load(net, lm_head=lm)
    expected = [explanation.relevance for explanation in clearhead.explain(loaded, batch, "decoded-gradcam")]
    slow = lm.cls.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    with ThreadPoolExecutor(3) as pool:
        for explanations in pool.map(lambda _: clearhead.explain(loaded, batch, "decoded-gradcam"), range(6)):
            for explanation, relevance in zip(explanations, expected, strict=True):
                np.testing.assert_array_equal(explanation.relevance, relevance)
    slow.remove()
    assert "forward" not in lm.base_model.__dict__


def test_a_forward_of_the_encoders_own_comes_back():
    import transformers

    net = network("bert")
    lm = transformers.BertForMaskedLM(net.config).double().eval()
    forward = lm.base_model.__dict__["forward"] = lm.base_model.forward
    clearhead.explain(clearhead.load(net, lm_head=lm), tensors("bert"), "decoded-gradcam")
    assert lm.base_model.__dict__["forward"] is forward


def test_a_copy_in_another_precision_follows_the_weights():
    net = network("bert")
    loaded, batch = clearhead.load(net), tensors("bert")
    clearhead.explain(loaded, batch, "att-cat", 0, precision="float32")
    with torch.no_grad():
        net.classifier.weight.mul_(-1)
    explanations = clearhead.explain(loaded, batch, "att-cat", 0, precision="float32")
    for explanation, expected in zip(explanations, clearhead.explain(loaded, batch, "att-cat", 0), strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-3, atol=1e-5)
    assert with_precision(loaded, "float32") is with_precision(loaded, "float32")


def test_threads_leave_the_compiler_as_it_was():
    models, batch = [model("bert") for _ in range(3)], tensors("bert")
    before = torch._dynamo.eval_frame._stance
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda each: [clearhead.explain(each, batch, "trans-att", 0) for _ in range(6)], models))
    assert torch._dynamo.eval_frame._stance == before
