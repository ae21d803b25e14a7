"""Forward passes under a recorder, with hooks that find the blocks and the modules that are one operation.

The first pass of a network hooks every module that may be a block. Later passes hook only the blocks that were found,
as long as the network uses the same ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.utils.hooks import RemovableHandle

from clearhead.engine.composite_modules import composite_modules, is_composite, is_norm, is_single_call
from clearhead.engine.context import eager_execution, frozen, gc_paused, list_modules
from clearhead.engine.lookups import list_sequence_lookups
from clearhead.engine.lrp.context import is_activation
from clearhead.engine.lrp.rules import unchanged
from clearhead.engine.module_outputs import KeptOutput
from clearhead.engine.recorder import Recorder
from clearhead.engine.tape import AttentionMap, Tape
from clearhead.errors import UnsupportedModel
from clearhead.model.language import SOURCE_LENGTH

# Integers that stand for the weights of a quantised layer.
CODES = (torch.int8, torch.uint8)


@contextmanager
def hook_modules(modules: Iterable[nn.Module], recorder: Recorder) -> Iterator[None]:
    """Hook modules so that composite ones are recorded as one operation, and blocks are found."""
    with ExitStack() as stack:
        for module in modules:
            # One by one, so that all are removed even if a later registration fails.
            for handle in _register_hooks(module, recorder):
                stack.callback(handle.remove)
        yield


def _register_hooks(module: nn.Module, recorder: Recorder) -> Iterator[RemovableHandle]:
    is_one_operation = is_composite(module)
    hooks = _ModuleHooks(recorder, is_one_operation, is_one_operation and is_norm(module))
    yield module.register_forward_pre_hook(hooks.before, with_kwargs=True)
    yield module.register_forward_hook(hooks.after, with_kwargs=True)


@contextmanager
def keep_outputs(network: nn.Module, names: Iterable[str], tape: Tape) -> Iterator[None]:
    """Keep the outputs of named modules on the tape.

    After `hook_modules`, so that the output is kept that takes the place of an activation module's own.
    """
    with ExitStack() as stack:
        for name in names:
            tape.module_outputs[name] = []
            hook = _make_keeping_hook(tape.module_outputs[name])
            stack.callback(network.get_submodule(name).register_forward_hook(hook).remove)
        yield


def _make_keeping_hook(outputs: list[KeptOutput]) -> Callable[..., None]:
    thread = get_ident()

    def keep(module: nn.Module, args: Any, out: Any) -> None:
        # Other threads may run the network meanwhile.
        if get_ident() != thread:
            return
        activation = first_activation([out])
        if activation is not None:
            outputs.append(KeptOutput(activation, activation._version))

    return keep


class _ModuleHooks:
    """The forward hooks of one module.

    Other threads may run the network meanwhile; their calls are ignored. A hook that is being removed may be called
    without its keyword arguments there, hence the default values.
    """

    def __init__(self, recorder: Recorder, is_composite: bool, is_norm: bool) -> None:
        self._recorder = recorder
        self._is_composite = is_composite
        self._is_norm = is_norm
        self._thread = get_ident()
        # A stack, because a module may call itself.
        self._map_counts: list[int] = []

    def before(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        if get_ident() != self._thread:
            return
        self._map_counts.append(len(self._recorder.tape.maps))
        # Paused inside composite modules: a counter, since they may contain each other.
        self._recorder.paused += self._is_composite
        self._recorder.norm_depth += self._is_norm

    def after(self, module: nn.Module, args: Any, kwargs: Any, out: Any = None) -> Any:
        """Record the module; return the output that takes the place of `out`, or None to keep it."""
        if get_ident() != self._thread:
            return None
        maps = self._leave()
        if not self._is_composite and all(attention.block is None for attention in maps):
            self._note_plain(module, maps, [*args, *kwargs.values()], out)
        # Otherwise the recorder would see the tensor attributes that are read here.
        with DisableTorchFunction():
            _refuse_sealed(module, out)
        # A module with more maps holds several blocks.
        if not self._is_composite and len(maps) not in (1, 2):
            return None
        with DisableTorchFunction():
            source = first_activation([*args, *kwargs.values()])
            result = first_activation([out])
            replaced = None
            if self._is_composite:
                replaced = self._record_composite(module, source, result)
            # A module with one attention map that keeps the tokens is a block; outer modules overwrite inner ones.
            if len(maps) == 1 and _have_same_tokens(source, result):
                argument = _find_argument(source, args, kwargs)
                _set_block(maps[0], module, source, result, argument)
            elif self._is_decoder_block(maps, [*args, *kwargs.values()], result):
                _set_decoder_block(maps, module, source, result)
        return replaced

    def _note_plain(self, module: nn.Module, maps: list[AttentionMap], values: list[Any], out: Any) -> None:
        """Note a module that keeps the tokens without attention, or attends without keeping them."""
        with DisableTorchFunction():
            if maps or _have_same_tokens(first_activation(values), first_activation([out])):
                self._recorder.tape.plain.add(module)

    def _leave(self) -> list[AttentionMap]:
        """Undo `before`; return the attention maps that the call of the module has computed."""
        self._recorder.paused -= self._is_composite
        self._recorder.norm_depth -= self._is_norm
        return self._recorder.tape.maps[self._map_counts.pop() :]

    def _is_decoder_block(self, maps: list[AttentionMap], values: list[Any], result: Any) -> bool:
        """Return whether a module with two maps looks at its own sequence, then at another that it is given."""
        if not self._recorder.has_sequences or len(maps) != 2:
            return False
        sequences = list(filter(_is_sequence, values))
        return len(sequences) == 2 and _have_same_tokens(sequences[0], result)

    def _record_composite(self, module: nn.Module, source: Any, result: Any) -> Tensor | None:
        """Record a norm or activation function as one operation; return the output that replaces an activation's."""
        tape = self._recorder.tape
        # Recorded as a step of a larger module, or on the tape already.
        if self._recorder.paused or not is_activation(result) or tape.node_of(result) is not None:
            return None
        replaced = None
        if not self._is_norm:
            result = replaced = self._recorder.replace_activation(result, source, module)
        tape.record(result, *unchanged(tape.saved, result, source))
        if _is_recomputable(module):
            tape.saved.mark_recomputable(result, module.forward, source)
        if replaced is not None:
            # It may gate another activation, as in SwiGLU.
            self._recorder.note_gate(replaced)
        return replaced


