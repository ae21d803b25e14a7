"""The attribution loop that explain, compare and evaluate share: batches, memory guard, targets, refusals."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import shared_model, tensors

import clearhead
from clearhead.attribution import batch as loop
from clearhead.attribution.batch import (
    AttributionRequest,
    attribute_batch,
    attribute_batches,
    share_gradients,
    works_blockwise,
)
from clearhead.attribution.batch_sizes import Batch, make_batches
from clearhead.attribution.method import METHODS, method, parse_method
from clearhead.attribution.names import CONTROL_METHODS
from clearhead.data.task import Example
from clearhead.engine import memory
from clearhead.engine.blockwise import capture_blockwise
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.evaluation.explained import explain_examples
from clearhead.model.inputs import as_inputs, encode_all

TEXTS = ["a good film", "the dull film is not good", "bad", "a film is not good"]
EXAMPLES = [Example(str(number), text, number % 3) for number, text in enumerate(TEXTS)]


def specs_of(*names):
    return [parse_method(name) for name in names]


def encode_texts(model):
    return encode_all(model, TEXTS)


def test_batches_are_sorted_by_length(text):
    batches = list(make_batches(text, encode_texts(text), 2))
    assert [list(batch.indices) for batch in batches] == [[2, 0], [3, 1]]
    assert [batch.inputs.items[0].text for batch in batches] == ["bad", "a film is not good"]


def test_results_come_with_the_index_of_their_input(text):
    request = AttributionRequest(text, specs_of("att-cat"))
    results = dict(attribute_batches(request, make_batches(text, encode_texts(text), 2)))
    assert {index: result[0]["target"].text for index, result in results.items()} == dict(enumerate(TEXTS))


def test_targets_of_one_trace_are_explained_together(text):
    def expand(trace, indices):
        rows = len(indices)
        return {(clearhead.Target(0),) * rows: ["first"], (clearhead.Target(2),) * rows: ["last", "also last"]}

    request = AttributionRequest(text, specs_of("att-cat"), expand_targets=expand)
    ((explanations,), *_) = attribute_batch(request, Batch(range(4), as_inputs(text, TEXTS)))
    assert list(explanations) == ["first", "last", "also last"]
    assert explanations["last"] is explanations["also last"]
    alone = clearhead.explain(text, TEXTS[0], "att-cat", target=2)
    np.testing.assert_allclose(explanations["last"].relevance, alone.relevance, rtol=1e-9)


def test_a_refusal_raises_unless_it_is_collected(text):
    specs = specs_of("decoded-gradcam", "att-cat")
    batch = Batch(range(4), as_inputs(text, TEXTS))
    with pytest.raises(UnsupportedModel, match="lm_head"):
        attribute_batch(AttributionRequest(text, specs), batch)
    refused = {}
    results = attribute_batch(AttributionRequest(text, specs, refused=refused), batch)
    assert list(refused) == ["decoded-gradcam"] and "lm_head" in refused["decoded-gradcam"]
    assert [[len(explanations) for explanations in result] for result in results] == [[0, 1]] * 4


def count_calls(monkeypatch, name):
    """Count the rows of every call of a function that captures traces."""
    rows = []
    original = getattr(loop, name)

    def counted(model, inputs, targets, **options):
        rows.append(len(inputs))
        return original(model, inputs, targets, **options)

    monkeypatch.setattr(loop, name, counted)
    return rows


@pytest.mark.parametrize(
    ("names", "captured", "blockwise"),
    [(["trans-att", "random"], [], [1] * 4), (["trans-att", "att-cat"], [1] * 4, [])],
)
def test_evaluation_has_the_memory_guard(text, monkeypatch, names, captured, blockwise):
    needs = ["prediction", "label"]
    fitting = explain_examples(text, EXAMPLES, specs_of(*names), needs)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    whole_traces = count_calls(monkeypatch, "capture")
    block_traces = count_calls(monkeypatch, "capture_blockwise")
    guarded = explain_examples(text, EXAMPLES, specs_of(*names), needs)
    assert (whole_traces, block_traces) == (captured, blockwise)
    assert list(guarded.cases) == names and not guarded.refused
    for name in names:
        for case, fitting_case in zip(guarded.cases[name], fitting.cases[name], strict=True):
            for need in needs:
                expected = fitting_case.explanations[need]
                np.testing.assert_allclose(case.explanations[need].relevance, expected.relevance, rtol=1e-6, atol=1e-9)


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
    # Another program has taken the memory, or a library of CUDA's asks for it.
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", FULL, ids=["torch", "cuda", "cublas", "cpu", "python"])
def test_a_batch_that_runs_out_of_memory_is_halved(text, monkeypatch, error):
    expected = clearhead.explain(text, TEXTS, "att-cat")
    rows = []
    original = loop.capture

    def limited(model, inputs, targets, **options):
        rows.append(len(inputs))
        if len(inputs) > 1:
            raise error
        return original(model, inputs, targets, **options)

    monkeypatch.setattr(loop, "capture", limited)
    explanations = clearhead.explain(text, TEXTS, "att-cat")
    assert rows == [4, 2, 1, 1, 2, 1, 1]
    for explanation, unlimited in zip(explanations, expected, strict=True):
        np.testing.assert_allclose(explanation.relevance, unlimited.relevance, rtol=1e-9)


def test_other_errors_of_torch_are_not_taken_for_a_full_memory(text, monkeypatch):
    def broken(model, inputs, targets, **options):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(loop, "capture", broken)
    with pytest.raises(RuntimeError, match="illegal"):
        clearhead.explain(text, TEXTS, "att-cat")
    monkeypatch.setattr(loop, "fits_in_memory", lambda model, inputs: False)
    with pytest.raises(RuntimeError, match="illegal"):
        clearhead.explain(text, TEXTS[0], "att-cat")


def test_an_input_that_runs_out_of_memory_goes_block_by_block_or_fails(text, monkeypatch):
    def full(model, inputs, targets, **options):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(loop, "capture", full)
    blocks = count_calls(monkeypatch, "capture_blockwise")
    assert len(clearhead.explain(text, TEXTS, "trans-att")) == 4
    assert blocks == [1] * 4
    with pytest.raises(BadInput, match="does not fit into the memory of cpu, even by itself"):
        clearhead.explain(text, TEXTS, "att-cat")


@pytest.mark.parametrize(
    ("name", "blockwise"),
    [("trans-att", True), ("trans-att:weight=attention", False), ("att-cat", False), ("random:seed=3", True)],
)
def test_a_method_tells_whether_it_works_block_by_block(name, blockwise):
    assert works_blockwise(parse_method(name)) == blockwise


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_noise_is_the_same_block_by_block(family):
    spec = parse_method("random")
    at_once = spec(clearhead.capture(shared_model(family), tensors(family)))
    blocks = spec(capture_blockwise(shared_model(family), tensors(family)))
    torch.testing.assert_close(blocks.relevance_BT, at_once.relevance_BT, rtol=0, atol=0)


def test_gradients_are_kept_for_methods_that_read_them():
    assert share_gradients(specs_of("trans-att", "att-cat"))
    assert not share_gradients(specs_of("trans-att", "rollout", "occlusion", "integrated-gradients"))


def test_methods_run_in_the_order_that_shares_work(text, monkeypatch):
    started = []
    original = loop.start_explanations

    def noted(trace, specs, refused):
        started.extend(spec.text for spec in specs)
        return original(trace, specs, refused)

    monkeypatch.setattr(loop, "start_explanations", noted)
    names = ["rollout", "gradient", "trans-att", "random", "att-cat", "trans-att:weight=attention"]
    assert list(clearhead.compare(text, "a good film", names)) == names
    assert started == ["trans-att:weight=attention", "trans-att", "gradient", "att-cat", "rollout", "random"]


def test_only_random_is_a_control_and_averages_seeds():
    controls = {name: entry.seeds for name, entry in METHODS.items() if entry.is_control}
    assert controls == {"random": 20}
    assert tuple(controls) == CONTROL_METHODS
    assert {entry.seeds for name, entry in METHODS.items() if name != "random"} == {1}


def test_a_method_cannot_need_what_a_trace_does_not_have():
    with pytest.raises(ValueError, match=r"Invalid needs: dreams\. Available: attention, gradients, relevance"):
        method(paper="none", signed=False, class_specific=False, needs=("dreams",))


def test_former_option_names_are_replaced():
    assert parse_method("occlusion:absent=pad").options == {"replacement": "pad"}
    with pytest.raises(BadOption, match="replacement"):
        parse_method("occlusion:absent=pad,replacement=mask")


def test_overflow_may_be_given_by_its_former_name(text):
    long_text = "a film is not good " * 40
    current = clearhead.explain(text, long_text, "rollout", overflow="truncate")
    former = clearhead.compare(text, long_text, ["rollout"], long="truncate")["rollout"]
    np.testing.assert_array_equal(current.relevance, former.relevance)
    with pytest.raises(BadOption, match="two names of one option"):
        clearhead.explain(text, long_text, "rollout", overflow="error", long="truncate")
    with pytest.raises(BadOption, match="error, truncate, windows"):
        clearhead.explain(text, long_text, "rollout", overflow="cut")


def test_explanations_of_one_trace_share_nothing_that_can_be_changed(text):
    first, second = clearhead.compare(text, TEXTS[0], ["att-cat", "cat"]).values()
    first.special[:] = True
    first.diagnostics["own"] = 1
    first.options["own"] = 1
    assert not second.special.all()
    assert "own" not in second.diagnostics and "own" not in second.options
