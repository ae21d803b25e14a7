"""Backward passes of many steps of an answer over the forward pass of one input.

Every step has a direction of the logits at its own position only (N,V). Language heads work on each position by itself,
so one backward pass through the head serves all steps; from the last hidden state on, each step has a pass of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearhead.engine.context import full_precision_autograd
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import Gradients, vjp
from clearhead.engine.seeds import Seeds
from clearhead.model.target import AnswerTarget, make_seeds

# Largest difference, relative to the largest gradient, of two passes that differ in rounding alone.
ROUNDING = 1e-4


@dataclass(frozen=True)
class StepSeeds:
    """The directions (N,V) of some steps, their indices in the answer, and the tokens they are predicted from."""

    directions: Tensor
    steps: list[int]
    positions: list[int]

    def at_output(self, output: Tensor) -> Tensor:
        """Return the directions over the whole output (N, steps of the answer, V), zero at other steps."""
        rows = output.new_zeros(len(self.steps), *output.shape[1:])
        rows[range(len(self.steps)), self.steps] = self.directions.to(rows.dtype)
        return rows

    def together(self, output: Tensor) -> Tensor:
        """Return the directions of all steps in one tensor of the output's shape."""
        direction = torch.zeros_like(output)
        direction[0, self.steps] = self.directions.to(direction.dtype)
        return direction


def make_step_directions(targets: Sequence[AnswerTarget], logits_1NV: Tensor) -> Tensor:
    """Return the direction of the logits along which each target, a single step, is explained (N,V)."""
    directions = []
    for target in targets:
        directions.append(_make_direction(target, logits_1NV)[0])
    return torch.cat(directions)


def score_answer(target: AnswerTarget, logits_1NV: Tensor) -> Tensor:
    """Return the score of some steps of the only answer, linear in the logits."""
    return (_make_direction(target, logits_1NV) * logits_1NV[:, list(target.steps)]).sum((1, 2))


def _make_direction(target: AnswerTarget, logits_1NV: Tensor) -> Tensor:
    """Return the direction along which some steps are explained, at their own logits only (1, steps, V)."""
    # Without the logits of other steps, so that the answer's length does not count twice.
    own_steps = tuple(range(len(target.steps)))
    own_logits = logits_1NV[:, list(target.steps)]
    return Seeds(make_seeds((replace(target, steps=own_steps),), own_logits)).direction


@dataclass(frozen=True)
class StepStart:
    """An activation that the backward passes of all steps start from, and what arrives there, one row per step."""

    tensor: Tensor
    rows: Tensor


def start_passes(forward: ForwardPass, seeds: StepSeeds) -> StepStart:
    """Return where the passes begin: at the last hidden state if everything goes through it, else at the output."""
    if not forward.has_cut_head:
        return StepStart(forward.output, seeds.at_output(forward.output))
    return StepStart(forward.hidden_states[-1], carry_through_head(forward, seeds))


def carry_through_head(forward: ForwardPass, seeds: StepSeeds) -> Tensor:
    """Carry the directions of all steps from the output to the last hidden state, one row per step (N,T,D)."""
    last = forward.hidden_states[-1]
    if max(seeds.positions) < last.shape[1]:
        rows = _carry_together(forward.output, seeds, last)
        first = replace(seeds, directions=seeds.directions[:1], steps=seeds.steps[:1], positions=seeds.positions[:1])
        (alone,) = vjp(forward.output, first.together(forward.output), [last])
        if _are_close(rows[:1], alone):
            return rows
    # A head that mixes positions: nothing is shared.
    (rows,) = carry_rows(forward.output, seeds.at_output(forward.output), [last])
    return rows


def _carry_together(output: Tensor, seeds: StepSeeds, last: Tensor) -> Tensor:
    """Return what each step brings to its own token of the last hidden state, from one pass, and zero elsewhere."""
    (sum_1TD,) = vjp(output, seeds.together(output), [last])
    rows = last.new_zeros(len(seeds.steps), *last.shape[1:])
    rows[range(len(seeds.steps)), seeds.positions] = sum_1TD[0, seeds.positions]
    return rows


