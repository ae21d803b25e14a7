"""Linear layers by oneDNN: torch's numbers, also for gradients, and only where that is known to be faster."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearhead
from clearhead.engine import onednn
from clearhead.engine.onednn import OneDnnLinear, fast_linear_layers, is_faster_here, linear

CPU = torch.device("cpu")
SHAPES = [(6,), (0, 6), (5, 6), (2, 3, 6), (2, 2, 3, 6)]

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of torch does not contain oneDNN"
)


@pytest.fixture
def layer() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 6), torch.randn(4)


@pytest.fixture
def fast(monkeypatch):
    """Take oneDNN for faster on whatever CPU the tests run, for layers of any size."""
    monkeypatch.setattr(onednn, "is_faster_here", lambda: True)
    monkeypatch.setattr(onednn, "MIN_PRODUCTS", 0)


@pytest.fixture
def calls(monkeypatch) -> list[Tensor]:
    """The inputs of the linear layers that oneDNN computes."""
    inputs = []
    multiply = onednn._multiply

    def record(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        inputs.append(x)
        return multiply(x, weight, bias)

    monkeypatch.setattr(onednn, "_multiply", record)
    return inputs


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_torch(shape, layer):
    x = torch.randn(shape)
    torch.testing.assert_close(linear(x, *layer), F.linear(x, *layer))
    torch.testing.assert_close(linear(x, layer[0]), F.linear(x, layer[0]))


def test_inputs_and_weights_need_not_be_contiguous(layer):
    x = torch.randn(6, 5).t()
    weight = torch.randn(6, 4).t()
    torch.testing.assert_close(linear(x, weight, layer[1]), F.linear(x, weight, layer[1]))


def test_gradients_are_those_of_torch(layer):
    x = torch.randn(2, 3, 6, requires_grad=True)
    direction = torch.randn(2, 3, 4)
    (gradient,) = torch.autograd.grad(linear(x, *layer), x, direction)
    (expected,) = torch.autograd.grad(F.linear(x, *layer), x, direction)
    torch.testing.assert_close(gradient, expected)


def test_the_gradient_has_a_gradient_itself(layer):
    x = torch.randn(3, 6, requires_grad=True)
    direction = torch.zeros(3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(linear(x, *layer), x, direction, create_graph=True)
    row = torch.randn(3, 6)
    (pushed,) = torch.autograd.grad(gradient, direction, row)
    torch.testing.assert_close(pushed, row @ layer[0].t())


@pytest.mark.parametrize(
    "change",
    [
        lambda x, weight: (x.double(), weight.double()),
        lambda x, weight: (x.half(), weight.half()),
        lambda x, weight: (x, weight.requires_grad_()),
        lambda x, weight: (x.to_sparse(), weight),
    ],
    ids=["float64", "float16", "trainable", "sparse"],
)
def test_other_layers_are_left_to_torch(change, layer, fast, calls):
    x, weight = change(torch.randn(3, 6), layer[0])
    expected = F.linear(x, weight)
    with OneDnnLinear():
        out = F.linear(x, weight)
    torch.testing.assert_close(out, expected)
    assert calls == []


def test_weights_of_other_types_are_left_to_torch(layer, fast, calls):
    class Weight(Tensor):
        """A weight that may have products of its own."""

    with OneDnnLinear():
        F.linear(torch.randn(3, 6), layer[0].as_subclass(Weight))
    assert calls == []


def test_small_layers_are_left_to_torch(layer, monkeypatch, fast, calls):
    monkeypatch.setattr(onednn, "MIN_PRODUCTS", 3 * 6 * 4 + 1)
    with OneDnnLinear():
        F.linear(torch.randn(3, 6), layer[0])
    assert calls == []


def test_modules_with_frozen_weights_are_computed_by_onednn(fast, calls):
    module = nn.Linear(6, 4).requires_grad_(False)
    x = torch.randn(3, 6)
    with fast_linear_layers(CPU):
        out = module(x)
    torch.testing.assert_close(out, module(x))
    assert len(calls) == 1


@pytest.mark.parametrize("method", ["attn-lrp", "att-cat", "integrated-gradients", "occlusion"])
def test_explanations_differ_by_rounding_alone(method, monkeypatch, fast, calls):
    model = clearhead.load()
    text = "a joyless , tedious film that never finds its heart"
    found = clearhead.explain(model, text, method=method)
    assert calls
    monkeypatch.setenv("CLEARHEAD_ONEDNN", "0")
    expected = clearhead.explain(model, text, method=method)
    largest = np.abs(expected.relevance).max()
    np.testing.assert_allclose(found.relevance, expected.relevance, atol=1e-4 * largest)
    assert found.check.hidden == pytest.approx(expected.check.hidden, abs=1e-6)


def test_the_user_can_switch_it_off(monkeypatch, fast):
    assert isinstance(fast_linear_layers(CPU), OneDnnLinear)
    monkeypatch.setenv("CLEARHEAD_ONEDNN", "0")
    assert isinstance(fast_linear_layers(CPU), nullcontext)


def test_a_user_who_switched_onednn_off_in_torch_does_not_get_it(fast):
    with torch.backends.mkldnn.flags(enabled=False):
        assert isinstance(fast_linear_layers(CPU), nullcontext)


def test_a_gpu_does_not_use_it(fast):
    assert isinstance(fast_linear_layers(torch.device("cuda")), nullcontext)


class TestChoice:
    """Where oneDNN is chosen: CPUs with AVX-512 that are not Intel's."""

    @pytest.fixture(autouse=True)
    def _without_cache(self, monkeypatch, tmp_path):
        is_faster_here.cache_clear()
        self.cpu_info = tmp_path / "cpuinfo"
        monkeypatch.setattr(onednn, "CPU_INFO", self.cpu_info)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
        yield
        is_faster_here.cache_clear()

    def test_another_maker_with_avx_512(self):
        self.cpu_info.write_text("vendor_id\t: AuthenticAMD\n")
        assert is_faster_here()

    def test_whatever_the_default_device_and_type(self):
        self.cpu_info.write_text("vendor_id\t: AuthenticAMD\n")
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("meta"):
                assert is_faster_here()
        finally:
            torch.set_default_dtype(torch.float32)

    def test_not_intel(self):
        self.cpu_info.write_text("vendor_id\t: GenuineIntel\n")
        assert not is_faster_here()

    def test_not_an_unknown_maker(self):
        assert not is_faster_here()

    def test_not_without_avx_512(self, monkeypatch):
        self.cpu_info.write_text("vendor_id\t: AuthenticAMD\n")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not is_faster_here()

    @pytest.mark.parametrize("change", [lambda *_: torch.zeros(2, 3, 5), lambda *_: torch.ops.mkldnn.no_such_name])
    def test_not_if_torch_changed_the_function(self, change, monkeypatch):
        self.cpu_info.write_text("vendor_id\t: AuthenticAMD\n")
        monkeypatch.setattr(onednn, "_multiply", change)
        assert not is_faster_here()
