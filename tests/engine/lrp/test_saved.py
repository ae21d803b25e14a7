"""Saved tensors: known by identity as long as they live, with their in-place writes noticed."""

import gc
from weakref import ref

import pytest
import torch
from helpers.tiny_models import model, tensors

import clearhead
from clearhead import UnsupportedOperation
from clearhead.engine.lrp.kernels import dispatch
from clearhead.engine.lrp.saved import SavedTensors


def test_a_write_in_place_makes_another_activation():
    saved, tensor = SavedTensors(), torch.ones(3)
    saved.set_node(tensor, 1)
    assert saved.node_of(tensor) == 1
    tensor.add_(1)
    assert saved.node_of(tensor) is None
    saved.set_node(tensor, 2)
    assert saved.node_of(tensor) == 2


def test_a_tensor_that_gets_the_id_of_a_dead_one_is_not_taken_for_it():
    saved, ids = SavedTensors(), set()
    reused = 0
    for number in range(200):
        tensor = torch.ones(3)
        reused += id(tensor) in ids
        ids.add(id(tensor))
        assert saved.node_of(tensor) is None
        saved.set_node(tensor, number)
        del tensor
    assert reused


def test_a_tensor_that_only_autograd_holds_stays_known():
    saved, x = SavedTensors(), torch.ones(3, requires_grad=True)
    factor = torch.ones(3)
    saved.set_node(factor, 7)
    product = x * factor
    del factor
    assert saved.node_of(product.grad_fn._saved_other) == 7


def test_two_tapes_do_not_share_what_they_know():
    first, second, tensor = SavedTensors(), SavedTensors(), torch.ones(3)
    first.set_node(tensor, 1)
    assert second.node_of(tensor) is None
    assert not tensor.__dict__


def test_saved_values_that_were_overwritten_are_refused():
    tensor = torch.ones(3)
    saved = SavedTensors().save(tensor)
    tensor.add_(1)
    assert not saved.is_intact
    with pytest.raises(UnsupportedOperation, match="in place"):
        _ = saved.tensor


def test_a_weak_tensor_lives_as_long_as_another_rule_saves_it():
    saved, tensor = SavedTensors(), torch.ones(3)
    weak = saved.save_weakly(tensor)
    assert weak.tensor is None
    strong = saved.save(tensor)
    assert weak.tensor is tensor
    tensor.add_(1)
    assert weak.tensor is None
    del strong
    again = saved.save(tensor)
    assert weak.tensor is None
    assert again.tensor is tensor


def test_a_recomputable_tensor_is_not_held(monkeypatch):
    monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
    saved, source = SavedTensors(), torch.ones(3)
    out = torch.exp(source)
    saved.mark_recomputable(out, torch.exp, source)
    recomputed, alive = saved.save(out), ref(out)
    out.add_(1)
    overwritten = saved.save(out)
    assert overwritten.tensor is out
    del out, overwritten
    assert alive() is None
    assert torch.equal(recomputed.tensor, torch.exp(source))


def test_a_trace_leaves_no_cycles_and_no_attributes_behind():
    explained, batch = model("bert"), tensors("bert")
    clearhead.capture(explained, batch).conservation()
    gc.collect()
    gc.disable()
    try:
        trace = clearhead.capture(explained, batch)
        trace.conservation()
        tape, hidden = ref(trace.forward.tape.saved), trace.forward.hidden_states[0]
        assert not hidden.__dict__
        del trace
        assert tape() is None
    finally:
        gc.enable()
