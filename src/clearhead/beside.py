"""Work done beside the main thread while a GPU is fed: gradients, and the next batch of inputs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Found = TypeVar("Found")


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
