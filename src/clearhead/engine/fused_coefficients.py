"""Coefficients of balanced passes by fused kernels, where these run and save passes over memory."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import kernels_for_coefficients, try_kernel

HALF_DTYPES = (torch.bfloat16, torch.float16)
NORM_DTYPES = (torch.float32, *HALF_DTYPES)
MAX_WIDTH = 16384
"""Numbers of a row that a kernel holds in registers."""

FusedRule = Callable[[Tensor, Tensor], Tensor | None]
"""Maps an operation's input and the coefficient at its output to that at its input; None if torch has to do it."""


@dataclass(frozen=True)
class FusedNorm:
    """A LayerNorm (`centred`) or RMSNorm over its last axes; without `epsilon` the type's precision is added."""

    axes: int
    weight: Tensor | None
    epsilon: float | None
    centred: bool = False

    def fits(self, x: Tensor) -> bool:
        return self.axes == 1 and x.shape[-1] <= MAX_WIDTH

    def epsilon_for(self, x: Tensor) -> float:
        return torch.finfo(x.dtype).eps if self.epsilon is None else self.epsilon


def fuse_activation(kind: str | None, x: Tensor, coefficient: Tensor) -> Tensor | None:
    """Return coefficient · φ(x)/x of a kind of activation function; None if torch has to compute it."""
    # In float32 the kernel would lose digits where φ(x)/x is near 0, which half precision does not have.
    kernels = kernels_for_coefficients(x, coefficient, HALF_DTYPES)
    if kernels is None or kind is None:
        return None
    return try_kernel(kernels.activation_coefficient, x, coefficient, kind)


def fuse_norm(norm: FusedNorm, x: Tensor, coefficient: Tensor) -> Tensor | None:
    """Return the coefficient at the input of a norm; None if torch has to compute it."""
    kernels = kernels_for_coefficients(x, coefficient, NORM_DTYPES)
    if kernels is None or not norm.fits(x):
        return None
    epsilon = norm.epsilon_for(x)
    return try_kernel(kernels.norm_coefficient, x, coefficient, norm.weight, epsilon, centred=norm.centred)
