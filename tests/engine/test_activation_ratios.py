"""Ratios φ(x)/x of activation functions."""

import pytest
import torch
import torch.nn.functional as F

from clearhead.engine.activation_ratios import divide_by_input, find_ratio

CALLS = {
    "gelu": (F.gelu, {}),
    "gelu, exact by name": (F.gelu, {"approximate": "none"}),
    "gelu, approximated": (F.gelu, {"approximate": "tanh"}),
    "silu": (F.silu, {}),
    "tanh": (torch.tanh, {}),
    "leaky_relu": (F.leaky_relu, {"negative_slope": 0.2}),
}


@pytest.fixture
def numbers():
    return torch.cat([torch.linspace(-30, 30, 2000, dtype=torch.float64), torch.tensor([1e-9, -1e-9]).double()])


@pytest.mark.parametrize("call", CALLS)
def test_a_ratio_is_the_function_over_its_input(call, numbers):
    function, options = CALLS[call]
    ratio = find_ratio(call.split(",")[0], function, (None,), options)(numbers)
    torch.testing.assert_close(ratio, function(numbers, **options) / numbers, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("call", CALLS)
def test_at_zero_it_is_the_slope(call):
    function, options = CALLS[call]
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(zero, **options), zero)
    ratio = find_ratio(call.split(",")[0], function, (None,), options)(zero.detach())
    # Leaky ReLU has two slopes there: the right one counts.
    assert ratio == pytest.approx(1.0 if call == "leaky_relu" else float(slope), abs=1e-12)


def test_far_below_zero_the_digits_stay():
    x = torch.tensor([-12.0], dtype=torch.float32)
    # Φ(-12), for instance from scipy.stats.norm.cdf.
    assert find_ratio("gelu", F.gelu, (None,), {})(x).item() == pytest.approx(1.776482e-33, rel=1e-5)


def test_functions_without_a_ratio_of_their_own_are_divided(numbers):
    ratio = find_ratio("gelu", lambda x, scale: F.gelu(x) * scale, (None, 2.0), {})(numbers)
    torch.testing.assert_close(ratio, divide_by_input(lambda x: F.gelu(x) * 2, numbers))


@pytest.mark.parametrize("call", CALLS)
def test_in_bfloat16_a_ratio_is_off_by_rounding_alone(call, numbers):
    function, options = CALLS[call]
    rounded = torch.cat([numbers, torch.zeros(1)]).bfloat16()
    find = find_ratio(call.split(",")[0], function, (None,), options)
    # Two roundings: of the function, and of the ratio.
    torch.testing.assert_close(find(rounded).double(), find(rounded.double()), rtol=2**-7, atol=1e-6)
