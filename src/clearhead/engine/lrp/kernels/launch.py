"""Launching kernels without asking Triton each time which of its compiled versions serves."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from triton.compiler import CompiledKernel

MOST = 4096
"""Cases that are remembered: every length of the inputs is one."""


class Launch:
    """A kernel that remembers what it was compiled to.

    That depends on types, alignment, numbers and constants alone. To find it takes Triton longer than a small kernel
    runs.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.known: dict[Any, tuple[Callable[..., None], list[Any]]] = {}

    def __call__(self, grid: tuple[int, int], *args: Any, **constants: Any) -> None:
        given: list[Any] = []
        sorts: list[Any] = [grid]
        for one in args:
            if isinstance(one, Tensor):
                # As an address: of a tensor Triton asks the driver where it lies.
                given.append(one.data_ptr())
                sorts += (one.dtype, one.get_device(), given[-1] % 16)
            else:
                given.append(one)
                sorts.append(one)
        key = (*sorts, *constants.values())
        found = self.known.get(key)
        if found:
            launch, named = found
            launch(*given, *named)
            return
        compiled = self.kernel[grid](*args, **constants)
        if len(self.known) >= MOST:
            self.known.clear()
        if isinstance(compiled, CompiledKernel):
            self.known[key] = compiled[*grid, 1], [constants[name] for name in self.kernel.arg_names[len(args) :]]


# Triton has both of these, but takes microseconds for them.


def pieces(whole: int, size: int) -> int:
    """How many pieces of a size cover the whole."""
    return -(-whole // size)


def power_of_two(least: int) -> int:
    """The next power of two; none for nothing."""
    return 1 << (least - 1).bit_length() if least else 0
