"""Replayed passes: the numbers of the network itself, and the network itself wherever they might not be."""

from itertools import count
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny_models import network
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead.attribution import batch
from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.method import parse_method
from clearhead.engine import replay
from clearhead.engine.memory import estimate_memory
from clearhead.engine.replay import MOST_MEMORY, SEEN_BEFORE, NotReplayable
from clearhead.model.inputs import Inputs, as_inputs

# As many tokens each, but for the last.
TEXTS = ("the film is good", "the film is bad", "a very dull film", "joy finds its heart")
LONGER = "the film is not good , it never finds its heart"


class Rerun:
    """Stands for a CUDA graph: runs the work again and writes to the result of the first time."""

    def __init__(self, work, result):
        self.work = work
        self.result = result

    def replay(self):
        vars(self.result).update(vars(self.work()))


def record_on_cpu(work):
    result = work()
    return Rerun(work, result), result


@pytest.fixture
def recorded(monkeypatch):
    """Replay on a CPU; return what was recorded, by its shapes."""
    monkeypatch.setattr(replay, "_record", record_on_cpu)
    monkeypatch.setattr(replay, "may_replay", lambda model, inputs: True)
    monkeypatch.setattr(replay, "_is_elsewhere", lambda device: False)
    monkeypatch.setattr(replay, "_used_memory", lambda device: 0)
    monkeypatch.setattr(replay.NetworkReplays, "_has_memory", lambda *_: True)
    monkeypatch.setattr(replay, "_REPLAYS", {})
    return lambda model: replay._REPLAYS[model.network].passes


@pytest.fixture
def model():
    return clearhead.load(network("bert"), word_piece_tokenizer())


def explain_often(model, text, method="balanced-cat", times=SEEN_BEFORE + 1):
    for _ in range(times):
        explanation = clearhead.explain(model, text, method, check=False)
    return explanation


def explain_plainly(model, text, method):
    """Explain without replaying."""
    trace = clearhead.capture(model, text, gradients_only=True)
    (explanation,) = explain_trace(trace, parse_method(method))
    return explanation


@pytest.mark.parametrize("method", ["balanced-cat", "attn-lrp", "cp-lrp", "gradient", "gradient-x-input"])
def test_explanations_by_replayed_passes_are_those_of_the_network(model, recorded, method):
    plain = [clearhead.explain(model, text, method, check=False) for text in TEXTS[:SEEN_BEFORE]]
    plain += [explain_plainly(model, text, method) for text in TEXTS[SEEN_BEFORE:]]
    replayed = [clearhead.explain(model, text, method, check=False) for text in TEXTS]
    assert list(recorded(model).values()) != [None]
    for explanation, expected in zip(replayed, plain, strict=True):
        assert explanation.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-12)
        assert explanation.probability == pytest.approx(expected.probability)
        assert explanation.diagnostics == pytest.approx(expected.diagnostics)


def test_a_shape_is_recorded_when_it_comes_again(model, recorded):
    explain_often(model, TEXTS[0], times=SEEN_BEFORE)
    assert recorded(model) == {}
    clearhead.explain(model, TEXTS[1], check=False)
    clearhead.explain(model, LONGER, check=False)
    assert len(recorded(model)) == 1


def test_targets_of_one_trace_do_not_overwrite_each_other(model, recorded):
    explain_often(model, TEXTS[0])
    trace = replay.capture_replayed(model, as_inputs(model, [TEXTS[0]]), [0])
    first = trace.gradients.leaf.clone()
    other = trace.with_target(1).gradients.leaf
    assert not torch.allclose(other, first)
    torch.testing.assert_close(trace.gradients.leaf, first)


def test_padded_inputs_are_not_replayed(model, recorded):
    inputs = as_inputs(model, [TEXTS[0], LONGER])
    for _ in range(SEEN_BEFORE + 2):
        assert replay.capture_replayed(model, inputs, [None, None]) is None


def hook_a_module(network):
    network.bert.encoder.layer[0].register_forward_hook(lambda module, args, out: None)


def replace_a_weight(network):
    network.classifier.weight = torch.nn.Parameter(network.classifier.weight.detach().clone() * 2)


def patch_a_module(network):
    forward = network.classifier.forward
    network.classifier.forward = lambda states: forward(states) * 2


def change_a_setting(network):
    network.classifier.temperature = 2.0


def choose_an_adapter(network):
    network.classifier.active_adapters = ["other"]


CHANGES = [hook_a_module, replace_a_weight, patch_a_module, change_a_setting, choose_an_adapter]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_network_is_run_again(model, recorded, change):
    explain_often(model, TEXTS[0])
    assert recorded(model)
    change(model.network)
    clearhead.explain(model, TEXTS[0], check=False)
    assert recorded(model) == {}


def test_weights_changed_in_place_are_read_again(model, recorded):
    explain_often(model, TEXTS[0])
    with torch.no_grad():
        model.network.classifier.weight.mul_(-1)
    assert_plain_numbers(model, TEXTS[0])


def test_a_network_that_cannot_be_recorded_is_run(model, recorded, monkeypatch):
    def fail(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "_record", fail)
    expected = clearhead.explain(model, TEXTS[0], check=False)
    explanation = explain_often(model, TEXTS[0], times=SEEN_BEFORE + 2)
    assert list(recorded(model).values()) == [None]
    assert (explanation.relevance == expected.relevance).all()


