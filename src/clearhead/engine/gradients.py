"""The way down by autograd: gradients of the explained score at the activations of a forward pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.engine.context import full_precision_autograd
from clearhead.engine.forward import ForwardPass


@dataclass(frozen=True)
class Gradients:
    """Gradients of the target's score, of everything at once."""

    attentions: list[Tensor]
    hidden_states: list[Tensor]
    block_inputs: list[Tensor]
    leaf: Tensor


class BlockGradients(NamedTuple):
    """Gradients of one block's map, input and output."""

    attention: Tensor
    before: Tensor
    after: Tensor


def compute_gradients(forward: ForwardPass, direction: Tensor) -> Gradients | None:
    """Along a direction of the output, in one walk; None where the output does not depend on the input."""
    inside = [*forward.attentions, *forward.hidden_states, *forward.block_inputs] if forward.has_blocks else []
    tensors = list({id(tensor): tensor for tensor in [*inside, forward.leaf]}.values())
    parts = dict(zip(map(id, tensors), _pulled(forward.output, direction, tensors), strict=True))
    leaf = parts[id(forward.leaf)]
    if leaf is None:
        return None

    def of(several: list[Tensor]) -> list[Tensor]:
        return [_present(parts[id(tensor)], tensor) for tensor in several]

    if not forward.has_blocks:
        return Gradients([], [], [], leaf)
    return Gradients(of(forward.attentions), of(forward.hidden_states), of(forward.block_inputs), leaf)


def gradients_by_block(forward: ForwardPass, direction: Tensor) -> Iterator[BlockGradients]:
    """The same in steps, from the last block to the first, where blocks form a chain."""
    made, gradient = forward.output, direction
    for attention, before, after in reversed(forward.chain):
        (at_output,) = vjp(made, gradient, [after])
        steep, gradient = vjp(after, at_output, [attention, before])
        made = before
        yield BlockGradients(steep, gradient, at_output)


def collect_gradients(forward: ForwardPass, blocks: list[BlockGradients]) -> Gradients:
    """All gradients, from what the walk gave block by block."""
    attentions, inputs, outputs = (list(column[::-1]) for column in zip(*blocks, strict=True))
    (leaf,) = vjp(forward.block_inputs[0], inputs[0], [forward.leaf])
    return Gradients(attentions, [inputs[0], *outputs], inputs, leaf)


def vjp(made: Tensor, gradient: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """The gradient that arrived at `made`, at activations below it."""
    if tensors[0] is made:
        return [gradient]
    return [_present(part, tensor) for part, tensor in zip(_pulled(made, gradient, tensors), tensors, strict=True)]


def _pulled(made: Tensor, gradient: Tensor, tensors: list[Tensor]) -> tuple[Tensor | None, ...]:
    with full_precision_autograd(made.device):
        return torch.autograd.grad(made, tensors, gradient, retain_graph=True, allow_unused=True)


def _present(part: Tensor | None, tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if part is None else part
