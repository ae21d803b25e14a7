"""Which module of a network is running."""

import inspect
from collections.abc import Iterator
from types import FrameType

from torch import nn


def name_running_module(network: nn.Module) -> str:
    """Return the name of the innermost module that is running, from the `self` of the frames on the stack."""
    names: dict[int, str] = {id(module): name for name, module in network.named_modules()}
    for frame in _iterate_frames():
        name = names.get(id(frame.f_locals.get("self")))
        # The network itself has the empty name.
        if name:
            return name
    return type(network).__name__


def _iterate_frames() -> Iterator[FrameType]:
    """Yield the frames on the stack, from the innermost outwards."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
