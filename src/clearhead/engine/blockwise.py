"""A long input explained block by block: no more than one block's attention maps exist at a time.

The network runs once without maps, keeping what each block was given. Then, from the last block to the first, a
block is run again by itself; the gradient and the relevance that arrived at its output are carried to its input, and
its maps are let go. This is exact where every block's output is a cut: all that follows depends on the input through
it alone, which a short probe of the same network shows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from clearhead.engine.blocks import composite_modules, first_activation, hook_modules
from clearhead.engine.context import eager_execution, frozen, full_precision_autograd
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import vjp
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.recorder import Recorder
from clearhead.engine.tape import Tape
from clearhead.engine.trace import Trace, capture, gated_mean
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs, as_inputs, longest_text
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits, resolve_targets
from clearhead.model.target import TargetLike

PROBE = 17
"""A prime, so that an axis of this length is known to be the tokens."""


@dataclass
class Call:
    """What a block was called with, and where its hidden state stands among the arguments."""

    block: nn.Module
    argument: int | str
    args: dict[int | str, Any] = field(default_factory=dict)

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keeps the arguments, without the memory of keys and values that a generating model fills as it goes."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs.items())
        self.args = {place: None if isinstance(one, Cache) else one for place, one in given.items()}

    @property
    def hidden(self) -> Tensor:
        found: Tensor = self.args[self.argument]
        return found

    def again(self, hidden: Tensor) -> Any:
        """Runs the block on the same arguments with another hidden state."""
        args = {**self.args, self.argument: hidden}
        named = {place: one for place, one in args.items() if isinstance(place, str)}
        return self.block(*(args[place] for place in range(len(args) - len(named))), **named)


class LongTrace(Trace):
    """A trace that holds hidden states but no maps: it serves trans-att and whatever needs outputs alone."""

    def __init__(self, model: Model, inputs: Inputs, forward: ForwardPass, targets: Any, calls: list[Call]) -> None:
        super().__init__(model, inputs, forward, targets)
        self.calls = calls

    @cached_property
    def weighted_relevances(self) -> list[Tensor]:
        last = self.forward.hidden_states[-1]
        passes = [RelevancePass(self.forward.tape, POSITIVE, self.forward.output, seed) for seed in self._wide_seeds]
        relevances, lost = _at(passes, last)
        step = Step(None, vjp(self.forward.output, self._direction, [last])[0], relevances, lost)
        maps = []
        for call in reversed(self.calls):
            step = self._walk(call, step)
            maps.append(step.map_BTS)
        self._arrived = [
            (one.double().flatten(1).sum(1), lost) for one, lost in zip(step.relevances, step.dropped, strict=True)
        ]
        return maps[::-1]  # type: ignore[return-value]

    def _walk(self, call: Call, above: "Step") -> "Step":
        """Carries the gradient and the relevance of a block's output to its input."""
        tape, out = _recorded(self.model.network, call)
        leaf, tokens = call.hidden if tape.leaf is None else tape.leaf, call.hidden.shape[1]
        if len(tape.maps) != 1 or tape.maps[0].map.shape[-1] != tokens:
            raise UnsupportedModel(
                f"{self.model.name} attends in another way to long inputs than to short ones: it cannot be explained "
                "block by block."
            )
        (found,) = tape.maps
        with full_precision_autograd(out.device):
            steep, below = torch.autograd.grad(out, [found.map, leaf], above.gradient)
        passes = [RelevancePass(tape, POSITIVE, out, seed) for seed in above.relevances]
        signed = [
            sign * part if sign != 1 else part
            for (sign, _), part in zip(self._seeds, _at(passes, found.map)[0], strict=True)
        ]
        map_BTS = gated_mean(steep, signed[0] if len(signed) == 1 else torch.stack(signed).sum(0))
        del steep, signed
        for one in passes:
            one.forget(found.map)
        arrived, lost = _at(passes, leaf)
        return Step(map_BTS, below, arrived, [one + more for one, more in zip(above.dropped, lost, strict=True)])

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        if rules is not POSITIVE:
            raise _too_long(self.model)
        self.weighted_relevances  # noqa: B018 (the walk leaves what arrives at the input)
        return self._balance(self._arrived)

    def with_target(self, target: Any) -> "LongTrace":
        targets = resolve_targets(self.model, self.inputs, self.forward.said, target)
        return LongTrace(self.model, self.inputs, self.forward, targets, self.calls)

    def require_token_maps(self) -> None:
        """The probe has seen them."""


@dataclass(frozen=True)
class Step:
    """What one block leaves: its weighted map, and what arrives at its input."""

    map_BTS: Tensor | None
    gradient: Tensor
    relevances: list[Tensor]
    dropped: list[Tensor]


