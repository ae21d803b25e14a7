"""When the fused kernels serve: on a GPU, with Triton at work there."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")

DEVICES = {"cuda"}
FEW = 512
# float16 does not reach as far as relevance per unit does.
DOTS = (torch.float32, torch.bfloat16)
TYPES = (torch.float32, torch.float64)


def on_gpu(tensor: Tensor) -> bool:
    """Whether memory is dearer than work where this tensor lies."""
    return tensor.device.type in DEVICES


def kernels_for(relevance: Tensor) -> ModuleType | None:
    """The module of kernels, or None where plain torch does the work."""
    return _kernels(relevance.device) if on_gpu(relevance) and relevance.dtype in TYPES else None


def few_rows(x: Tensor) -> bool:
    """Whether a layer has so little to do that launching kernels takes longer than running them."""
    return x.numel() <= FEW * x.shape[-1]


def precision_of_dots(x: Tensor, relevance: Tensor) -> str | None:
    """How kernels with matrix products of their own multiply such tensors; None where they do not take them."""
    if relevance.dtype is not torch.float32 or x.dtype not in DOTS:
        return None
    products = torch.backends.cuda.matmul
    known = getattr(products, "fp32_precision", None) or "tf32" * products.allow_tf32
    return "tf32" if known == "tf32" or x.dtype is torch.bfloat16 else "ieee"


def try_kernel(kernel: Callable[..., Found], *args: Any, **options: Any) -> Found | None:
    """What a kernel gives, or None where this GPU cannot run it, so that plain torch must do the work.

    What fails once for tensors as wide as the second argument is not tried for such again.
    """
    if _UNFIT and _case(kernel, args[1]) in _UNFIT:
        return None
    try:
        return kernel(*args, **options)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # too little shared memory, a compiler's complaint: whatever it is, there is another way
        logging.getLogger(__name__).warning("A fused kernel (%s) is not used: %s", kernel.__name__, error)
        _UNFIT.add(_case(kernel, args[1]))
        return None


_UNFIT: set[tuple[Any, ...]] = set()


def _case(kernel: Callable[..., Any], tensor: Tensor) -> tuple[Any, ...]:
    return kernel, tensor.shape[-1], tensor.dtype, tensor.device


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Kernels run on the current GPU: makes that the one where the tensor lies."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    try:
        from clearhead.engine.lrp import kernels

        one = torch.ones(1, 1, device=device)
        with on_device_of(one):
            kernels.quotient(one, one, 1)
    except Exception as error:  # an absent Triton, compiler or driver: whatever it is, plain torch goes on
        logging.getLogger(__name__).info("Fused kernels are not used: %s", error)
        return None
    return kernels
