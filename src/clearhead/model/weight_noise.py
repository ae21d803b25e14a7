"""Copies of a model with as much noise in the weights as rounding to eight bits makes."""

import copy
from dataclasses import replace

import torch
from torch import Tensor

from clearhead.model.model import Model

INT8_STEPS = 127
"""Steps of an eight-bit integer on either side of zero."""


def with_weight_noise(model: Model, seed: int) -> Model:
    """Return a copy whose matrices differ by uniform noise as large as the error of rounding each row to eight bits."""
    # Tensors created under inference_mode could never have gradients.
    with torch.inference_mode(False), torch.no_grad():
        network = copy.deepcopy(model.network)
        generator = torch.Generator().manual_seed(seed)
        for weight in network.parameters():
            if _is_stored_rounded(weight):
                weight.add_(_draw_noise(weight, generator))
    return replace(model, network=network, copies={})


def _is_stored_rounded(weight: Tensor) -> bool:
    return weight.dim() > 1 and weight.is_floating_point()


def _draw_noise(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return noise between minus and plus half a step, with as many steps per row as eight bits have."""
    # On the CPU, where a seed draws the same numbers on every machine.
    uniform = torch.rand(weight.shape, generator=generator).to(weight) - 0.5
    return uniform * int8_step(weight)


def int8_step(weight: Tensor) -> Tensor:
    """Return the distance of two eight-bit numbers that reach the largest weight of each row."""
    columns = tuple(range(1, weight.dim()))
    return weight.abs().amax(columns, keepdim=True) / INT8_STEPS
