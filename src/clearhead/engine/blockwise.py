"""Long inputs explained block by block: the attention maps of one block exist at a time.

The network runs once without maps and keeps the input of each block. Then each block is run again by itself, from the
last to the first: the gradient and the relevance at its output are carried to its input, and its maps are freed. This
is exact if everything after a block depends on the input through that block's output alone, which a short probe of the
same network shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.block_calls import BlockCall, find_block_calls, record_calls, repeat_recorded
from clearhead.engine.blocks import clone_tensors, composite_modules, hook_modules, input_device
from clearhead.engine.conservation import Arrival, report_conservation
from clearhead.engine.context import eager_execution, frozen, full_precision_autograd
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import vjp
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.recorder import Recorder
from clearhead.engine.tape import Tape
from clearhead.engine.trace import Trace
from clearhead.engine.weighted_relevance import weight_by_gradient
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits, resolve_targets
from clearhead.model.target import Target, TargetLike


@dataclass(frozen=True, eq=False)
class BlockwiseForwardPass(ForwardPass):
    """A forward pass whose tape begins after the last block; it keeps the input of each block, but no maps."""

    recorded_inputs: list[Tensor]

    @property
    def attentions(self) -> list[Tensor]:
        raise self._too_long()

    def require_attentions(self) -> None:
        raise self._too_long()

    @property
    def block_inputs(self) -> list[Tensor]:
        return self.recorded_inputs

    @property
    def hidden_states(self) -> list[Tensor]:
        return [*self.recorded_inputs, self.leaf]

    def _too_long(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"This input is too long for {self.name} to hold all its attention maps in memory: choose trans-att, which "
            "works block by block, or gradient methods, or a shorter input (`clearhead plan` tells how much is needed)."
        )


@dataclass(frozen=True)
class BackwardState:
    """Gradient and relevance at a hidden state; relevance, and what 0/0 dropped, for each seed."""

    gradient: Tensor
    relevances: list[Tensor]
    dropped: list[Tensor]


@dataclass(frozen=True)
class BackwardWalk:
    """The weighted relevance of each block's map, and what arrived at the embedding output."""

    maps: list[Tensor]
    arrivals: list[Arrival]


class BlockwiseTrace(Trace):
    """A trace with hidden states but without maps, for trans-att and methods that only need outputs."""

    def __init__(
        self,
        model: Model,
        inputs: Inputs,
        forward: ForwardPass,
        targets: tuple[Target, ...],
        calls: Sequence[BlockCall],
    ) -> None:
        super().__init__(model, inputs, forward, targets)
        self.calls = calls

    def with_target(self, target: TargetLike | Sequence[TargetLike]) -> "BlockwiseTrace":
        targets = resolve_targets(self.model, self.inputs, self.forward.host_output, target)
        return BlockwiseTrace(self.model, self.inputs, self.forward, targets, self.calls)

    def require_token_maps(self) -> None:
        """Do nothing: the maps of the probe have been checked."""

    @cached_property
    def weighted_relevances(self) -> list[Tensor]:
        return self._walk.maps

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        if rules is not POSITIVE:
            raise UnsupportedModel(
                f"This input is too long for {self.model.name} to follow any relevance but that of trans-att."
            )
        return report_conservation(self._seeds, self._walk.arrivals)

    @cached_property
    def _walk(self) -> BackwardWalk:
        """The walk over all blocks, from the last to the first."""
        state = self._start()
        maps = []
        for call in reversed(self.calls):
            map_BTS, state = self._step_back(call, state)
            maps.append(map_BTS)
        return BackwardWalk(maps[::-1], _sum_arrivals(state))

    def _start(self) -> BackwardState:
        """Propagate from the output to the last hidden state."""
        output = self.forward.output
        last = self.forward.hidden_states[-1]
        passes = _start_passes(self.forward.tape, output, self._seeds.relevance_seeds)
        relevances, dropped = _propagate(passes, last)
        (gradient,) = vjp(output, self._seeds.direction, [last])
        return BackwardState(gradient, relevances, dropped)

    def _step_back(self, call: BlockCall, above: BackwardState) -> tuple[Tensor, BackwardState]:
        """Carry gradient and relevance from a block's output to its input; return the weighted map as well."""
        tape, output = repeat_recorded(self.model.network, call)
        attention, leaf = self._check_block(call, tape)
        attention_gradient, gradient = _backward_once(output, [attention, leaf], above.gradient)
        # Relevance at the block's output is the seed of the passes through the block.
        passes = _start_passes(tape, output, above.relevances)
        map_BTS = self._weigh_map(passes, attention, attention_gradient)
        # Freed before the walk goes on: maps are the largest tensors of a long input.
        del attention_gradient
        relevances, dropped = _propagate(passes, leaf)
        # Each block has passes of its own, which count from zero.
        total_dropped = [before + here for before, here in zip(above.dropped, dropped, strict=True)]
        return map_BTS, BackwardState(gradient, relevances, total_dropped)

    def _weigh_map(self, passes: Sequence[RelevancePass], attention: Tensor, gradient: Tensor) -> Tensor:
        """Return the weighted relevance of a block's map, and free the relevance of the map itself."""
        relevances, _ = _propagate(passes, attention)
        map_BTS = weight_by_gradient(gradient, self._seeds.signed_sum(relevances))
        for relevance_pass in passes:
            relevance_pass.forget(attention)
        return map_BTS

    def _check_block(self, call: BlockCall, tape: Tape) -> tuple[Tensor, Tensor]:
        """Return the attention map and the leaf of a repeated block, which must attend as it did in the probe."""
        assert tape.leaf is not None
        if len(tape.maps) != 1 or tape.maps[0].map.shape[-1] != call.hidden.shape[1]:
            raise UnsupportedModel(
                f"{self.model.name} attends in another way to long inputs than to short ones: it cannot be explained "
                "block by block."
            )
        return tape.maps[0].map, tape.leaf


