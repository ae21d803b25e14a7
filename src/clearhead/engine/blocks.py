"""A network at work under a recording: where its blocks begin and end, and what in it is one operation.

All modules that may be blocks are watched in a network's first pass, and only those that were in the next ones, as long
as the network takes the same way.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch.nn.functional as F
from torch import Tensor, nn
from torch._C import DisableTorchFunction

from clearhead.engine.context import eager_execution, frozen, gc_paused, list_modules
from clearhead.engine.lrp.context import is_activation
from clearhead.engine.lrp.rules import unchanged
from clearhead.engine.recorder import Recorder, mark_recomputable
from clearhead.engine.tape import Tape


def is_composite(module: nn.Module) -> bool:
    """Norms and activation functions that are written out in elementary steps but pass relevance as a whole.

    A norm that holds layers with weights of their own is not one, whatever it is called: PreNorm, say.
    """
    kind = type(module)
    if kind in (nn.Softmax, nn.MultiheadAttention, nn.GLU):
        return False
    if kind.__name__.endswith("Norm"):
        return not any(parameter.dim() > 1 for child in module.children() for parameter in child.parameters())
    return kind.__module__ in ("transformers.activations", "torch.nn.modules.activation")


def is_single_call(module: nn.Module) -> bool:
    """Layers that make one call, which the recording sees anyway: they need no hooks."""
    kind = type(module)
    if kind.__module__ == "transformers.activations":
        return getattr(module, "act", None) is F.gelu
    if is_composite(module):
        return kind in (nn.LayerNorm, nn.GELU, nn.SiLU)
    return kind.__module__.startswith("torch.nn.modules") and next(module.children(), None) is None


@contextmanager
def hook_modules(modules: Iterable[nn.Module], mode: Recorder) -> Iterator[None]:
    """Hooks that tell the recording what is one operation, and where the blocks begin and end."""
    with ExitStack() as stack:
        for module in modules:
            before, after = _watch(mode, is_composite(module))
            stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield


def _watch(mode: Recorder, whole: bool) -> tuple[Any, Any]:
    opened: list[int] = []
    own = get_ident()

    def before(module: nn.Module, args: Any, kwargs: Any = None) -> None:
        if get_ident() == own:
            opened.append(len(mode.tape.maps))
            mode.paused += whole

    def after(module: nn.Module, args: Any, kwargs: Any, out: Any = None) -> None:
        # Other threads may run the network for themselves, and meet a hook that is just being taken away.
        if get_ident() != own:
            return
        mode.paused -= whole
        inside = mode.tape.maps[opened.pop() :]
        if not whole and len(inside) != 1:
            return
        with DisableTorchFunction():
            source, result = first_activation([*args, *kwargs.values()]), first_activation([out])
            if whole and not mode.paused and is_activation(result) and mode.tape.node(result) is None:
                mode.tape.write(result, *unchanged(result, source))
                alone = len(module._forward_hooks) == len(module._forward_pre_hooks) == 1
                if alone and not isinstance(module, nn.RReLU):  # which would draw other slopes when it trains again
                    mark_recomputable(result, module.forward, source)
            if len(inside) == 1 and _same_tokens(source, result):
                (found,) = inside
                found.before, found.after, found.block = source, result, module
                found.argument = next((at for at, one in (*enumerate(args), *kwargs.items()) if one is source), None)

    return before, after


def first_activation(values: Any) -> Any:
    for value in values:
        if is_activation(value):
            return value
        if isinstance(value, list | tuple):
            found = first_activation(value)
            if found is not None:
                return found
    return None


def _same_tokens(source: Any, result: Any) -> bool:
    return source is not None and result is not None and source.dim() == 3 and source.shape == result.shape


def composite_modules(network: nn.Module) -> list[nn.Module]:
    """The modules that are one operation in several calls."""
    return [module for module in network.modules() if is_composite(module) and not is_single_call(module)]


@dataclass(frozen=True)
class Known:
    """What a full look at a network has shown: which of its modules to watch, and which is the block of each map."""

    kinds: tuple[type, ...]
    watched: tuple[int, ...]
    blocks: tuple[int | None, ...]


_KNOWN: WeakKeyDictionary[nn.Module, Known] = WeakKeyDictionary()


def record_forward(
    network: nn.Module,
    tensors: dict[str, Tensor],
    words: Tensor | None,
    leaf: str | None,
    head: Callable[[Any], Tensor],
) -> tuple[Tape, Tensor]:
    """Runs the network once; `head` takes the logits out of what it returns.

    `leaf` names the float input, or None where dependence starts at the word table `words`.
    """

    def run(watched: list[nn.Module]) -> tuple[Tape, Tensor]:
        mode = Recorder(Tape(), network, words)
        with gc_paused(), eager_execution(device), frozen(network), hook_modules(watched, mode):
            inputs = {name: tensor.clone() for name, tensor in tensors.items()}
            if leaf is not None:
                inputs[leaf] = mode.begin(inputs[leaf])
            with mode:
                return mode.tape, head(network(**inputs))

    device = next(iter(tensors.values())).device
    modules = list_modules(network)
    kinds, known = tuple(map(type, modules)), _KNOWN.get(network)
    places = {id(module): place for place, module in enumerate(modules)}
    if known is not None and known.kinds == kinds:
        tape, out = run([modules[place] for place in known.watched])
        # Where a network takes another way, other modules may be its blocks.
        if _blocks(tape, places) == known.blocks:
            return tape, out
    tape, out = run([module for module in modules if not is_single_call(module)])
    again = {*map(id, composite_modules(network)), *(id(found.block) for found in tape.blocks)}
    watched = tuple(place for one, place in places.items() if one in again)
    _KNOWN[network] = Known(kinds, watched, _blocks(tape, places))
    return tape, out


def _blocks(tape: Tape, places: dict[int, int]) -> tuple[int | None, ...]:
    """Where the block around each map stands among the modules; None where there is none."""
    return tuple(places.get(id(found.block)) for found in tape.maps)
