"""How a network is run: frozen, eager, one thread at a time, and left as it was."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# A network carries frozen flags, and hooks when it is traced, so threads take turns.
NETWORK_LOCK = threading.RLock()


def list_modules(network: nn.Module) -> list[nn.Module]:
    """Every module once: what `network.modules()` gives, in half the time."""
    found: dict[int, nn.Module] = {}
    level = [network]
    while level:
        found.update(zip(map(id, level), level, strict=True))
        level = [
            one for module in level for one in module._modules.values() if one is not None and id(one) not in found
        ]
    return list(found.values())


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without parameter gradients, one thread at a time; every flag goes back to what it was."""
    with NETWORK_LOCK:
        modules = list_modules(network)
        training = [module for module in modules if module.training]
        parameters = [one for module in modules for one in module._parameters.values() if one is not None]
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
def eager_execution(device: torch.device) -> Iterator[None]:
    """Eager, with gradients, in the model's own precision, whatever surrounds the call."""
    # The compiler's stance is the whole process's, so threads take turns here too.
    with NETWORK_LOCK, full_precision_autograd(device), torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def eager_inference(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Frozen, eager, without gradients, in the model's own precision: for passes that give logits only."""
    with (
        frozen(network),
        torch.inference_mode(),
        torch.autocast(device.type, enabled=False),
        torch.compiler.set_stance("force_eager"),
    ):
        yield


@contextmanager
def full_precision_autograd(device: torch.device) -> Iterator[None]:
    """With gradients, in the types that tensors have, whatever surrounds the call."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def gc_paused() -> Iterator[None]:
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