def _sum_arrivals(state: BackwardState) -> list[Arrival]:
    arrivals = []
    for relevance, dropped_B in zip(state.relevances, state.dropped, strict=True):
        # In float64, because conservation is the difference of sums that are nearly equal.
        total_B = relevance.double().flatten(1).sum(1)
        arrivals.append(Arrival(total_B, dropped_B))
    return arrivals


def _backward_once(output: Tensor, tensors: list[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients at some activations; frees the graph, since that of a repeated block is used once."""
    with full_precision_autograd(output.device):
        return torch.autograd.grad(output, tensors, gradient)


def _start_passes(tape: Tape, output: Tensor, seeds: Sequence[Tensor]) -> list[RelevancePass]:
    return [RelevancePass(tape, POSITIVE, output, seed) for seed in seeds]


def _propagate(passes: Sequence[RelevancePass], tensor: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return the relevance that each pass brings to an activation, and what 0/0 dropped from each sample so far."""
    relevances: list[Tensor] = []
    dropped: list[Tensor] = []
    for relevance_pass in passes:
        relevance_pass.keep(tensor)
        relevances.append(relevance_pass.at(tensor))
        dropped.append(relevance_pass.context.dropped_B)
    return relevances, dropped


def capture_blockwise(model: Model, inputs: Any, target: TargetLike | Sequence[TargetLike] = None) -> BlockwiseTrace:
    """Return a trace for trans-att alone, in memory that grows with one block instead of all."""
    batch = as_inputs(model, inputs)
    calls = find_block_calls(model, batch)
    forward = _run_forward(model, batch, calls)
    targets = resolve_targets(model, batch, forward.host_output, target)
    return BlockwiseTrace(model, batch, forward, targets, calls)


def _run_forward(model: Model, inputs: Inputs, calls: Sequence[BlockCall]) -> BlockwiseForwardPass:
    """Run the network once; record the arguments of its blocks, and on tape what follows them."""
    network = model.network
    recorder = Recorder(Tape(), network)
    with (
        eager_execution(input_device(inputs.tensors)),
        frozen(network),
        hook_modules(composite_modules(network), recorder),
        record_calls(calls, recorder),
        recorder,
    ):
        logits = finite_logits(model, network(**clone_tensors(inputs.tensors)))
    return BlockwiseForwardPass(model.name, recorder.tape, logits, [call.hidden for call in calls])
