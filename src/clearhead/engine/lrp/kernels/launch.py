"""Launches Triton kernels by a cache of compiled versions, since Triton's look-up is slower than a small kernel."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from triton.compiler import CompiledKernel

# Every length of the inputs is another case.
MAX_CACHED_CASES = 4096


class Launch:
    """A kernel with a cache of its compiled versions.

    Which version Triton compiles depends only on dtypes, alignment, numbers and constants, which are the key.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._compiled: dict[Any, tuple[Callable[..., None], list[Any]]] = {}

    def __call__(self, grid: tuple[int, int], *args: Any, **constants: Any) -> None:
        values: list[Any] = []
        properties: list[Any] = [grid]
        for argument in args:
            if isinstance(argument, Tensor):
                # Passed as an address: for a tensor, Triton asks the driver where it is.
                address = argument.data_ptr()
                values.append(address)
                # Triton compiles aligned pointers differently.
                properties += (argument.dtype, argument.get_device(), address % 16)
            else:
                values.append(argument)
                properties.append(argument)
        key = (*properties, *constants.values())
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compile_and_launch(key, grid, args, constants)
            return
        launch, constant_values = compiled
        launch(*values, *constant_values)

    def _compile_and_launch(self, key: Any, grid: tuple[int, int], args: Any, constants: dict[str, Any]) -> None:
        compiled = self.kernel[grid](*args, **constants)
        if len(self._compiled) >= MAX_CACHED_CASES:
            # All at once: which cases will come again is unknown.
            self._compiled.clear()
        # The interpreter compiles nothing.
        if isinstance(compiled, CompiledKernel):
            names = self.kernel.arg_names[len(args) :]
            self._compiled[key] = compiled[*grid, 1], [constants[name] for name in names]


# Triton has both of these functions, but they take microseconds there.


def ceil_divide(total: int, size: int) -> int:
    """Return how many pieces of a size cover a total."""
    return -(-total // size)


def power_of_two(minimum: int) -> int:
    """Return the smallest power of two that is at least `minimum`; 0 for 0."""
    if minimum == 0:
        return 0
    return 1 << (minimum - 1).bit_length()
