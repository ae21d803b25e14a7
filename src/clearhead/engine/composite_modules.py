"""Modules that are one operation for relevance, though they may make several torch calls: norms and activations."""

import torch.nn.functional as F
from torch import nn

ACTIVATION_PACKAGES = ("transformers.activations", "torch.nn.modules.activation")
SEALED_ACTIVATIONS = ("BloomGelu",)  # Without torch calls that the recorder would see.
# Attention maps are found by their softmax, and a GLU multiplies two activations.
NOT_COMPOSITE = (nn.Softmax, nn.MultiheadAttention, nn.GLU)


def is_composite(module: nn.Module) -> bool:
    """Return whether a module is a norm or activation function: several operations that pass relevance as one.

    A norm with layers of its own (PreNorm) is not one, whatever its name.
    """
    module_type = type(module)
    if module_type in NOT_COMPOSITE:
        return False
    if is_norm(module):
        return not _has_layers(module)
    return module_type.__module__ in ACTIVATION_PACKAGES or module_type.__name__ in SEALED_ACTIVATIONS


def is_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("Norm")


def _has_layers(module: nn.Module) -> bool:
    # The weight of a norm itself may have several axes, so only its children are asked.
    return any(map(_has_matrix, module.children()))


def _has_matrix(module: nn.Module) -> bool:
    return any(parameter.dim() > 1 for parameter in module.parameters())


def is_single_call(module: nn.Module) -> bool:
    """Return whether a module makes one torch call, which the recorder sees without a hook."""
    module_type = type(module)
    if module_type.__module__ == "transformers.activations":
        # The classes there write their formula out, but for those that hold torch's function.
        return getattr(module, "act", None) is F.gelu
    if is_composite(module):
        return module_type in (nn.LayerNorm, nn.GELU, nn.SiLU)
    return module_type.__module__.startswith("torch.nn.modules") and _has_no_children(module)


def _has_no_children(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def composite_modules(network: nn.Module) -> list[nn.Module]:
    """Return the modules that are one operation in several torch calls."""
    return [module for module in network.modules() if is_composite(module) and not is_single_call(module)]
