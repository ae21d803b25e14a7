"""Context managers in which networks run: frozen, eager, one thread at a time, and left unchanged."""

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from clearhead.engine.onednn import fast_linear_layers

Item = TypeVar("Item")

# Freezing and hooks change the network itself, so threads take turns. Re-entrant, since the contexts below nest.
NETWORK_LOCK = threading.RLock()


def list_modules(network: nn.Module) -> list[nn.Module]:
    """Return every module once, like `network.modules()` in half the time, level by level."""
    # By id, because a module may be shared by several others.
    modules: dict[int, nn.Module] = {}
    level = [network]
    while level:
        modules.update(zip(map(id, level), level, strict=True))
        level = [child for child in _list_children(level) if id(child) not in modules]
    return list(modules.values())


def _list_children(modules: list[nn.Module]) -> list[nn.Module]:
    return _drop_missing(child for module in modules for child in module._modules.values())


def _list_parameters(modules: list[nn.Module]) -> list[nn.Parameter]:
    """Return the parameters of these modules, without those of their children."""
    return _drop_missing(parameter for module in modules for parameter in module._parameters.values())


def _drop_missing(items: Iterable[Item | None]) -> list[Item]:
    # A module or parameter that was set to None keeps its name.
    return [item for item in items if item is not None]


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without parameter gradients, for one thread at a time; flags are restored at the end."""
    with NETWORK_LOCK:
        modules = list_modules(network)
        # Only what is changed is restored: a module that was in evaluation mode stays in it.
        training = [module for module in modules if module.training]
        trainable = _list_trainable(modules)
        try:
            _set_flags(training, trainable, False)
            yield
        finally:
            _set_flags(training, trainable, True)


def _list_trainable(modules: list[nn.Module]) -> list[nn.Parameter]:
    return [parameter for parameter in _list_parameters(modules) if parameter.requires_grad]


def _set_flags(modules: list[nn.Module], parameters: list[nn.Parameter], value: bool) -> None:
    for module in modules:
        module.training = value
    for parameter in parameters:
        parameter.requires_grad_(value)


@contextmanager
def eager_execution(device: torch.device) -> Iterator[None]:
    """Eager execution with gradients, in the model's own precision."""
    # The compiler's stance belongs to the whole process, so threads take turns here too.
    with NETWORK_LOCK, full_precision_autograd(device), torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def eager_inference(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Frozen and eager without gradients, in the model's own precision, for passes that need only logits."""
    with (
        frozen(network),
        torch.inference_mode(),
        _autocast_off(device),
        torch.compiler.set_stance("force_eager"),
        fast_linear_layers(device),
    ):
        yield


def _autocast_off(device: torch.device) -> torch.autocast:
    # The caller may explain inside of autocast, which would round what the network computes in its own precision.
    return torch.autocast(device.type, enabled=False)


@contextmanager
def full_precision_autograd(device: torch.device) -> Iterator[None]:
    """Gradients on, autocast off."""
    with torch.inference_mode(False), torch.enable_grad(), _autocast_off(device):
        yield


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector."""
    # The thousands of small objects of a trace would trigger it again and again, and on a large heap a full
    # collection takes longer than the trace. Traces leave no cycles behind.
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collect_young_cycles() -> None:
    """Free what the last batch has left in cycles, without a look at older objects."""
    # Some networks leave such cycles, which hold a batch's activations for as long as collections are paused.
    gc.collect(1)