def _refuse_sealed(module: nn.Module, out: Any) -> None:
    """Raise UnsupportedModel for a quantised layer without a gradient: residuals around it would hide the gap."""
    weights = [*module._parameters.values(), *module._buffers.values()]
    is_quantised = any(weight is not None and weight.dtype in CODES for weight in weights)
    if is_quantised and isinstance(out, Tensor) and out.is_floating_point() and not out.requires_grad:
        raise UnsupportedModel(
            f"{type(module).__name__} is quantised with a kernel that has no gradient. Load the model unquantised."
        )


def _is_sequence(value: Any) -> bool:
    """Return whether a value has the axes of hidden states: samples, tokens and features."""
    return is_activation(value) and value.dim() == 3


def _is_recomputable(module: nn.Module) -> bool:
    """Return whether calling `module.forward` again is cheap and gives the same result."""
    # RReLU draws random slopes once the network is back in training mode. Repeating a norm costs more than it saves.
    if isinstance(module, nn.RReLU) or is_norm(module):
        return False
    return _has_no_other_hooks(module)


def _has_no_other_hooks(module: nn.Module) -> bool:
    # Hooks of others may change the result, and they do not run with `forward`. The one of each sort is ours.
    return len(module._forward_hooks) <= 1 and len(module._forward_pre_hooks) <= 1


def _set_block(
    attention: AttentionMap, block: nn.Module, source: Tensor, result: Tensor, argument: int | str | None
) -> None:
    attention.block = block
    attention.before = source
    attention.after = result
    attention.argument = argument


def _set_decoder_block(maps: list[AttentionMap], block: nn.Module, source: Tensor, result: Tensor) -> None:
    # The block looks at its own sequence first.
    maps[1].is_cross = True
    for attention in maps:
        _set_block(attention, block, source, result, None)


def _find_argument(tensor: Tensor, args: Any, kwargs: Any) -> int | str | None:
    """Return the index or keyword of a tensor among the arguments, or None if it is inside one of them."""
    return _find_key(chain(enumerate(args), kwargs.items()), tensor)


def _find_key(items: Iterable[tuple[int | str, Any]], tensor: Tensor) -> int | str | None:
    for key, value in items:
        # By identity: equal values may be in other arguments.
        if value is tensor:
            return key
    return None


def first_activation(values: Any) -> Any:
    """Return the first activation among values and in lists among them, or None."""
    for value in values:
        if is_activation(value):
            return value
        if isinstance(value, list | tuple):
            activation = first_activation(value)
            if activation is not None:
                return activation
    return None


def _have_same_tokens(source: Any, result: Any) -> bool:
    return source is not None and result is not None and source.dim() == 3 and source.shape == result.shape


@dataclass(frozen=True)
class _Layout:
    """What the first pass of a network has found, as indices into its list of modules.

    `hooked` are the blocks and the composite modules; `blocks` has the block of each attention map, None if it has
    none. `has_gaps` is the tape's.
    """

    module_types: tuple[type, ...]
    hooked: tuple[int, ...]
    blocks: tuple[int | None, ...]
    has_gaps: bool


