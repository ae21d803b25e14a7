"""Decides whether and which fused kernels run: on a GPU on which Triton works."""

import logging
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

DEVICES = {"cuda"}
# Up to this many rows, launching the kernels of a layer takes longer than running them.
MAX_FEW_ROWS = 512
# Relevance per unit overflows in float16.
DOT_DTYPES = (torch.float32, torch.bfloat16)
RELEVANCE_DTYPES = (torch.float32, torch.float64)


def on_gpu(tensor: Tensor) -> bool:
    """Return whether a tensor is on a device where memory is scarcer than time."""
    return tensor.device.type in DEVICES


def kernels_for(relevance: Tensor) -> ModuleType | None:
    """Return the library of kernels, or None if plain torch has to do the work."""
    if on_gpu(relevance) and relevance.dtype in RELEVANCE_DTYPES:
        return _load_kernels(relevance.device)
    return None


def kernels_for_coefficients(x: Tensor, coefficient: Tensor, dtypes: Container[torch.dtype]) -> ModuleType | None:
    """Return the library of kernels if both tensors are alike and of one of these types, else None."""
    if on_gpu(x) and x.dtype in dtypes and _are_alike(x, coefficient):
        return _load_kernels(x.device)
    return None


def _are_alike(x: Tensor, coefficient: Tensor) -> bool:
    """Return whether two tensors have the same numbers at the same places of their memory."""
    are_contiguous = x.is_contiguous() and coefficient.is_contiguous()
    return are_contiguous and x.shape == coefficient.shape and x.dtype is coefficient.dtype


def has_few_rows(x: Tensor) -> bool:
    """Return whether a layer's input is so small that launching kernels takes longer than running them."""
    return x.numel() <= MAX_FEW_ROWS * x.shape[-1]


def dot_precision(x: Tensor, relevance: Tensor) -> str | None:
    """Return the precision in which kernels with matrix products multiply, or None if they do not take these dtypes."""
    if relevance.dtype is not torch.float32 or x.dtype not in DOT_DTYPES:
        return None
    if x.dtype is torch.bfloat16 or allows_tf32():
        return "tf32"
    return "ieee"


def allows_tf32() -> bool:
    """Return whether the user lets torch multiply in tf32; newer versions of torch have a setting of their own."""
    settings = torch.backends.cuda.matmul
    precision = getattr(settings, "fp32_precision", None)
    if precision:
        return bool(precision == "tf32")
    return bool(settings.allow_tf32)


def try_kernel(kernel: Callable[..., Result], *args: Any, **options: Any) -> Result | None:
    """Return the result of a kernel, or None if this GPU cannot run it, so that plain torch has to do the work.

    A kernel that fails is not tried again for tensors with the width, dtype and device of its second argument.
    """
    # Nearly always empty, which saves building the key for every launch.
    if _FAILED and _kernel_case(kernel, args[1]) in _FAILED:
        return None
    try:
        return kernel(*args, **options)
    except Exception as error:
        _raise_out_of_memory(error)
        # Too little shared memory, a compiler error: whatever it is, plain torch gives the same result.
        logging.getLogger(__name__).warning("A fused kernel (%s) is not used: %s", kernel.__name__, error)
        _FAILED.add(_kernel_case(kernel, args[1]))
        return None


_FAILED: set[tuple[Any, ...]] = set()


def _raise_out_of_memory(error: Exception) -> None:
    """Raise torch.OutOfMemoryError if this is what the error says."""
    # Plain torch needs more memory: the caller has to make the batch smaller. Triton has no error of its own for a full
    # GPU, and says "Triton Error [CUDA]: out of memory".
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
        raise torch.OutOfMemoryError(str(error)) from error


def _kernel_case(kernel: Callable[..., Any], tensor: Tensor) -> tuple[Any, ...]:
    return kernel, tensor.shape[-1], tensor.dtype, tensor.device


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Make a tensor's GPU the current one, on which Triton launches kernels."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def _load_kernels(device: torch.device) -> ModuleType | None:
    """Import the kernels and run one of them as a trial."""
    try:
        # Imported here, because Triton is not installed everywhere.
        from clearhead.engine.lrp.kernels import library

        tensor = torch.ones(1, 1, device=device)
        with on_device_of(tensor):
            library.divide(tensor, tensor, 1)
    except Exception as error:
        # Errors are not cached: the kernels are tried again when there is memory.
        _raise_out_of_memory(error)
        # Triton, a compiler or a driver is missing: whatever it is, plain torch does the work.
        logging.getLogger(__name__).info("Fused kernels are not used: %s", error)
        return None
    return library