def test_a_backward_pass_that_cannot_be_recorded_is_run(model, recorded, monkeypatch):
    explain_often(model, TEXTS[0], "gradient")
    monkeypatch.setattr(replay, "_record", raise_not_replayable)
    assert_plain_numbers(model, TEXTS[0])


def raise_not_replayable(work):
    raise NotReplayable


def record_nothing(work):
    """Run the work, but record none of its kernels, as for those of another GPU."""
    result = work()
    return SimpleNamespace(replay=lambda: None), result


def test_a_graph_that_does_not_read_its_inputs_is_refused(model, recorded, monkeypatch):
    monkeypatch.setattr(replay, "_record", record_nothing)
    explain_often(model, TEXTS[0])
    assert list(recorded(model).values()) == [None]
    assert_plain_numbers(model, TEXTS[1])


def test_a_backward_graph_that_does_not_read_its_direction_is_refused(model, recorded, monkeypatch):
    explain_often(model, TEXTS[0], "gradient")
    monkeypatch.setattr(replay, "_record", record_nothing)
    for text in TEXTS:
        assert_plain_numbers(model, text)


def assert_plain_numbers(model, text):
    explanation = clearhead.explain(model, text, check=False)
    expected = explain_plainly(model, text, "balanced-cat")
    assert explanation.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-12)


def test_a_network_that_needs_its_mask_is_not_replayed(model, recorded):
    forward = model.network.forward

    def compute(attention_mask=None, **tensors):
        output = forward(attention_mask=attention_mask, **tensors)
        if attention_mask is None:
            output.logits = 2 * output.logits
        return output

    model.network.forward = compute
    explain_often(model, TEXTS[0])
    assert list(recorded(model).values()) == [None]


def test_passes_of_another_gpu_than_the_current_one_are_not_replayed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: 0)
    assert not replay._is_elsewhere(torch.device("cuda", 0))
    assert replay._is_elsewhere(torch.device("cuda", 1))


def test_other_numbers_than_the_networks_are_refused(model):
    logits = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    replayed = make_pass(model)
    replayed.require_equal(logits + 1e-15, logits)
    for other in (logits + 1e-6, logits * torch.nan):
        with pytest.raises(NotReplayable):
            replayed.require_equal(other, logits)


def make_pass(model):
    replayed = replay.ReplayedPass.__new__(replay.ReplayedPass)
    replayed._tolerance = replay.ROUNDINGS * replay._find_precision(model)
    return replayed


def test_no_pass_is_recorded_that_takes_too_much_memory(model, monkeypatch):
    inputs = as_inputs(model, [TEXTS[0]])
    size = estimate_memory(model, inputs).whole
    for total, expected in ((size / MOST_MEMORY * 1.01, True), (size / MOST_MEMORY * 0.99, False)):
        properties = SimpleNamespace(total_memory=total)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, found=properties: found)
        assert replay.NetworkReplays(())._has_memory(model, inputs) == expected


def test_the_memory_of_backward_passes_counts(model, recorded, monkeypatch):
    used = count(0, 10)
    monkeypatch.setattr(replay, "_used_memory", lambda device: next(used))
    explain_often(model, TEXTS[0], "gradient")
    replays = replay._REPLAYS[model.network]
    assert replays.memory == 20
    explain_often(model, TEXTS[0], "balanced-cat")
    assert replays.memory == 30


def test_recorded_passes_are_forgotten_where_memory_is_short(model, recorded):
    explain_often(model, TEXTS[0])
    replay.forget_replays()
    explain_often(model, TEXTS[0], times=1)
    assert recorded(model) == {}


def test_only_small_inputs_of_classifiers_on_a_gpu_are_replayed(model, monkeypatch):
    inputs = as_inputs(model, [TEXTS[0]])
    assert not replay.may_replay(model, inputs)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    assert replay.may_replay(model, inputs)
    large = {name: tensor.repeat(200, 1) for name, tensor in inputs.tensors.items()}
    assert not replay.may_replay(model, Inputs(large, inputs.items * 200))
    assert not replay.may_replay(model, Inputs({"inputs_embeds": inputs.tensors["input_ids"]}, inputs.items))
    monkeypatch.setenv("CLEARHEAD_REPLAY", "0")
    assert not replay.may_replay(model, inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("method", ["balanced-cat", "attn-lrp", "gradient-x-input"])
def test_cuda_graphs_give_the_numbers_of_the_network(method):
    model = clearhead.load(network("bert"), word_piece_tokenizer(), device="cuda")
    expected = [explain_plainly(model, text, method) for text in TEXTS]
    explain_often(model, TEXTS[0], method)
    for text, other in zip(TEXTS, expected, strict=True):
        explanation = clearhead.explain(model, text, method, check=False)
        assert explanation.relevance == pytest.approx(other.relevance, rel=1e-9, abs=1e-12)
    assert None not in replay._REPLAYS[model.network].passes.values()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_failed_recording_leaves_torch_as_it_was():
    ones = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError):
        replay._record(lambda: ones.sum().item() if torch.cuda.is_current_stream_capturing() else ones + 1)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.randn(3, device="cuda").isfinite().all()


@pytest.mark.parametrize("method", ["occlusion", "lime", "trans-att", "random"])
def test_methods_that_read_more_than_gradients_are_not_replayed(model, recorded, monkeypatch, method):
    monkeypatch.setattr(batch, "hold_replays", pytest.fail)
    explain_often(model, TEXTS[0], method)
    assert replay._REPLAYS == {}
