"""How a network is run: frozen, eager, one thread at a time, and left as it was."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from torch import nn

Found = TypeVar("Found")

# A network carries frozen flags, and hooks when it is traced, so threads take turns.
ONE_AT_A_TIME = threading.RLock()


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without parameter gradients, one thread at a time; every flag goes back to what it was."""
    with ONE_AT_A_TIME:
        modules = list(network.modules())
        training = [module for module in modules if module.training]
        parameters = {one for module in modules for one in module._parameters.values() if one is not None}
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        try:
            for module in training:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            yield
        finally:
            for module in training:
                module.training = True
            for parameter in trainable:
                parameter.requires_grad_(True)


@contextmanager
def plain_execution(device: torch.device) -> Iterator[None]:
    """Eager, with gradients, in the model's own precision, whatever surrounds the call."""
    # The compiler's stance is the whole process's, so threads take turns here too.
    with ONE_AT_A_TIME, plain_types(device), torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def plain_types(device: torch.device) -> Iterator[None]:
    """With gradients, in the types that tensors have, whatever surrounds the call."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        yield


def beside(work: Callable[[], Found], device: torch.device, helper: str = "gradients") -> Callable[[], Found]:
    """Starts work for a GPU that is done outside Python, and answers with the way to wait for its result.

    On a CPU, where two works would share the processors, it is done when asked for.
    """
    if device.type != "cuda":
        return work
    stream = torch.cuda.current_stream(device)

    def on_stream() -> Found:
        with torch.cuda.stream(stream):
            return work()

    return _helper(helper).submit(on_stream).result


def ahead(items: Iterator[Found], device: torch.device, helper: str = "gradients") -> Iterator[Found]:
    """The same items, each of them begun before it is asked for."""

    def begin() -> Callable[[], Found | None]:
        return beside(lambda: next(items, None), device, helper)

    def following(coming: Callable[[], Found | None]) -> Iterator[Found]:
        while (item := coming()) is not None:
            coming = begin()
            yield item

    return following(begin())


@cache
def _helper(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=f"clearhead {name}")


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles, which thousands of short-lived objects would set off again and again.

    A trace leaves no cycles behind; on a large heap a full search takes longer than the trace.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