def _at(passes: list[RelevancePass], tensor: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What arrives at an activation by each pass, and what 0/0 took from each sample so far."""
    for one in passes:
        one.keep(tensor)
    return [one.at(tensor) for one in passes], [one.flow.dropped_B for one in passes]


def capture_blockwise(model: Model, inputs: Any, target: TargetLike | list[TargetLike] = None) -> LongTrace:
    """Like `capture`, for trans-att alone, in memory that grows with one block instead of all."""
    batch = as_inputs(model, inputs)
    calls = _blocks(model, batch)
    network = model.network
    mode = Recorder(Tape(), network)
    device = next(iter(batch.tensors.values())).device
    with (
        eager_execution(device),
        frozen(network),
        hook_modules(composite_modules(network), mode),
        _noting(calls, mode),
        mode,
    ):
        logits = finite_logits(model, network(**{name: value.clone() for name, value in batch.tensors.items()}))
    forward = LongForward(model.name, mode.tape, logits, [call.hidden for call in calls])
    return LongTrace(model, batch, forward, resolve_targets(model, batch, forward.said, target), calls)


class LongForward(ForwardPass):
    """A forward pass whose tape begins behind the last block."""

    def __init__(self, name: str, tape: Tape, output: Tensor, inputs_of_blocks: list[Tensor]) -> None:
        super().__init__(name, tape, output)
        object.__setattr__(self, "inputs_of_blocks", inputs_of_blocks)

    @property
    def block_inputs(self) -> list[Tensor]:
        found: list[Tensor] = self.__dict__["inputs_of_blocks"]
        return found

    @property
    def hidden_states(self) -> list[Tensor]:
        return [*self.block_inputs, self.leaf]

    @property
    def attentions(self) -> list[Tensor]:
        raise UnsupportedModel(
            f"This input is too long for {self.name} to hold all its attention maps in memory: choose trans-att, which "
            "works block by block, or gradient methods, or a shorter input (`clearhead plan` tells how much is needed)."
        )


def probe(model: Model, batch: Inputs) -> Trace:
    """A trace of some tokens of the first input: the same network, small."""
    if any(hasattr(module, "set_attention_type") for module in model.network.modules()):
        raise UnsupportedModel(f"{model.name} changes itself when it sees a short input, so it cannot be probed.")
    length, mask = longest_text(batch), batch.tensors.get("attention_mask")
    start = 0 if mask is None else int(mask[0].int().argmax())
    short = {
        name: value[:1, start : start + PROBE] if value.dim() > 1 and value.shape[1] == length else value[:1]
        for name, value in batch.tensors.items()
    }
    try:
        return capture(model, short)
    except RuntimeError as error:
        raise UnsupportedModel(f"{model.name} does not take short inputs, so it cannot be probed: {error}") from error


def _blocks(model: Model, batch: Inputs) -> list[Call]:
    """The blocks in their order, found on a short piece of the input that is traced in full."""
    traced = probe(model, batch)
    traced.require_token_maps()
    tape = traced.forward.tape
    found = tape.blocks
    hidden = [one for block in found for one in (block.before, block.after) if one is not None]
    follow = all(one.after is other.before for one, other in pairwise(found))
    if not follow or not tape.are_cuts(hidden) or any(one.argument is None for one in found):
        raise UnsupportedModel(
            f"The blocks of {model.name} do not follow each other one by one, so it cannot be explained block by block."
        )
    return [Call(one.block, one.argument) for one in found]  # type: ignore[arg-type]


@contextmanager
def _noting(calls: list[Call], mode: Recorder) -> Iterator[None]:
    """Notes what each block is called with; behind the last one dependence, and with it the recording, begins."""
    left = list(calls)

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        left.pop(0).note(args, kwargs)

    def begin(module: nn.Module, args: Any, out: Any) -> Any:
        if left:
            return out
        return mode.begin(out) if isinstance(out, Tensor) else (mode.begin(out[0]), *out[1:])

    blocks = {id(call.block): call.block for call in calls}.values()
    # First of all hooks: those of others run again with the block.
    handles = [block.register_forward_pre_hook(note, with_kwargs=True, prepend=True) for block in blocks]
    handles.append(calls[-1].block.register_forward_hook(begin))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _recorded(network: nn.Module, call: Call) -> tuple[Tape, Tensor]:
    """One block run by itself under a recording."""
    mode = Recorder(Tape(), network)
    with eager_execution(call.hidden.device), frozen(network), hook_modules(composite_modules(call.block), mode):
        hidden = mode.begin(call.hidden)
        with mode:
            out = call.again(hidden)
    return mode.tape, first_activation([out])


def _too_long(model: Model) -> UnsupportedModel:
    return UnsupportedModel(f"This input is too long for {model.name} to follow any relevance but that of trans-att.")
