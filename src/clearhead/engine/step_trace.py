"""Traces of many targets at once: the steps of an answer from one forward pass.

The forward pass of a single input runs once. Its activations are expanded, without copies, along a batch axis of
targets; the backward passes of all targets run as one batched pass. So methods see an ordinary batch with one row for
each target.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from clearhead.engine.backward import ATTN_LRP, GRADIENT, check_backward
from clearhead.engine.context import full_precision_autograd
from clearhead.engine.forward import ForwardPass, not_differentiable
from clearhead.engine.gradients import Gradients, block_activations
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.memory import free_bytes
from clearhead.engine.trace import Trace
from clearhead.model.inputs import Inputs
from clearhead.model.target import Target

# Share of the free memory that the coefficients of all targets of a batch may take.
USABLE_SHARE = 0.25


class StepTrace(Trace):
    """A trace of one input for several targets, one in each row of the batch."""

    def __init__(self, trace: Trace, targets: Sequence[Target]) -> None:
        super().__init__(trace.model, _repeat(trace.inputs, len(targets)), trace.forward, tuple(targets))
        self.distinct_inputs = trace.inputs
        self._single = [Trace(trace.model, trace.inputs, trace.forward, (target,)) for target in targets]

    def _expand(self, tensor: Tensor) -> Tensor:
        return tensor.detach().expand(len(self.targets), *tensor.shape[1:])

    @property
    def logits(self) -> Tensor:
        return self._expand(self.forward.output)

    @property
    def attentions(self) -> list[Tensor]:
        return [self._expand(attention) for attention in self.forward.joint_maps]

    @property
    def hidden_states(self) -> list[Tensor]:
        return [self._expand(hidden) for hidden in self.forward.joint_states]

    @property
    def block_inputs(self) -> list[Tensor]:
        return [self._expand(hidden) for hidden in self.forward.joint_inputs]

    @property
    def leaf(self) -> Tensor:
        return self._expand(self.forward.leaf)

    @property
    def gradients(self) -> Gradients:
        return self.coefficients(GRADIENT)

    @cached_property
    def _batched(self) -> dict[str, Gradients]:
        return {}

    def coefficients(self, backward: str) -> Gradients:
        check_backward(backward)
        if backward not in self._batched:
            with self.forward.tape.switch.use(backward):
                gradients = compute_batched_gradients(self.forward, self._seeds.direction)
                self._batched[backward] = gradients.join(self.forward)
        return self._batched[backward]

    # Relevance has no batched pass: each target has passes of its own over the one forward pass.
    def relevance_at(self, tensor: Tensor, rules: RuleSet = POSITIVE) -> Tensor:
        return self._gather(lambda trace: trace.relevance_at(tensor, rules))

    def embedding_relevance(self, rules: RuleSet = POSITIVE) -> Tensor:
        return self._gather(lambda trace: trace.embedding_relevance(rules))

    def last_map_relevance(self, rules: RuleSet) -> Tensor:
        return self._gather(lambda trace: trace.last_map_relevance(rules))

    @property
    def attention_relevances(self) -> list[Tensor]:
        return self._gather_each(lambda trace: trace.attention_relevances)

    def _weigh_relevances(self, backward: str) -> list[Tensor]:
        return self._gather_each(lambda trace: trace.relevances_weighted_by(backward))

    def module_relevance(self, name: str, backward: str = ATTN_LRP, *, call: int = 0) -> Tensor:
        return self._gather(lambda trace: trace.module_relevance(name, backward, call=call))

    @cached_property
    def reading_BT(self) -> Tensor:
        return self._gather(lambda trace: trace.reading_BT)

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        return [report for trace in self._single for report in trace.balance(rules)]

    def balance_at_the_last_map(self, rules: RuleSet) -> Sequence[dict[str, float]]:
        return [report for trace in self._single for report in trace.balance_at_the_last_map(rules)]

    def _gather(self, read: Callable[[Trace], Tensor]) -> Tensor:
        return torch.cat([read(trace) for trace in self._single])

    def _gather_each(self, read: Callable[[Trace], list[Tensor]]) -> list[Tensor]:
        rows = [read(trace) for trace in self._single]
        return [torch.cat(tensors) for tensors in zip(*rows, strict=True)]


def _repeat(inputs: Inputs, count: int) -> Inputs:
    tensors = {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in inputs.tensors.items()}
    return Inputs(tensors, tuple(inputs.items) * count)


def compute_batched_gradients(forward: ForwardPass, directions: Tensor) -> Gradients:
    """Return the gradients of one input along several directions of its output, one in each row."""
    attentions, hidden_states, block_inputs = block_activations(forward)
    activations = [*attentions, *hidden_states, *block_inputs, forward.leaf]
    distinct = {id(tensor): tensor for tensor in activations}
    # Each direction has the batch axis of the forward pass, which holds the one input.
    gradients = _backward(forward.output, directions[:, None], list(distinct.values()))
    by_id = dict(zip(distinct, gradients, strict=True))
    leaf = by_id[id(forward.leaf)]
    if leaf is None:
        raise not_differentiable(forward.name)

    def select(tensors: Sequence[Tensor]) -> list[Tensor]:
        return [_drop_batch(by_id[id(tensor)], tensor, len(directions)) for tensor in tensors]

    return Gradients(
        hidden_states=select(hidden_states),
        block_inputs=select(block_inputs),
        leaf=leaf[:, 0],
        maps=None if forward.tape.gradients_only else select(attentions),
    )


def _backward(output: Tensor, directions: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    with full_precision_autograd(output.device):
        return torch.autograd.grad(
            output, tensors, directions, retain_graph=True, allow_unused=True, is_grads_batched=True
        )


def _drop_batch(gradient: Tensor | None, tensor: Tensor, count: int) -> Tensor:
    """Return a batched gradient without the axis of the one input; zeros if the output does not depend on it."""
    if gradient is None:
        return tensor.new_zeros(count, *tensor.shape[1:])
    return gradient[:, 0]


def split_targets(trace: Trace, targets: Sequence[Target]) -> Iterator[StepTrace]:
    """Yield step traces of as many targets as the memory holds."""
    size = _targets_per_batch(trace)
    for start in range(0, len(targets), size):
        yield StepTrace(trace, targets[start : start + size])


def _targets_per_batch(trace: Trace) -> int:
    forward = trace.forward
    attentions, hidden_states, _ = block_activations(forward)
    target_bytes = sum(tensor.nbytes for tensor in [*attentions, *hidden_states, forward.output])
    # At least one: a single target needs what an ordinary trace needs.
    return max(1, int(USABLE_SHARE * free_bytes(forward.output.device)) // target_bytes)