# Weak keys do not keep networks alive.
_LAYOUTS: WeakKeyDictionary[nn.Module, _Layout] = WeakKeyDictionary()


def record_forward(
    network: nn.Module,
    tensors: dict[str, Tensor],
    words: Tensor | None,
    leaf: str | None,
    head: Callable[[Any], Tensor],
    kept: Sequence[str] = (),
    *,
    gradients_only: bool = False,
) -> tuple[Tape, Tensor]:
    """Run the network once and return its tape and logits; `head` extracts the logits from the network's output.

    `leaf` names the float input, or is None if the input is looked up in the embedding table `words`. `kept` names
    modules whose outputs are kept on the tape.
    """

    def run(hooked: list[nn.Module]) -> tuple[Tape, Tensor]:
        recorder = Recorder(Tape(gradients_only=gradients_only), network, words)
        return recorder.tape, run_recorded(recorder, tensors, leaf, head, hooked, kept)

    modules = list_modules(network)
    module_types = tuple(map(type, modules))
    layout = _find_layout(network, module_types)
    if layout is not None:
        tape, logits = run([modules[index] for index in layout.hooked])
        # A network that takes another path may have other blocks: then it is run again with all hooks.
        if _find_blocks(tape, modules) == layout.blocks:
            tape.has_gaps = layout.has_gaps
            return tape, logits
    # The modules are listed anew: BigBird exchanges its own at the first short text.
    modules = list_modules(network)
    tape, logits = run(_select_possible_blocks(modules))
    if list_modules(network) != modules:
        return record_forward(network, tensors, words, leaf, head, kept, gradients_only=gradients_only)
    blocks = _find_blocks(tape, modules)
    tape.has_gaps = _have_gaps(tape, modules)
    _LAYOUTS[network] = _Layout(module_types, _select_hooked(network, modules, blocks), blocks, tape.has_gaps)
    return tape, logits


def _find_layout(network: nn.Module, module_types: tuple[type, ...]) -> _Layout | None:
    """Return what the first pass has found, or None if there was none for the network as it is now."""
    layout = _LAYOUTS.get(network)
    # Other types: modules were added or exchanged since.
    if layout is None or layout.module_types != module_types:
        return None
    return layout


def _select_possible_blocks(modules: list[nn.Module]) -> list[nn.Module]:
    return [module for module in modules if not is_single_call(module)]


def run_recorded(
    recorder: Recorder,
    tensors: dict[str, Tensor],
    leaf: str | None,
    head: Callable[[Any], Tensor],
    hooked: list[nn.Module],
    kept: Sequence[str] = (),
) -> Tensor:
    """Run a recorder's network with hooks on some of its modules, and return the logits."""
    network = recorder.network
    with (
        gc_paused(),
        eager_execution(input_device(tensors)),
        frozen(network),
        hook_modules(hooked, recorder),
        keep_outputs(network, kept, recorder.tape),
    ):
        inputs = clone_tensors(tensors)
        recorder.has_sequences = SOURCE_LENGTH in inputs
        if leaf is not None:
            inputs[leaf] = recorder.begin(inputs[leaf])
        elif SOURCE_LENGTH in inputs:
            recorder.begin_sequences(list_sequence_lookups(network, inputs))
        else:
            recorder.ids = inputs.get("input_ids")
        with recorder:
            logits = head(network(**inputs))
    if recorder.lookups is not None and not recorder.lookups.are_done:
        # One of two sequences was looked up in other words than were given.
        recorder.tape.layouts.append(None)
    return logits


def input_device(tensors: Mapping[str, Tensor]) -> torch.device:
    """Return the device of a network's inputs, which are all on the same."""
    return next(iter(tensors.values())).device


def clone_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy the inputs of a network, which may write to them in place."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _find_blocks(tape: Tape, modules: list[nn.Module]) -> tuple[int | None, ...]:
    """Return the index of the block around each attention map; None if it has none."""
    indices = {id(module): index for index, module in enumerate(modules)}
    return tuple(indices.get(id(attention.block)) for attention in tape.maps)


def _have_gaps(tape: Tape, modules: list[nn.Module]) -> bool:
    """Return whether a list of blocks has others among them: linear attention, state spaces, merged tokens (Hiera)."""
    blocks = {attention.block for attention in tape.maps}
    others = tape.plain - blocks
    lists = [set(module.children()) for module in modules if isinstance(module, nn.ModuleList)]
    return any(children & blocks and children & others for children in lists)


def _select_hooked(network: nn.Module, modules: list[nn.Module], blocks: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the indices of the modules that later passes hook: blocks and composite modules."""
    composite = set(map(id, composite_modules(network)))
    return tuple(index for index, module in enumerate(modules) if index in blocks or id(module) in composite)
