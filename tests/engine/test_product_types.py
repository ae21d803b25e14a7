"""Torch's settings decide in which type products are rounded; no GPU is needed to read them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from clearhead.engine import product_types
from clearhead.engine.product_types import find_product_type
from clearhead.engine.retrace import number_precision

MATRICES = torch.backends.cuda.matmul
CUDNN = torch.backends.cudnn


@dataclass
class PlacedModel:
    """A model on a device that this machine may not have."""

    device_type: str
    dtype: torch.dtype = torch.float32
    network: nn.Module = field(default_factory=lambda: nn.Linear(2, 2))

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_type)


@pytest.fixture(autouse=True)
def restored_settings() -> Iterator[None]:
    before = (torch.get_float32_matmul_precision(), CUDNN.allow_tf32)
    yield
    torch.set_float32_matmul_precision(before[0])
    CUDNN.allow_tf32 = before[1]


def test_matrices_on_a_gpu_are_float32_by_default():
    assert find_product_type(PlacedModel("cuda")) is None
    assert number_precision(PlacedModel("cuda")) == torch.finfo(torch.float32).eps


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_matrices_in_tf32_are_known_however_it_was_asked_for(precision):
    torch.set_float32_matmul_precision(precision)
    assert find_product_type(PlacedModel("cuda")) == "tf32"
    assert number_precision(PlacedModel("cuda")) == 2.0**-10


def test_the_older_setting_is_known():
    MATRICES.allow_tf32 = True
    assert find_product_type(PlacedModel("cuda")) == "tf32"


def test_numbers_that_are_not_float32_are_multiplied_as_they_are():
    torch.set_float32_matmul_precision("high")
    assert find_product_type(PlacedModel("cuda", torch.float64)) is None
    assert number_precision(PlacedModel("cuda", torch.float16)) == torch.finfo(torch.float16).eps


def test_convolutions_on_a_gpu_are_in_tf32_unless_that_is_switched_off():
    model = PlacedModel("cuda", network=nn.Sequential(nn.Conv2d(3, 4, 2)))
    CUDNN.allow_tf32 = True
    assert find_product_type(model) == "tf32"
    CUDNN.allow_tf32 = False
    assert find_product_type(model) is None


def test_a_cpu_may_multiply_in_bfloat16():
    assert find_product_type(PlacedModel("cpu")) is None
    torch.set_float32_matmul_precision("medium")
    assert find_product_type(PlacedModel("cpu")) == "bfloat16"
    assert number_precision(PlacedModel("cpu")) == torch.finfo(torch.bfloat16).eps


def test_settings_of_other_devices_are_not_asked():
    torch.set_float32_matmul_precision("medium")
    assert find_product_type(PlacedModel("meta")) is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_versions_of_torch_with_a_common_setting_are_read(monkeypatch, device):
    monkeypatch.setattr(product_types, "_read_setting", lambda *_: None)
    CUDNN.allow_tf32 = False
    model = PlacedModel(device, network=nn.Conv2d(3, 4, 2))
    assert find_product_type(model) is None
    torch.set_float32_matmul_precision("medium")
    assert find_product_type(model) == {"cpu": "bfloat16", "cuda": "tf32"}[device]
