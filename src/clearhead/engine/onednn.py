"""Linear layers by oneDNN, where torch's own choice for float32 leaves half of the CPU unused.

On x86 CPUs torch multiplies float32 matrices with Intel's MKL, which has AVX-512 kernels for Intel's CPUs only. Torch
also contains oneDNN, which has them for all: docs/decisions/onednn.md has the times.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.environment import allows_onednn

CPU_INFO = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"
MIN_PRODUCTS = 2**21
"""Multiplications of a layer from which oneDNN is faster: a call takes some 30 µs more than torch's own."""
PLAIN_TYPES = (Tensor, nn.Parameter)


class OneDnnLinear(TorchFunctionMode):
    """Computes linear layers with frozen weights by oneDNN."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.linear and can_multiply(args, kwargs):
            return linear(*args)
        return function(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """A linear layer with a gradient for its input only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # A constant, so it need not be saved like an activation.
        ctx.weight = weight
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return linear(gradient, ctx.weight.t()), None, None


def fast_linear_layers(device: torch.device) -> AbstractContextManager[Any]:
    """Compute linear layers inside the context by oneDNN, if that is faster on this CPU."""
    if device.type == "cpu" and is_preferred():
        return OneDnnLinear()
    return nullcontext()


def is_preferred() -> bool:
    """Return whether oneDNN is faster on this CPU, and the user has not switched it off."""
    return allows_onednn() and bool(torch.backends.mkldnn.enabled) and is_faster_here()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return F.linear(x, weight, bias) from oneDNN; the weights get no gradient."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _multiply(x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # What torch's compiler calls for a linear layer; torch has no public function for it.
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def can_multiply(args: Any, kwargs: Any) -> bool:
    """Return whether a call of F.linear is one that oneDNN computes: large, with plain tensors and frozen weights."""
    if kwargs:
        return False
    x, weight, *bias = args
    # In this order because most calls that are refused are too small.
    return x.numel() * len(weight) >= MIN_PRODUCTS and _is_plain(x) and _is_frozen(weight, *bias)


def _is_frozen(weight: Tensor, bias: Tensor | None = None) -> bool:
    return _is_plain(weight) and not weight.requires_grad and (bias is None or not bias.requires_grad)


def _is_plain(tensor: Tensor) -> bool:
    # Subclasses, such as quantised weights, have products of their own.
    is_dense = type(tensor) in PLAIN_TYPES and tensor.layout is torch.strided
    return is_dense and tensor.dtype is torch.float32 and tensor.is_cpu


@cache
def is_faster_here() -> bool:
    """Return whether oneDNN has kernels for this CPU that MKL lacks, and computes what torch computes."""
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    # By the CPU's maker and not by a measurement, so that the numbers of a machine are the same in every run.
    return has_both and torch.backends.cpu.get_cpu_capability() == "AVX512" and not _is_intel() and _agrees()


def _is_intel() -> bool:
    """Return whether the CPU is Intel's, or nothing says whose it is."""
    try:
        return INTEL in CPU_INFO.read_text()
    except OSError:
        return True


def _agrees() -> bool:
    """Return whether a trial gives the product that torch gives: the function may change with torch's version."""
    # Whatever torch takes for its default device and type.
    numbers = torch.arange(20, dtype=torch.float32, device="cpu")
    x, weight, bias = numbers.view(1, 5, 4), numbers.view(5, 4), numbers[:5]
    try:
        return torch.equal(_multiply(x, weight, bias), F.linear(x, weight, bias))
    except (AttributeError, RuntimeError, TypeError):
        return False
