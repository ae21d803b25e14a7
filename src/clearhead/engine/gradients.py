"""Autograd gradients of the explained score at the activations of a forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.engine.backward import GRADIENT
from clearhead.engine.context import full_precision_autograd
from clearhead.engine.forward import ForwardPass, not_differentiable
from clearhead.engine.module_outputs import KeptOutput, ModuleOutputs
from clearhead.engine.seeds import Seeds
from clearhead.errors import UnsupportedModel


@dataclass(frozen=True)
class Gradients:
    """Gradients of the explained score at the activations of a forward pass; `maps` is None without attention maps."""

    hidden_states: list[Tensor]
    block_inputs: list[Tensor]
    leaf: Tensor
    maps: list[Tensor] | None = None

    @property
    def attentions(self) -> list[Tensor]:
        """Gradients at the attention maps."""
        if self.maps is None:
            raise UnsupportedModel(
                "There are no gradients at the attention maps: this input was explained block by block, or captured "
                "with gradients_only=True. Choose a method that reads hidden states, such as attn-lrp, or a shorter "
                "input."
            )
        return self.maps

    def join(self, forward: ForwardPass) -> "Gradients":
        """Return the gradients for all tokens of the input, layer by layer."""
        # Without blocks there is the leaf alone.
        if not self.hidden_states:
            return self
        states = forward.join_states(self.hidden_states)
        return Gradients(states, forward.join_inputs(self.block_inputs), self.leaf, self._join_maps(forward))

    def _join_maps(self, forward: ForwardPass) -> list[Tensor] | None:
        if self.maps is None:
            return None
        return forward.join_maps(self.maps)


class BlockGradients(NamedTuple):
    """Gradients at the attention map, the input and the output of one block."""

    attention: Tensor
    before: Tensor
    after: Tensor


class GradientCache:
    """The gradients of one trace, computed at most once.

    `backward` names the backward pass: the gradient, or one that gives coefficients in its place (see
    `clearhead.engine.balanced`). `keep_blocks` keeps gradients that are computed block by block, for methods that will
    ask for all of them.
    """

    def __init__(self, forward: ForwardPass, seeds: Seeds, backward: str = GRADIENT) -> None:
        self._forward = forward
        self._seeds = seeds
        self._backward = backward
        self._gradients: Gradients | None = None
        self.keep_blocks = False

    @property
    def is_computed(self) -> bool:
        return self._gradients is not None

    def get(self) -> Gradients:
        """Return all gradients; compute them in one backward pass if there are none yet."""
        if self._gradients is None:
            self._gradients = self._compute()
        return self._gradients

    def _compute(self) -> Gradients:
        with self._use_backward():
            return compute_gradients(self._forward, self._seeds.direction)

    def _use_backward(self) -> AbstractContextManager[None]:
        return self._forward.tape.switch.use(self._backward)

    @cached_property
    def joint(self) -> Gradients:
        """All gradients for all tokens of the input, layer by layer."""
        return self.get().join(self._forward)

    def iterate_attentions(self) -> Iterator[Tensor]:
        """Yield gradients of the attention maps from the last block to the first.

        If the blocks form a chain they are computed one at a time, so that the caller can free each after its use.
        """
        if self.is_computed or not self._forward.chain:
            yield from reversed(self.get().attentions)
            return
        yield from self._iterate_blocks()

    def _iterate_blocks(self) -> Iterator[Tensor]:
        blocks: list[BlockGradients] = []
        for block in gradients_by_block(self._forward, self._seeds.direction, self._backward):
            yield block.attention
            # Not kept without need: these are as large as the maps that the caller frees.
            if self.keep_blocks:
                blocks.append(block)
        if blocks:
            self._gradients = self._collect(blocks)

    def _collect(self, blocks: Sequence[BlockGradients]) -> Gradients:
        # Under the switch: the gradient at the leaf is still to be computed.
        with self._use_backward():
            return collect_gradients(self._forward, blocks)


def compute_gradients(forward: ForwardPass, direction: Tensor) -> Gradients:
    """Return the gradients along a direction of the output, in one backward pass."""
    attentions, hidden_states, block_inputs = block_activations(forward)
    by_id = _gradients_by_id(forward.output, direction, [*attentions, *hidden_states, *block_inputs, forward.leaf])
    return Gradients(
        hidden_states=_select(by_id, hidden_states),
        block_inputs=_select(by_id, block_inputs),
        leaf=_require_gradient(by_id[id(forward.leaf)], forward.name),
        maps=None if forward.tape.gradients_only else _select(by_id, attentions),
    )


def _require_gradient(leaf: Tensor | None, name: str) -> Tensor:
    # Other activations may have no gradient, where the score does not depend on them.
    if leaf is None:
        raise not_differentiable(name)
    return leaf


def compute_module_coefficients(forward: ForwardPass, direction: Tensor, backward: str) -> dict[str, list[Tensor]]:
    """Return what a backward pass gives at the outputs of the kept modules, for every call of each."""
    by_module = _tensors_by_module(forward.tape.module_outputs)
    with forward.tape.switch.use(backward):
        # All modules in one pass, which costs as much as that of a single one.
        by_id = _gradients_by_id(forward.output, direction, list(chain(*by_module.values())))
    return {name: _select(by_id, tensors) for name, tensors in by_module.items()}


def _tensors_by_module(outputs: ModuleOutputs) -> dict[str, list[Tensor]]:
    return {name: _list_tensors(calls) for name, calls in outputs.items()}


def _list_tensors(calls: Sequence[KeptOutput]) -> list[Tensor]:
    return [kept.tensor for kept in calls]


def block_activations(forward: ForwardPass) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return attention maps, if they are kept, hidden states and block inputs."""
    # Without blocks there is the leaf alone, which is enough for methods that read the gradient at the input.
    if not forward.has_blocks:
        return [], [], []
    attentions = [] if forward.tape.gradients_only else forward.attentions
    return attentions, forward.hidden_states, forward.block_inputs


