"""Stops work that no client waits for any more, before the next forward pass or after the next step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from clearhead.model.model import Model


class _Hook:
    """Runs a function before each forward pass of the network that it is registered with."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action

    def __call__(self, *_: Any) -> None:
        self.action()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Hook":
        # A copy of the network, as in float64, outlives the requests that this hook belongs to.
        return _Hook(lambda: None)


@contextmanager
def call_before_passes(model: Model, action: Callable[[], None]) -> Iterator[None]:
    """Call a function before every forward pass inside, which it may stop by raising."""
    # Hooks, because methods run as many forward passes as they like and know nothing of clients.
    with ExitStack() as stack:
        for version in _list_versions(model):
            for network in _list_networks(version):
                stack.enter_context(network.register_forward_pre_hook(_Hook(action)))
        yield


def _list_versions(model: Model) -> list[Model]:
    """Return the model and its copies with other numbers, in which some methods are computed."""
    copies = [version for _, version in model.copies.values()]
    return [model, *copies]


def _list_networks(model: Model) -> list[Any]:
    # Inputs of two towers are embedded by one of the parts, without a pass of the whole.
    if model.reads_pairs:
        return [model.network.network, *model.network.network.children()]
    # Writing an answer calls the language model itself, not the network around it.
    return [model.network.language_model if model.writes else model.network]
