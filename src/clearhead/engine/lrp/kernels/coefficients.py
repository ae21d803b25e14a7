"""Coefficients of balanced passes behind norms and activation functions, in one pass over memory each.

Numbers are computed in float32 whatever their type. Every tensor is contiguous.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.elementwise import BLOCK, WARPS
from clearhead.engine.lrp.kernels.launch import Launch, ceil_divide, power_of_two


@Launch
@triton.jit
def _norm_coefficient(
    x,
    coefficient,
    weight,
    result,
    epsilon,
    WIDTH: tl.constexpr,
    CENTRED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """result = weight · coefficient / √(mean x² + epsilon) of a row; if CENTRED, x and the result less their means."""
    column = tl.arange(0, BLOCK)
    mask = column < WIDTH
    offset = tl.program_id(0).to(tl.int64) * WIDTH + column
    value = tl.load(x + offset, mask, 0.0).to(tl.float32)
    scaled = tl.load(coefficient + offset, mask, 0.0).to(tl.float32)
    if WEIGHTED:
        scaled *= tl.load(weight + column, mask, 0.0).to(tl.float32)
    if CENTRED:
        # Masked elements stay 0, so that they do not count in the variance.
        value = tl.where(mask, value - tl.sum(value, 0) / WIDTH, 0.0)
        scaled -= tl.sum(scaled, 0) / WIDTH
    deviation = tl.sqrt(tl.sum(value * value, 0) / WIDTH + epsilon)
    tl.store(result + offset, (scaled / deviation).to(result.dtype.element_ty), mask)


@Launch
@triton.jit
def _activation_coefficient(x, coefficient, result, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """result = coefficient · φ(x)/x."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    value = tl.load(x + offset, mask, 0.0).to(tl.float32)
    if KIND == "silu":
        ratio = tl.sigmoid(value)
    elif KIND == "tanh":
        # (1 + tanh u)/2 = sigmoid(2u), with u = √(2/π) · (x + 0.044715 x³).
        ratio = tl.sigmoid(1.5957691216057308 * (value + 0.044715 * value * value * value))
    else:
        ratio = 0.5 * (1.0 + tl.erf(0.7071067811865476 * value))
    scaled = tl.load(coefficient + offset, mask, 0.0).to(tl.float32) * ratio
    tl.store(result + offset, scaled.to(result.dtype.element_ty), mask)


def norm_coefficient(x: Tensor, coefficient: Tensor, weight: Tensor | None, epsilon: float, *, centred: bool) -> Tensor:
    """Return the coefficient at the input of a LayerNorm (`centred`) or RMSNorm whose deviation is held constant."""
    width = x.shape[-1]
    result = torch.empty_like(coefficient)
    # Triton needs a pointer even if the kernel does not use it.
    weight_or_any = x if weight is None else weight
    _norm_coefficient(
        (x.numel() // width, 1),
        x,
        coefficient,
        weight_or_any,
        result,
        epsilon,
        WIDTH=width,
        CENTRED=centred,
        WEIGHTED=weight is not None,
        BLOCK=power_of_two(width),
        num_warps=WARPS,
    )
    return result


def activation_coefficient(x: Tensor, coefficient: Tensor, kind: str) -> Tensor:
    """Return the coefficient at the input of GELU ("none", or "tanh" for its approximation) or SiLU ("silu")."""
    result = torch.empty_like(coefficient)
    count = x.numel()
    grid = (ceil_divide(count, BLOCK), 1)
    _activation_coefficient(grid, x, coefficient, result, count, KIND=kind, BLOCK=BLOCK, num_warps=WARPS)
    return result