def _gradients_by_id(output: Tensor, direction: Tensor, tensors: Sequence[Tensor]) -> dict[int, Tensor | None]:
    distinct = _drop_repeated(tensors)
    gradients = _backward(output, direction, list(distinct.values()))
    return dict(zip(distinct, gradients, strict=True))


def _drop_repeated(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return each tensor once, by its id."""
    # Most hidden states are also the input of the next block: each tensor is passed to autograd once.
    return {id(tensor): tensor for tensor in tensors}


def _select(by_id: dict[int, Tensor | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [_or_zeros(by_id[id(tensor)], tensor) for tensor in tensors]


def gradients_by_block(forward: ForwardPass, direction: Tensor, backward: str) -> Iterator[BlockGradients]:
    """Yield the gradients of each block, from the last to the first; the blocks must form a chain."""
    output = forward.output
    gradient = direction
    for attention, before, after in reversed(forward.chain):
        # Not held while the caller has the block: it may run another backward pass meanwhile.
        with forward.tape.switch.use(backward):
            (output_gradient,) = vjp(output, gradient, [after])
            gradients = _pass_block(after, output_gradient, attention, before)
        output = before
        gradient = gradients.before
        yield gradients


def _pass_block(after: Tensor, gradient: Tensor, attention: Tensor, before: Tensor) -> BlockGradients:
    """Return the gradients of a block from the one at its output."""
    attention_gradient, input_gradient = vjp(after, gradient, [attention, before])
    return BlockGradients(attention_gradient, input_gradient, gradient)


def collect_gradients(forward: ForwardPass, blocks: Sequence[BlockGradients]) -> Gradients:
    """Return all gradients from those of each block, which are ordered from the last block to the first."""
    attentions, inputs, outputs = map(list, zip(*blocks[::-1], strict=True))
    # The walk ends at the first block's input, which the embedding layer separates from the leaf.
    (leaf,) = vjp(forward.block_inputs[0], inputs[0], [forward.leaf])
    return Gradients([inputs[0], *outputs], inputs, leaf, attentions)


def vjp(output: Tensor, gradient: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the vector-Jacobian products of `output` with `gradient` at activations that it depends on."""
    # A network may read the last hidden state as its output: autograd has no graph between a tensor and itself.
    if tensors[0] is output:
        return [gradient]
    gradients = _backward(output, gradient, tensors)
    return [_or_zeros(*pair) for pair in zip(gradients, tensors, strict=True)]


def _backward(output: Tensor, gradient: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    with full_precision_autograd(output.device):
        # The graph is kept: other targets and other blocks use it again.
        return torch.autograd.grad(output, tensors, gradient, retain_graph=True, allow_unused=True)


def _or_zeros(gradient: Tensor | None, tensor: Tensor) -> Tensor:
    """Return the gradient; zeros where the output does not depend on the tensor."""
    return torch.zeros_like(tensor) if gradient is None else gradient