def _are_close(first: Tensor, second: Tensor) -> bool:
    return bool((first - second).abs().max() <= ROUNDING * second.abs().max())


def carry_rows(output: Tensor, rows: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the vector-Jacobian products of one input's activations with each row; zeros where nothing depends."""
    products = [tensor.new_empty(len(rows), *tensor.shape[1:]) for tensor in tensors]
    for number, row in enumerate(rows):
        # Copied row by row, so that memory for the gradients of a single pass is used again by the next.
        for product, gradient in zip(products, vjp(output, row[None], tensors), strict=True):
            product[number] = gradient[0]
    return products


def push_rows(output: Tensor, rows: Tensor, tensor: Tensor) -> Tensor:
    """Return what each row of one input's activation contributes to its output: Jacobian-vector products.

    A backward pass is linear in the direction that it starts from, so its own derivative is the transposed map: forward
    mode by two backward passes, under the rules that the tape is switched to.
    """
    direction = torch.zeros_like(output, requires_grad=True)
    with full_precision_autograd(output.device):
        (pulled,) = torch.autograd.grad(output, [tensor], direction, create_graph=True)
        products = [torch.autograd.grad(pulled, [direction], row[None], retain_graph=True)[0] for row in rows]
    return torch.cat(products)


def carry_rows_at_once(output: Tensor, rows: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what `carry_rows` returns, from one batched pass; fused attention has no rule for it."""
    with full_precision_autograd(output.device):
        # Each row has the batch axis of the forward pass, which holds the one input.
        gradients = torch.autograd.grad(
            output, tensors, rows[:, None], retain_graph=True, allow_unused=True, is_grads_batched=True
        )
    return [_drop_batch(*pair, count=len(rows)) for pair in zip(gradients, tensors, strict=True)]


def _drop_batch(gradient: Tensor | None, tensor: Tensor, count: int) -> Tensor:
    if gradient is None:
        return tensor.new_zeros(count, *tensor.shape[1:])
    return gradient[:, 0]


def compute_step_gradients(forward: ForwardPass, start: StepStart, *, with_maps: bool) -> Gradients:
    """Return the gradients of several steps, one in each row, at the activations of one input."""
    tensors = _list_activations(forward, with_maps=with_maps)
    distinct = {id(tensor): tensor for tensor in tensors if tensor is not start.tensor}
    gradients = _carry(forward, start, list(distinct.values()))
    by_id = {id(start.tensor): start.rows, **dict(zip(distinct, gradients, strict=True))}

    def select(tensors: Sequence[Tensor]) -> list[Tensor]:
        return [by_id[id(tensor)] for tensor in tensors]

    (leaf,) = select([forward.leaf])
    if not forward.has_blocks:
        return Gradients([], [], leaf)
    maps = select(forward.attentions) if with_maps else None
    return Gradients(select(forward.hidden_states), select(forward.block_inputs), leaf, maps)


def _list_activations(forward: ForwardPass, *, with_maps: bool) -> list[Tensor]:
    activations = [forward.leaf]
    if forward.has_blocks:
        activations += [*forward.hidden_states, *forward.block_inputs]
    # Not unless they are read: the gradients of all maps can take more time and memory than everything else.
    if with_maps:
        activations += forward.attentions
    return activations


def _carry(forward: ForwardPass, start: StepStart, tensors: Sequence[Tensor]) -> list[Tensor]:
    # A CPU gains nothing from larger products, and loses its caches. On a GPU one pass is too small to fill it.
    if start.tensor.is_cuda and not forward.tape.gradients_only:
        return carry_rows_at_once(start.tensor, start.rows, tensors)
    return carry_rows(start.tensor, start.rows, tensors)
