"""Work done beside the main thread while a GPU is fed, and results fetched from it without holding it up."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def run_in_background(work: Callable[[], T], device: torch.device, helper: str = "gradients") -> Callable[[], T]:
    """Starts work for a GPU that is done outside Python, and answers with the way to wait for its result.

    On a CPU, where two works would share the processors, it is done when asked for.
    """
    if device.type != "cuda":
        return work
    stream = torch.cuda.current_stream(device)

    def on_stream() -> T:
        with torch.cuda.stream(stream):
            return work()

    return _helper(helper).submit(on_stream).result


def prefetch(items: Iterator[T], device: torch.device, helper: str = "gradients") -> Iterator[T]:
    """The same items, each of them begun before it is asked for."""

    def begin() -> Callable[[], T | None]:
        return run_in_background(lambda: next(items, None), device, helper)

    def following(coming: Callable[[], T | None]) -> Iterator[T]:
        while (item := coming()) is not None:
            coming = begin()
            yield item

    return following(begin())


class HostCopy:
    """A tensor on its way to the CPU, where it will be in `copy`.

    What the GPU is given to do later is not waited for.
    """

    def __init__(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        if not tensor.is_cuda:
            self.copy, self._there = tensor.cpu(), None
            return
        self.copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        self.copy.copy_(tensor, non_blocking=True)
        self._there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._there.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        """The copy, now that it is there."""
        if self._there is not None:
            self._there.synchronize()
        return self.copy


def copy_to_host(tensor: Tensor) -> Tensor:
    """On the CPU a tensor that the GPU has finished, an input of the network say, whatever it is at now."""
    if not tensor.is_cuda:
        return tensor.cpu()
    with torch.cuda.stream(_aside(tensor.device)):
        return tensor.cpu()


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@cache
def _helper(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=f"clearhead {name}")
