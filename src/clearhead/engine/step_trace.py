"""Traces of many targets at once: the steps of an answer from one forward pass.

The forward pass of a single input runs once. Its activations are expanded, without copies, along a batch axis of
targets; so methods see an ordinary batch with one row for each target. Relevance, whose rules have no such axis, comes
from a second forward pass of the input repeated for each target: that costs less than a relevance pass for each.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from clearhead.engine.backward import ATTN_LRP, GRADIENT, check_backward
from clearhead.engine.gradients import Gradients
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.memory import estimate_memory, free_bytes
from clearhead.engine.step_gradients import StepSeeds, make_step_directions, score_answer
from clearhead.engine.trace import Trace, capture
from clearhead.model.inputs import Inputs
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.model.target import AnswerTarget, Target

# Share of the free memory that the coefficients of all targets of a batch may take.
USABLE_SHARE = 0.25


class StepTrace(Trace):
    """A trace of one input for several targets, one in each row of the batch."""

    def __init__(self, trace: Trace, targets: Sequence[Target], *, with_maps: bool = True) -> None:
        super().__init__(trace.model, _repeat(trace.inputs, len(targets)), trace.forward, tuple(targets))
        self.distinct_inputs = trace.inputs
        self._trace = trace
        self._steps = [target for target in targets if isinstance(target, AnswerTarget)]
        self._with_maps = with_maps

    @cached_property
    def _single(self) -> list[Trace]:
        """A trace of the same forward pass for each target."""
        return [self._trace.with_target([target]) for target in self.targets]

    @cached_property
    def _repeated(self) -> list[Trace]:
        """The traces of relevance: one of the repeated input with all targets, or those of single targets."""
        # Where the input itself goes block by block, nothing else fits into memory.
        if len(self.targets) == 1 or type(self._trace) is not Trace:
            return self._single
        return [capture(self.model, self.inputs, self.targets)]

    def require_token_maps(self) -> None:
        self._trace.require_token_maps()

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
            self._batched[backward] = self._trace.step_coefficients(
                self._step_seeds, backward, with_maps=self._with_maps
            )
        return self._batched[backward]

    @cached_property
    def _step_seeds(self) -> StepSeeds:
        steps = [target.steps[0] for target in self._steps]
        tensors = self._trace.inputs.tensors
        positions = tensors[ANSWER_POSITIONS][0, steps]
        # A decoder's hidden states begin after the source that its encoder reads.
        if SOURCE_LENGTH in tensors:
            positions = positions - tensors[SOURCE_LENGTH][0]
        return StepSeeds(make_step_directions(self._steps, self._trace.logits), steps, positions.tolist())

    @cached_property
    def score_B(self) -> Tensor:
        scores = []
        for target in self._steps:
            scores.append(score_answer(target, self._trace.logits))
        return torch.cat(scores)

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
        # Only the given forward pass keeps the outputs of modules.
        return torch.cat([trace.module_relevance(name, backward, call=call) for trace in self._single])

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        return [report for trace in self._repeated for report in trace.balance(rules)]

    def balance_at_the_last_map(self, rules: RuleSet) -> Sequence[dict[str, float]]:
        return [report for trace in self._repeated for report in trace.balance_at_the_last_map(rules)]

    def _gather(self, read: Callable[[Trace], Tensor]) -> Tensor:
        return torch.cat([read(trace) for trace in self._repeated])

    def _gather_each(self, read: Callable[[Trace], list[Tensor]]) -> list[Tensor]:
        rows = [read(trace) for trace in self._repeated]
        return [torch.cat(tensors) for tensors in zip(*rows, strict=True)]


def _repeat(inputs: Inputs, count: int) -> Inputs:
    tensors = {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in inputs.tensors.items()}
    return Inputs(tensors, tuple(inputs.items) * count)


def split_targets(
    trace: Trace, targets: Sequence[Target], *, with_maps: bool = True, with_relevance: bool = False
) -> Iterator[StepTrace]:
    """Yield step traces of as many targets as the memory holds; `with_maps` if gradients at attention maps are read."""
    size = _targets_per_batch(trace, with_maps=with_maps, with_relevance=with_relevance)
    for start in range(0, len(targets), size):
        yield StepTrace(trace, targets[start : start + size], with_maps=with_maps)


def _targets_per_batch(trace: Trace, *, with_maps: bool, with_relevance: bool) -> int:
    usable = int(USABLE_SHARE * free_bytes(trace.forward.output.device))
    if with_relevance:
        target_bytes = estimate_memory(trace.model, trace.inputs).whole
    else:
        target_bytes = _coefficient_bytes(trace, with_maps=with_maps)
    # At least one: a single target needs what an ordinary trace needs.
    return max(1, usable // max(1, target_bytes))


def _coefficient_bytes(trace: Trace, *, with_maps: bool) -> int:
    """Return the bytes of what a backward pass gives for one target."""
    forward = trace.forward
    activations = [forward.output, forward.leaf]
    if forward.has_blocks:
        activations += forward.hidden_states
    size = sum(tensor.nbytes for tensor in activations)
    return size + forward.map_bytes if with_maps else size
