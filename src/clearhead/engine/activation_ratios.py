"""Ratios φ(x)/x of activation functions, by which balanced passes multiply coefficients.

GELU and SiLU are x times a function, which is their ratio: it needs no division and has no gap at 0, and on a GPU it
takes less than half of the memory traffic of φ(x)/x.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

Ratio = Callable[[Tensor], Tensor]

# The constants of GELU's approximation, Hendrycks and Gimpel 2016.
TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBIC = 0.044715


def find_ratio(name: str, function: Callable[..., Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ratio:
    """Return φ(x)/x of an elementwise function with φ(0) = 0, from its call; the first argument is x."""
    if name == "silu":
        return torch.sigmoid
    if name == "gelu" and len(args) == 1:
        return GELU_RATIOS[kwargs.get("approximate", "none")]
    return partial(divide_by_input, _bind_options(function, args[1:], kwargs))


def _bind_options(function: Callable[..., Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ratio:
    return lambda x: function(x, *args, **kwargs)


def divide_by_input(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return φ(x)/x, at 0 its limit φ′(0)."""
    nonzero = torch.where(x == 0, _smallest(x.dtype), x)
    return function(nonzero) / nonzero


def _smallest(dtype: torch.dtype) -> float:
    # So small that of φ nothing but the first order is left.
    return float(torch.finfo(dtype).tiny ** 0.5)


def _normal_distribution(x: Tensor) -> Tensor:
    """Return Φ(x), accurate to the last digits also where it is near 0."""
    # One kernel on a GPU; on a CPU only erfc uses its vector units.
    if x.is_cuda:
        distribution: Tensor = torch.special.ndtr(x)
        return distribution
    return torch.erfc(x * -math.sqrt(0.5)).mul_(0.5)


def _tanh_approximation(x: Tensor) -> Tensor:
    # (1 + tanh u)/2 = sigmoid(2u), without the loss of digits where tanh u is near -1.
    return torch.sigmoid((2 * TANH_SCALE) * (x + TANH_CUBIC * x**3))


GELU_RATIOS: Mapping[str, Ratio] = {"none": _normal_distribution, "tanh": _tanh_approximation}
