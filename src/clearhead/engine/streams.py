"""Background work that keeps a GPU busy, and copies to the host that do not wait for queued kernels."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Condition, get_ident
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
LONGEST_PAUSE = 0.1
"""Seconds that background work waits for launches, which may go on for long when nothing is traced yet."""


class Launches:
    """The threads that launch kernels at the moment.

    Python runs one thread at a time: background work that takes turns with the launches of thousands of kernels would
    let the GPU run out of them. It waits until the launching thread waits for the GPU.
    """

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._changed = Condition()

    @contextmanager
    def started(self, device: torch.device) -> Iterator[None]:
        """Launch kernels for a device; background work waits if it is a GPU."""
        if device.type != "cuda":
            yield
            return
        self._set_launching(True)
        try:
            yield
        finally:
            self._set_launching(False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the GPU; background work goes on meanwhile."""
        if get_ident() not in self._threads:
            yield
            return
        self._set_launching(False)
        try:
            yield
        finally:
            self._set_launching(True)

    def _set_launching(self, is_launching: bool) -> None:
        with self._changed:
            self._threads.discard(get_ident())
            if is_launching:
                self._threads.add(get_ident())
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no thread launches kernels, but not longer than `LONGEST_PAUSE`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._threads, LONGEST_PAUSE)


LAUNCHES = Launches()


def run_in_background(work: Callable[[], T], device: torch.device, helper: str = "gradients") -> Callable[[], T]:
    """Start work for a GPU on a helper thread and return a function that waits for its result.

    On a CPU two threads would compete for the cores, so the work is done when the function is called.
    """
    if device.type != "cuda":
        return work
    # A new thread starts on the default stream: use the caller's, so that kernels run in the order of their launch.
    stream = torch.cuda.current_stream(device)

    def run_on_stream() -> T:
        with torch.cuda.stream(stream):
            return work()

    return _executor(helper).submit(run_on_stream).result


def prefetch(items: Iterator[T], device: torch.device, helper: str = "gradients") -> Iterator[T]:
    """Yield the same items, each computed in the background before it is asked for."""

    def start_next() -> Callable[[], T | None]:
        return run_in_background(lambda: next(items, None), device, helper)

    def yield_items(wait: Callable[[], T | None]) -> Iterator[T]:
        item = wait()
        # None marks the end, so items must not be None.
        while item is not None:
            wait = start_next()
            yield item
            item = wait()

    # The first item is started here, not when the generator is first advanced.
    return yield_items(start_next())


class HostCopy:
    """A copy of a tensor to the CPU; `copy` holds the values once `wait` has returned.

    Waits for the kernels that were queued before the copy, not for those queued later.
    """

    def __init__(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        self._event: torch.cuda.Event | None = None
        if not tensor.is_cuda:
            self.copy = tensor.cpu()
            return
        self.copy = _copy_to_pinned(tensor)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        """Wait until the copy has arrived and return it."""
        if self._event is not None:
            with LAUNCHES.paused():
                self._event.synchronize()
        return self.copy


def _copy_to_pinned(tensor: Tensor) -> Tensor:
    """Queue a copy to the CPU, which holds the values once the stream has come so far."""
    # Only copies to pinned memory are asynchronous.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


def copy_to_host(tensor: Tensor) -> Tensor:
    """Copy a finished tensor, such as an input, on a side stream, without waiting for queued kernels."""
    if not tensor.is_cuda:
        return tensor.cpu()
    with torch.cuda.stream(_side_stream(tensor.device)):
        return tensor.cpu()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@cache
def _executor(name: str) -> ThreadPoolExecutor:
    # One worker: the items of an iterator must be computed in order.
    return ThreadPoolExecutor(1, thread_name_prefix=f"clearhead {name}")
