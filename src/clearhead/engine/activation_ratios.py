"""Ratios φ(x)/x of activation functions, by which balanced passes multiply coefficients.

GELU and SiLU are x times a function, which is their ratio: it needs no division and has no gap at 0. Half precision is
widened to float32 where digits would be lost on the way.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Ratio = Callable[[Tensor], Tensor]

# The constants of GELU's approximation, Hendrycks and Gimpel 2016.
TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBIC = 0.044715


def find_ratio(name: str, function: Callable[..., Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ratio:
    """Return φ(x)/x of an elementwise function with φ(0) = 0, from its call; the first argument is x."""
    kind = find_kind(name, args, kwargs)
    if kind is not None:
        return RATIOS[kind]
    return partial(divide_by_input, _bind_options(function, args[1:], kwargs))


def find_kind(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of a function's ratio in closed form: "none" or "tanh" for GELU, "silu"; None if it has none."""
    if name == "silu":
        return name
    if name == "gelu" and len(args) == 1:
        return str(kwargs.get("approximate", "none"))
    return None


def _bind_options(function: Callable[..., Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ratio:
    return lambda x: function(x, *args, **kwargs)


def divide_by_input(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return φ(x)/x, at 0 its limit φ′(0)."""
    # Half precision cannot represent numbers that are small enough for a limit.
    wide = _widen(x)
    nonzero = torch.where(wide == 0, _smallest(wide.dtype), wide)
    return function(nonzero) / nonzero


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _smallest(dtype: torch.dtype) -> float:
    # So small that of φ nothing but the first order is left.
    return float(torch.finfo(dtype).tiny ** 0.5)


def _normal_distribution(x: Tensor) -> Tensor:
    """Return Φ(x), accurate to the last digits also where it is near 0."""
    if x.dtype == torch.bfloat16:
        return _divide_gelu(x, "none")
    return torch.erfc(_widen(x) * -math.sqrt(0.5)).mul_(0.5)


def _tanh_approximation(x: Tensor) -> Tensor:
    if x.dtype == torch.bfloat16:
        return _divide_gelu(x, "tanh")
    wide = _widen(x)
    # (1 + tanh u)/2 = sigmoid(2u), without the loss of digits where tanh u is near -1.
    return torch.sigmoid((2 * TANH_SCALE) * (wide + TANH_CUBIC * wide**3))


def _divide_gelu(x: Tensor, approximate: str) -> Tensor:
    """Return GELU(x)/x in bfloat16, which has the range of float32: on a GPU with a third of the memory traffic."""
    ratio = F.gelu(x, approximate=approximate).div_(x)
    # 0/0 is the only division without a result.
    return ratio.nan_to_num_(nan=0.5, posinf=math.inf, neginf=-math.inf)


RATIOS: Mapping[str, Ratio] = {"none": _normal_distribution, "tanh": _tanh_approximation, "silu": torch.sigmoid}
"""Ratios in closed form; GELU's by torch's names of its approximations."""
