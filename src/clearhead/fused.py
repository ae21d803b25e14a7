"""When the fused kernels serve: on a GPU, with Triton at work there."""

import logging
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

DEVICES = {"cuda"}
TYPES = (torch.float32, torch.float64)


def kernels_for(relevance: Tensor) -> ModuleType | None:
    """The module of kernels, or None where plain torch does the work."""
    device = relevance.device
    return _kernels(device) if device.type in DEVICES and relevance.dtype in TYPES else None


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    try:
        from clearhead import kernels

        one = torch.ones(1, 1, device=device)
        kernels.quotient(one, one, 1)
    except Exception as error:  # an absent Triton, compiler or driver: whatever it is, plain torch goes on
        logging.getLogger(__name__).info("Fused kernels are not used: %s", error)
        return None
    return kernels
