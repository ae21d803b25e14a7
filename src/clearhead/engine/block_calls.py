"""Calls of a network's blocks: found on a short probe, recorded with their arguments, and run again one by one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from transformers import Cache

from clearhead.engine.blocks import composite_modules, first_activation, hook_modules
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.forward import run_forward
from clearhead.engine.recorder import Recorder
from clearhead.engine.tape import AttentionMap, Tape
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs, as_inputs, longest_text
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model

# A prime, so that an axis of this length is known to be the tokens.
PROBE_TOKENS = 17


@dataclass
class BlockCall:
    """One call of a block, and under which position or name it takes its hidden state."""

    block: nn.Module
    hidden_argument: int | str
    args: dict[int | str, Any] = field(default_factory=dict)

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments of the call, by position or name."""
        arguments: dict[int | str, Any] = dict(enumerate(args))
        arguments.update(kwargs.items())
        for key, value in arguments.items():
            # A generating model appends keys and values to its cache: run again, a block would see them twice.
            self.args[key] = None if isinstance(value, Cache) else value

    @property
    def hidden(self) -> Tensor:
        """The hidden state that the block received."""
        hidden: Tensor = self.args[self.hidden_argument]
        return hidden

    def repeat(self, hidden: Tensor) -> Any:
        """Run the block on the recorded arguments with another hidden state."""
        arguments = {**self.args, self.hidden_argument: hidden}
        kwargs = {key: value for key, value in arguments.items() if isinstance(key, str)}
        args = [arguments[position] for position in range(len(arguments) - len(kwargs))]
        return self.block(*args, **kwargs)


def find_block_calls(model: Model, inputs: Inputs) -> list[BlockCall]:
    """Return the blocks in their order, found on a short probe of the input that is traced in full."""
    trace = _trace_probe(model, inputs)
    trace.require_token_maps()
    blocks = trace.forward.tape.blocks
    if not _form_chain(trace.forward.tape, blocks):
        raise UnsupportedModel(
            f"The blocks of {model.name} do not follow each other one by one, so it cannot be explained block by block."
        )
    # In a chain every block has a module and an argument.
    return [BlockCall(block.block, block.argument) for block in blocks]  # type: ignore[arg-type]


def _trace_probe(model: Model, inputs: Inputs) -> Trace:
    """Trace some tokens of the first input."""
    if model.is_encoder_decoder:
        raise UnsupportedModel(f"{model.name} has two stacks of blocks, so it cannot be explained block by block.")
    # BigBird switches for good to full attention when it sees a short input.
    if any(hasattr(module, "set_attention_type") for module in model.network.modules()):
        raise UnsupportedModel(f"{model.name} changes itself when it sees a short input, so it cannot be probed.")
    probe = as_inputs(model, _probe_tensors(inputs))
    try:
        forward = run_forward(model, probe)
    except RuntimeError as error:
        raise UnsupportedModel(f"{model.name} does not take short inputs, so it cannot be probed: {error}") from error
    # Without targets: nothing of the probe is explained.
    return Trace(model, probe, forward, ())


def _probe_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """Return the first real tokens of the first input, which may be padded on the left."""
    length = longest_text(inputs)
    mask = inputs.tensors.get("attention_mask")
    # A boolean or integer mask: argmax finds the first real token.
    start = 0 if mask is None else int(mask[0].int().argmax())
    tensors = {}
    for name, value in inputs.tensors.items():
        tensors[name] = value[:1]
        # Inputs that describe a whole sample have no axis of tokens.
        if value.dim() > 1 and value.shape[1] == length:
            tensors[name] = value[:1, start : start + PROBE_TOKENS]
    if ANSWER_POSITIONS in tensors:
        # The answer follows the prompt, so that few or none of its tokens are in the probe.
        tensors[ANSWER_POSITIONS] = tensors[ANSWER_POSITIONS].clamp(max=min(length - start, PROBE_TOKENS) - 1)
    return tensors


def _form_chain(tape: Tape, blocks: Sequence[AttentionMap]) -> bool:
    """Whether each block takes the output of the one before it, and nothing bypasses a block."""
    if not _are_adjacent(blocks):
        return False
    hidden_states: list[Tensor] = []
    for block in blocks:
        # A block that takes its hidden state inside a list or tuple cannot be called with another one.
        if block.argument is None or block.before is None or block.after is None:
            return False
        hidden_states += [block.before, block.after]
    return tape.are_cuts(hidden_states)


def _are_adjacent(blocks: Sequence[AttentionMap]) -> bool:
    """Whether each block takes the very output of the one before it."""
    # Anything between two blocks would be skipped when they are run again one by one.
    return all(block.after is following.before for block, following in pairwise(blocks))


@contextmanager
def record_calls(calls: Sequence[BlockCall], recorder: Recorder) -> Iterator["CallHooks"]:
    """Record the arguments of every block call; the recorder's tape leaves the blocks themselves out."""
    hooks = CallHooks(list(calls), recorder)
    handles = [calls[-1].block.register_forward_hook(hooks.restart_tape)]
    # Each module once, though it may be called as several blocks.
    for block in {id(call.block): call.block for call in calls}.values():
        # Before the hooks of others, which run again when the block is repeated.
        handles.append(block.register_forward_pre_hook(hooks.record_arguments, with_kwargs=True, prepend=True))
    try:
        yield hooks
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class CallHooks:
    """The forward hooks of the blocks.

    `remaining` are the calls that are still to come. On the tape, `embedding` is the input of the first block, and
    `last` the output of the last block, with nothing between them.
    """

    remaining: list[BlockCall]
    recorder: Recorder
    embedding: Tensor | None = None
    last: Tensor | None = None

    def record_arguments(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        call = self.remaining.pop(0)
        call.record(args, kwargs)
        if self.embedding is not None:
            return None
        self.embedding = call.hidden
        # Without its graph, so that no block is recorded.
        call.args[call.hidden_argument] = call.hidden.detach()
        return _replace_argument(args, kwargs, call.hidden_argument, call.hidden)

    def restart_tape(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Let the tape go on at the output of the last block."""
        # A network may share one module among its blocks: only the last call counts.
        if self.remaining:
            return output
        if isinstance(output, Tensor):
            self.last = self.recorder.restart(output)
            return self.last
        # Blocks may also return attention maps or caches, after the hidden state.
        self.last = self.recorder.restart(output[0])
        return (self.last, *output[1:])


def _replace_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], argument: int | str, value: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with another value under an index or keyword."""
    if isinstance(argument, str):
        return args, {**kwargs, argument: value}
    return (*args[:argument], value, *args[argument + 1 :]), kwargs


def repeat_recorded(network: nn.Module, call: BlockCall, *, gradients_only: bool = False) -> tuple[Tape, Tensor]:
    """Run one block by itself under a recorder; return its tape and its hidden state."""
    recorder = Recorder(Tape(gradients_only=gradients_only), network)
    modules = composite_modules(call.block)
    with eager_execution(call.hidden.device), frozen(network), hook_modules(modules, recorder):
        hidden = recorder.begin(call.hidden)
        with recorder:
            output = call.repeat(hidden)
    return recorder.tape, first_activation([output])
