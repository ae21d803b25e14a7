"""Outputs of named modules that a forward pass keeps, so that the relevance of their units can be read."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from torch import Tensor, nn

from clearhead.errors import BadOption, UnknownName, UnsupportedModel, UnsupportedOperation

MAX_SUGGESTIONS = 3


class KeptOutput(NamedTuple):
    """The output of one call of a module, and how often it had been written to by then."""

    tensor: Tensor
    version: int


ModuleOutputs = Mapping[str, Sequence[KeptOutput]]
"""The outputs of every call of the modules that are kept, by name."""


def check_module_names(network: nn.Module, names: Sequence[str]) -> None:
    """Raise UnknownName unless the network has modules of all these names."""
    # A network has hundreds of modules, and most passes keep none.
    available = dict(network.named_modules()) if names else {}
    for name in names:
        if name not in available:
            raise UnknownName(f"No module of {type(network).__name__} is called '{name}'. {_suggest(name, available)}")


def _suggest(name: str, available: Mapping[str, nn.Module]) -> str:
    matches = get_close_matches(name, available, n=MAX_SUGGESTIONS)
    if matches:
        return f"Similar names: {', '.join(matches)}."
    # A network has hundreds of modules, too many to list.
    return "The network's `named_modules()` lists the names."


def find_output(outputs: ModuleOutputs, name: str, call: int) -> Tensor:
    """Return the output of one call of a kept module; raise an error that says why it cannot be read."""
    _check_is_kept(outputs, name)
    kept = _select_call(name, outputs[name], call)
    _check_is_intact(name, kept)
    return kept.tensor


def _select_call(name: str, calls: Sequence[KeptOutput], call: int) -> KeptOutput:
    _check_call(name, call, len(calls))
    return calls[call]


def _check_is_intact(name: str, kept: KeptOutput) -> None:
    # An activation that was overwritten no longer has the value that the module returned.
    if kept.tensor._version != kept.version:
        raise UnsupportedOperation(f"The network overwrites the output of '{name}' in place: choose another module.")


def _check_call(name: str, call: int, count: int) -> None:
    _require_calls(name, count)
    if not 0 <= call < count:
        raise BadOption(f"Invalid call={call!r}: the module '{name}' was called {count} times, counted from 0.")


def _require_calls(name: str, count: int) -> None:
    if count == 0:
        raise UnsupportedModel(f"The module '{name}' was not called, or its output does not depend on the input.")


def _check_is_kept(outputs: ModuleOutputs, name: str) -> None:
    if name in outputs:
        return
    _require_outputs(outputs, name)
    raise BadOption(f"This trace keeps no output of '{name}'. Available: {', '.join(outputs)}.")


def _require_outputs(outputs: ModuleOutputs, name: str) -> None:
    if not outputs:
        raise BadOption(f"This trace keeps no outputs of modules: capture it with modules=({name!r},).")
