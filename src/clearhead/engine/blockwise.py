"""Long inputs explained block by block: the attention maps of one block exist at a time.

The network runs once without maps and keeps the input of each block. Then each block is run again by itself, from the
last to the first: what a backward pass has brought to its output, and for trans-att the relevance there, is carried to
its input, and its activations are freed. This is exact if everything after a block depends on the input through that
block's output alone, which a short probe of the same network shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.backward import GRADIENT, check_backward
from clearhead.engine.block_calls import BlockCall, find_block_calls, record_calls, repeat_recorded
from clearhead.engine.blocks import run_recorded
from clearhead.engine.composite_modules import composite_modules
from clearhead.engine.conservation import Arrival, report_conservation
from clearhead.engine.context import frozen, full_precision_autograd
from clearhead.engine.forward import ForwardPass, float_input
from clearhead.engine.gradients import Gradients, vjp
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.recorder import Recorder
from clearhead.engine.step_gradients import StepSeeds, carry_rows, carry_through_head
from clearhead.engine.tape import Tape
from clearhead.engine.trace import Trace
from clearhead.engine.weighted_relevance import weight_by_gradient
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model, input_embedding
from clearhead.model.outputs import finite_logits, resolve_targets
from clearhead.model.target import Target, TargetLike

Carry = Callable[[Tensor, Tensor, Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True, eq=False)
class BlockwiseForwardPass(ForwardPass):
    """A forward pass whose tape leaves out the blocks; it keeps the input of each block, but no maps.

    The tape leads from the leaf to `embedding`, the input of the first block, and from `last`, the output of the last
    block, to the logits.
    """

    recorded_inputs: list[Tensor]
    embedding: Tensor
    last: Tensor

    @property
    def attentions(self) -> list[Tensor]:
        raise self._too_long()

    def require_attentions(self) -> None:
        raise self._too_long()

    def require_blocks(self) -> None:
        """Do nothing: the blocks of the probe have been checked."""

    @property
    def map_bytes(self) -> int:
        """The bytes of the weighted maps of trans-att, which have no heads."""
        return sum(hidden.shape[1] ** 2 * hidden.element_size() for hidden in self.recorded_inputs)

    @property
    def has_blocks(self) -> bool:
        """True: the blocks of the probe have been checked."""
        return True

    @property
    def block_inputs(self) -> list[Tensor]:
        return self.recorded_inputs

    @property
    def hidden_states(self) -> list[Tensor]:
        return [*self.recorded_inputs, self.last]

    def _too_long(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"This input is too long for {self.name} to hold all its attention maps in memory: choose a method that "
            "works block by block (attn-lrp, cp-lrp, balanced-cat, cat, gradient, gradient-x-input, layer-gradcam, "
            "trans-att), or a shorter input (`clearhead plan` tells how much is needed)."
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
    """A trace with hidden states and gradients there, but without maps; only trans-att gets relevance."""

    forward: BlockwiseForwardPass

    def __init__(
        self,
        model: Model,
        inputs: Inputs,
        forward: BlockwiseForwardPass,
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

    @property
    def gradients(self) -> Gradients:
        return self.coefficients(GRADIENT)

    @cached_property
    def _coefficients(self) -> dict[str, Gradients]:
        return {}

    def coefficients(self, backward: str) -> Gradients:
        check_backward(backward)
        if backward not in self._coefficients:
            self._coefficients[backward] = self._walk_coefficients(backward)
        return self._coefficients[backward]

    def _walk_coefficients(self, backward: str) -> Gradients:
        """Carry the coefficients of a backward pass from the output to the leaf, through one block at a time."""
        forward = self.forward
        with forward.tape.switch.use(backward):
            (coefficient,) = vjp(forward.output, self._seeds.direction, [forward.last])
        return self._walk_back(coefficient, backward, vjp)

    def step_coefficients(self, seeds: StepSeeds, backward: str, *, with_maps: bool) -> Gradients:
        if with_maps:
            self.forward.require_attentions()
        with self.forward.tape.switch.use(backward):
            rows = carry_through_head(self.forward, seeds)
        return self._walk_back(rows, backward, carry_rows)

    def _walk_back(self, coefficient: Tensor, backward: str, carry: Carry) -> Gradients:
        """Carry coefficients from the last hidden state to the leaf; `carry` goes back through what is on a tape."""
        coefficients = [coefficient]
        for call in reversed(self.calls):
            coefficients.append(self._carry_through_block(call, coefficients[-1], backward, carry))
        with self.forward.tape.switch.use(backward):
            (leaf,) = carry(self.forward.embedding, coefficients[-1], [self.forward.leaf])
        hidden_states = coefficients[::-1]
        # The input of each block is the output of the one before it.
        return Gradients(hidden_states, hidden_states[:-1], leaf)

    def _carry_through_block(self, call: BlockCall, coefficient: Tensor, backward: str, carry: Carry) -> Tensor:
        """Carry coefficients from a block's output to its input."""
        tape, output = repeat_recorded(self.model.network, call, gradients_only=True)
        assert tape.leaf is not None
        with tape.switch.use(backward):
            (carried,) = carry(output, coefficient, [tape.leaf])
        return carried

    @cached_property
    def weighted_relevances(self) -> list[Tensor]:
        return self._walk.maps

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        self._require_positive(rules)
        return report_conservation(self._seeds, self._walk.arrivals)

    def _require_positive(self, rules: RuleSet) -> None:
        if rules is not POSITIVE:
            raise UnsupportedModel(
                f"This input is too long for {self.model.name} to follow any relevance but that of trans-att."
            )

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
        last = self.forward.last
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
        maps = [attention.map for attention in tape.maps if attention.map is not None]
        if len(maps) != 1 or maps[0].shape[-1] != call.hidden.shape[1]:
            raise UnsupportedModel(
                f"{self.model.name} attends in another way to long inputs than to short ones: it cannot be explained "
                "block by block."
            )
        return maps[0], tape.leaf


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
    """Return a trace without attention maps, in memory that grows with one block instead of all."""
    batch = as_inputs(model, inputs)
    calls = find_block_calls(model, batch)
    forward = _run_forward(model, batch, calls)
    targets = resolve_targets(model, batch, forward.host_output, target)
    return BlockwiseTrace(model, batch, forward, targets, calls)


def _run_forward(model: Model, inputs: Inputs, calls: Sequence[BlockCall]) -> BlockwiseForwardPass:
    """Run the network once; record the arguments of its blocks, and on tape what comes before and after them."""
    network = model.network
    recorder = Recorder(Tape(), network, input_embedding(network))
    head = partial(finite_logits, model)
    # Frozen already here: hooks are added and removed while no other thread runs the network.
    with frozen(network), record_calls(calls, recorder) as hooks:
        logits = run_recorded(recorder, inputs.tensors, float_input(inputs.tensors), head, composite_modules(network))
    # The blocks of the probe have run.
    assert hooks.embedding is not None
    assert hooks.last is not None
    block_inputs = [call.hidden for call in calls]
    return BlockwiseForwardPass(model.name, recorder.tape, logits, block_inputs, hooks.embedding, hooks.last)
