"""Calls of a network's blocks: found on a short probe, recorded with their arguments, and run again one by one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from torch import Tensor, nn
from transformers import Cache

from clearhead.engine.blocks import first_activation, hook_modules
from clearhead.engine.composite_modules import composite_modules
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.forward import ForwardPass
from clearhead.engine.recorded_pass import run_forward
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
        for position, value in enumerate(args):
            self.args[position] = _drop_cache(value)
        for name, value in kwargs.items():
            self.args[name] = _drop_cache(value)

    @property
    def hidden(self) -> Tensor:
        """The hidden state that the block received."""
        hidden: Tensor = self.args[self.hidden_argument]
        return hidden

    def repeat(self, hidden: Tensor) -> Any:
        """Run the block on the recorded arguments with another hidden state."""
        arguments = {**self.args, self.hidden_argument: hidden}
        kwargs = _select_keywords(arguments)
        args = [arguments[position] for position in range(len(arguments) - len(kwargs))]
        return self.block(*args, **kwargs)


def _drop_cache(value: Any) -> Any:
    # A generating model appends keys and values to its cache: run again, a block would see them twice.
    if isinstance(value, Cache):
        return None
    return value


def _select_keywords(arguments: Mapping[int | str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if isinstance(key, str)}


def find_block_calls(model: Model, inputs: Inputs) -> list[BlockCall]:
    """Return the blocks in their order, found on a short probe of the input that is traced in full."""
    _require_one_stack(model)
    _require_unchanging(model)
    trace = _trace_probe(model, inputs)
    trace.require_token_maps()
    _require_chain(model, trace.forward.tape)
    # In a chain every block has a module and an argument.
    return [BlockCall(block.block, block.argument) for block in trace.forward.tape.blocks]  # type: ignore[arg-type]


def _require_chain(model: Model, tape: Tape) -> None:
    if not _form_chain(tape, tape.blocks):
        raise UnsupportedModel(
            f"The blocks of {model.name} do not follow each other one by one, so it cannot be explained block by block."
        )


def _trace_probe(model: Model, inputs: Inputs) -> Trace:
    """Trace some tokens of the first input."""
    probe = as_inputs(model, _probe_tensors(inputs))
    # Without targets: nothing of the probe is explained.
    return Trace(model, probe, _run_probe(model, probe), ())


def _require_one_stack(model: Model) -> None:
    if model.is_encoder_decoder:
        raise UnsupportedModel(f"{model.name} has two stacks of blocks, so it cannot be explained block by block.")


def _require_unchanging(model: Model) -> None:
    if any(map(_changes_for_short_inputs, model.network.modules())):
        raise UnsupportedModel(f"{model.name} changes itself when it sees a short input, so it cannot be probed.")


def _changes_for_short_inputs(module: nn.Module) -> bool:
    # BigBird switches for good to full attention when it sees a short input.
    return hasattr(module, "set_attention_type")


def _run_probe(model: Model, probe: Inputs) -> ForwardPass:
    try:
        return run_forward(model, probe)
    except RuntimeError as error:
        raise UnsupportedModel(f"{model.name} does not take short inputs, so it cannot be probed: {error}") from error


def _probe_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """Return the first real tokens of the first input, which may be padded on the left."""
    length = longest_text(inputs)
    start = _first_real_token(inputs.tensors.get("attention_mask"))
    tokens = slice(start, start + PROBE_TOKENS)
    tensors = {name: _cut_probe(value, tokens, length) for name, value in inputs.tensors.items()}
    if ANSWER_POSITIONS in tensors:
        # The answer follows the prompt, so that few or none of its tokens are in the probe.
        tensors[ANSWER_POSITIONS] = tensors[ANSWER_POSITIONS].clamp(max=min(length - start, PROBE_TOKENS) - 1)
    return tensors


def _first_real_token(mask_BT: Tensor | None) -> int:
    """Return the first token of the first input that is not padding."""
    if mask_BT is None:
        return 0
    # A boolean or integer mask: argmax finds the first real token.
    return int(mask_BT[0].int().argmax())


def _cut_probe(value: Tensor, tokens: slice, length: int) -> Tensor:
    """Return the first sample of an input tensor, with some of its tokens if it has an axis of them."""
    if _has_tokens(value, length):
        return value[:1, tokens]
    return value[:1]


def _has_tokens(value: Tensor, length: int) -> bool:
    # Inputs that describe a whole sample have no axis of tokens.
    return value.dim() > 1 and value.shape[1] == length


def _form_chain(tape: Tape, blocks: Sequence[AttentionMap]) -> bool:
    """Whether each block takes the output of the one before it, and nothing bypasses a block."""
    if not _are_adjacent(blocks):
        return False
    # A block that takes its hidden state inside a list or tuple cannot be called with another one.
    if any(block.argument is None for block in blocks):
        return False
    return tape.are_cuts(_list_states(blocks))


def _list_states(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    """Return the inputs and outputs of blocks, which every block with an argument has."""
    states = [(block.before, block.after) for block in blocks]
    return list(chain(*states))  # type: ignore[arg-type]


def _are_adjacent(blocks: Sequence[AttentionMap]) -> bool:
    """Whether each block takes the very output of the one before it."""
    # Anything between two blocks would be skipped when they are run again one by one.
    return all(block.after is following.before for block, following in pairwise(blocks))


@contextmanager
def record_calls(calls: Sequence[BlockCall], recorder: Recorder) -> Iterator["CallHooks"]:
    """Record the arguments of every block call; the recorder's tape leaves the blocks themselves out."""
    hooks = CallHooks(list(calls), recorder)
    handles = [calls[-1].block.register_forward_hook(hooks.restart_tape)]
    for block in _distinct_blocks(calls):
        # Before the hooks of others, which run again when the block is repeated.
        handles.append(block.register_forward_pre_hook(hooks.record_arguments, with_kwargs=True, prepend=True))
    try:
        yield hooks
    finally:
        for handle in handles:
            handle.remove()


def _distinct_blocks(calls: Sequence[BlockCall]) -> list[nn.Module]:
    """Return each module once, though it may be called as several blocks."""
    by_id = {id(call.block): call.block for call in calls}
    return list(by_id.values())


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
    return _replace_item(args, argument, value), kwargs


def _replace_item(items: tuple[Any, ...], index: int, value: Tensor) -> tuple[Any, ...]:
    return (*items[:index], value, *items[index + 1 :])


def repeat_recorded(network: nn.Module, call: BlockCall, *, gradients_only: bool = False) -> tuple[Tape, Tensor]:
    """Run one block by itself under a recorder; return its tape and its hidden state."""
    recorder = Recorder(Tape(gradients_only=gradients_only), network)
    # The block is known, so only composite modules need hooks.
    modules = composite_modules(call.block)
    with eager_execution(call.hidden.device), frozen(network), hook_modules(modules, recorder):
        hidden = recorder.begin(call.hidden)
        with recorder:
            output = call.repeat(hidden)
    return recorder.tape, first_activation([output])
