"""What a module computes its output from, besides its input: what was found out about it holds until that changes."""

from typing import Any

from torch import nn

# Types of attributes by which a module chooses what it computes, such as the adapter that it uses.
SETTING_TYPES = frozenset([bool, int, float, str])


def describe_module(module: nn.Module) -> tuple[Any, ...]:
    """Return the addresses of a module's weights, its settings, and the code of others that runs with it."""
    hooks = (*module._forward_hooks, *module._forward_pre_hooks)
    return (id(module), module.__dict__.get("forward"), hooks, _list_settings(module), *_list_addresses(module))


def _list_addresses(module: nn.Module) -> list[int]:
    weights = (*module._parameters.values(), *module._buffers.values())
    return [weight.data_ptr() for weight in weights if weight is not None]


def _list_settings(module: nn.Module) -> list[Any]:
    """Return the plain values of a module's attributes, and of lists among them."""
    settings: list[Any] = []
    for value in vars(module).values():
        if type(value) in SETTING_TYPES:
            settings.append(value)
        elif type(value) is list:
            settings.append([item for item in value if type(item) in SETTING_TYPES])
    return settings
