"""Balanced backward passes: which operation passes coefficients in which way.

AttnLRP (Achtibat et al. 2024) and CP-LRP (Ali et al. 2022; as balanced gradients: LibraGrad, Mehri et al. 2025) carry a
coefficient c for each activation x, whose relevance is x · c. This is the ε → 0 limit of the ε-rule of layer-wise
relevance propagation without a division by sums that cross zero, so float32 is enough. Linear operations pass
coefficients as they pass gradients. The others:

| operation                   | attn-lrp                            | balanced (CP-LRP)      |
|-----------------------------|-------------------------------------|------------------------|
| LayerNorm, RMSNorm          | gradient, deviation held constant   | the same               |
| activation φ(x)             | c · φ(x)/x, at 0 its limit φ′(0)    | the same               |
| attention A · V             | half to each                        | all to V, and all to A |
| softmax                     | gradient                            | held                   |
| scores Q · Kᵀ               | half to each                        | –                      |
| gate a(g) ⊙ u               | half to each                        | a(g) held, all to u    |
| other products              | half to each                        | half to each           |
| x / ‖x‖, routing to experts | norm and routing held               | the same               |

"Held" means treated as a constant. Under the balanced pass the coefficient at A can be read, but goes no further.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.activation_ratios import Ratio, divide_by_input, find_kind, find_ratio
from clearhead.engine.activation_roles import CHOICES, CONSTANTS, DEVIATIONS, ActivationRoles, split_names
from clearhead.engine.backward import (
    ATTN_LRP,
    BALANCED,
    BackwardSwitch,
    CoefficientRule,
    Factors,
    refuse,
    replace,
    scale,
)
from clearhead.engine.fused_coefficients import FusedNorm, FusedRule, fuse_activation, fuse_norm
from clearhead.engine.lrp.context import is_activation
from clearhead.engine.lrp.saved import SavedTensors
from clearhead.engine.self_gates import ElementwiseSources
from clearhead.engine.torch_calls import find_activations, replace_activations

Function = Callable[..., Any]

HALF: Factors = {ATTN_LRP: 0.5, BALANCED: 0.5}
HALF_IN_ATTN_LRP: Factors = {ATTN_LRP: 0.5}
HELD: Factors = {ATTN_LRP: 0.0, BALANCED: 0.0}
UNCHANGED: Factors = {}
HELD_IN_BALANCED: Factors = {BALANCED: 0.0}
HALF_OR_HELD: Factors = {ATTN_LRP: 0.5, BALANCED: 0.0}
QUARTER_OR_HELD: Factors = {ATTN_LRP: 0.25, BALANCED: 0.0}


LINEAR = split_names(
    """
    linear addmm add sub rsub neg clone contiguous to type float double half bfloat16 type_as sum mean conv1d conv2d
    adaptive_avg_pool1d adaptive_avg_pool2d avg_pool2d max_pool2d dropout batch_norm view reshape flatten unflatten
    squeeze unsqueeze view_as reshape_as transpose swapaxes swapdims permute getitem cat concat concatenate stack split
    chunk unbind tensor_split narrow expand expand_as repeat roll flip gather index_select take_along_dim masked_fill
    where movedim moveaxis repeat_interleave t select tril triu diagonal broadcast_to tile rot90 pad T mT interpolate
    max amax index_add index_put setitem scatter scatter_add cumsum as_strided copy unfold fold view_as_real
    view_as_complex
    """
)
"""Operations whose gradient is their rule; a maximum selects elements."""
ELEMENTWISE = split_names("gelu silu tanh relu elu selu celu leaky_relu relu6 hardswish mish erf clamp abs square pow")
"""Functions of one number with φ(0) = 0."""
SELF_PRODUCTS = split_names("mul multiply")
"""Products that may be an activation function written out, such as x · sigmoid(x)."""
PRODUCTS = split_names("matmul bmm mul multiply einsum grouped_mm _grouped_mm baddbmm")
LAYERS = split_names("linear addmm conv1d conv2d")
"""Linear operations that are products where their weights are an activation, too."""
FIRST_FACTORS = {"einsum": 1, "addmm": 1, "baddbmm": 1}
"""Where the factors begin among the arguments: after an equation or what is added to the product."""
QUOTIENTS = split_names("div truediv divide")
NORM_ARGUMENTS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "normalize": ("input", "p", "dim", "eps"),
}
"""The arguments of torch's norms in their order."""
NORMS_WITHOUT_RULE = split_names("group_norm instance_norm local_response_norm")


class BalancedCalls:
    """Makes the calls of a forward pass so that their backward can be switched.

    `roles` has what activations are to their products, and `sources` tells which are functions of the same one.
    """

    # Given the collections instead of functions of the recorder: a reference to the recorder would make a cycle, and
    # keep all activations alive until the garbage collector runs.
    def __init__(
        self,
        switch: BackwardSwitch,
        saved: SavedTensors,
        *,
        roles: ActivationRoles,
        sources: ElementwiseSources,
    ) -> None:
        self._switch = switch
        self._saved = saved
        self._roles = roles
        self._sources = sources

    def call(self, name: str, function: Function, args: Any, kwargs: Any, describe: Callable[[], str]) -> Any:
        """Call a function; `describe` names the operation in the error of a function without a rule."""
        if name in PRODUCTS or name in LAYERS:
            return self._multiply(name, function, args, kwargs, describe)
        if name in QUOTIENTS:
            args, kwargs = self._hold_divisor(args, kwargs)
            return function(*args, **kwargs)
        if name == "softmax":
            return function(scale(args[0], self._switch, HELD_IN_BALANCED), *args[1:], **kwargs)
        if name == "attention_weights":
            query = scale(args[0], self._switch, HALF_OR_HELD)
            key = scale(args[1], self._switch, HALF_OR_HELD)
            return function(query, key, *args[2:], **kwargs)
        if name == "scaled_dot_product_attention":
            return function(*self._scale_attention(*args), **kwargs)
        return self._replace_backward(name, function, args, kwargs, describe)

    def call_in_norm(self, name: str, function: Function, args: Any, kwargs: Any, describe: Callable[[], str]) -> Any:
        """Call a function inside a norm that is written out in steps: with the deviation held, the rest is linear."""
        out = function(*args, **kwargs)
        if not is_activation(out):
            return out
        if name in DEVIATIONS or _is_negative_power(name, args):
            return scale(out, self._switch, HELD)
        if name in NORMS_WITHOUT_RULE:
            return refuse(out, self._switch, describe())
        rule = _find_norm_rule(name, args, kwargs)
        if rule is None:
            return out
        return replace(out, args[0], self._switch, rule)

    def replace_activation(self, out: Tensor, x: Tensor, function: Function) -> Tensor:
        """Return the output of an activation function that is a module of its own."""
        return replace(out, x, self._switch, activation_rule(partial(divide_by_input, function)))

    def _multiply(self, name: str, function: Function, args: Any, kwargs: Any, describe: Callable[[], str]) -> Any:
        """Call a product, in which each of two activations gets its share."""
        factors = _find_factors(name, args, kwargs)
        # A product with a constant is linear.
        if len(factors) < 2:
            return function(*args, **kwargs)
        if len(factors) > 2:
            return refuse(function(*args, **kwargs), self._switch, describe())
        args, kwargs = _replace_factors(name, args, kwargs, self._scale_factors(name, *factors))
        return function(*args, **kwargs)

    def _scale_factors(self, name: str, left: Tensor, right: Tensor) -> Iterator[Tensor]:
        left_factors, right_factors = self._product_factors(name, left, right)
        yield scale(left, self._switch, left_factors)
        yield scale(right, self._switch, right_factors)

    def _scale_attention(self, query: Tensor, key: Tensor, value: Tensor, *args: Any) -> tuple[Any, ...]:
        """Return the operands of a fused attention: queries and keys are factors of two products, values of one."""
        query = scale(query, self._switch, QUARTER_OR_HELD)
        key = scale(key, self._switch, QUARTER_OR_HELD)
        value = scale(value, self._switch, HALF_IN_ATTN_LRP)
        return query, key, value, *args

    def _product_factors(self, name: str, left: Tensor, right: Tensor) -> tuple[Factors, Factors]:
        left_node = self._saved.node_of(left)
        right_node = self._saved.node_of(right)
        # The other factor gets all, as in a product with a constant.
        if left_node in self._roles.held:
            return HELD, UNCHANGED
        if right_node in self._roles.held:
            return UNCHANGED, HELD
        if not self._roles.softmaxes.isdisjoint((left_node, right_node)):
            # An attention map, or the weights of a pooling head, and values.
            return HALF_IN_ATTN_LRP, HALF_IN_ATTN_LRP
        if name not in SELF_PRODUCTS:
            return HALF, HALF
        gated = self._sources.find_gated(left_node, right_node)
        if gated is not None:
            # x · g(x) is a function φ of x, and g(x) = φ(x)/x.
            return (UNCHANGED, HELD) if gated == 0 else (HELD, UNCHANGED)
        return self._gate_factors(left_node in self._roles.gates, right_node in self._roles.gates)

    @staticmethod
    def _gate_factors(is_left_gate: bool, is_right_gate: bool) -> tuple[Factors, Factors]:
        # With two gates or none, no factor is the gated one.
        if is_left_gate == is_right_gate:
            return HALF, HALF
        if is_left_gate:
            return HALF_OR_HELD, HALF_IN_ATTN_LRP
        return HALF_IN_ATTN_LRP, HALF_OR_HELD

    def _hold_divisor(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        # Division by a constant is linear.
        if len(args) > 1 and is_activation(args[1]):
            return (args[0], scale(args[1], self._switch, HELD), *args[2:]), kwargs
        if is_activation(kwargs.get("other")):
            return args, {**kwargs, "other": scale(kwargs["other"], self._switch, HELD)}
        return args, kwargs

    def _replace_backward(
        self, name: str, function: Function, args: Any, kwargs: Any, describe: Callable[[], str]
    ) -> Any:
        out = function(*args, **kwargs)
        if isinstance(out, (list, tuple)):
            outputs = [self._replace_output(name, function, tensor, args, kwargs, describe) for tensor in out]
            # Named tuples of torch (values and indices) take one sequence, as lists and tuples do.
            return type(out)(outputs)
        return self._replace_output(name, function, out, args, kwargs, describe)

    def _replace_output(
        self, name: str, function: Function, out: Any, args: Any, kwargs: Any, describe: Callable[[], str]
    ) -> Any:
        if not is_activation(out):
            return out
        if name in CONSTANTS or name in CHOICES:
            return scale(out, self._switch, HELD)
        rule = _find_rule(name, function, args, kwargs)
        # A function that has overwritten its input cannot be divided by it; ReLU leaves the ratio as it was.
        if rule is None or (out is args[0] and name != "relu"):
            return refuse(out, self._switch, describe())
        return replace(out, args[0], self._switch, rule)


def multiplies(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether a linear operation is a product of activations, because its weights are one."""
    return name in LAYERS and len(_find_factors(name, args, kwargs)) > 1


def _find_factors(name: str, args: Any, kwargs: Any) -> list[Tensor]:
    _, operands = _split_arguments(name, args)
    return find_activations(operands, kwargs)


def _split_arguments(name: str, args: Any) -> tuple[Any, Any]:
    """Return the arguments of a product before its factors, and the others."""
    first = FIRST_FACTORS.get(name, 0)
    return args[:first], args[first:]


def _replace_factors(name: str, args: Any, kwargs: Any, factors: Iterator[Tensor]) -> tuple[Any, Any]:
    """Return the arguments of a product with others in place of its activations."""
    first = FIRST_FACTORS.get(name, 0)
    rest = replace_activations(args[first:], factors)
    return (*args[:first], *rest), replace_activations(kwargs, factors)


def _is_negative_power(name: str, args: Any) -> bool:
    return name == "pow" and len(args) > 1 and not isinstance(args[1], Tensor) and args[1] < 0


def _find_rule(name: str, function: Function, args: Any, kwargs: Any) -> CoefficientRule | None:
    # The rule needs the input by position, where `replace` reads it.
    if not args or not is_activation(args[0]):
        return None
    # x⁻ⁿ has no value at 0.
    if name in ELEMENTWISE and not _is_negative_power(name, args):
        return activation_rule(find_ratio(name, function, args, kwargs), find_kind(name, args, kwargs))
    return _find_norm_rule(name, args, kwargs)


def _find_norm_rule(name: str, args: Any, kwargs: Any) -> CoefficientRule | None:
    if name not in NORM_ARGUMENTS or not args:
        return None
    bound = {**dict(zip(NORM_ARGUMENTS[name], args, strict=False)), **kwargs}
    if name == "normalize":
        return unit_norm_rule(bound.get("p", 2.0), bound.get("dim", 1), bound.get("eps", 1e-12))
    axes = len(bound["normalized_shape"])
    if name == "layer_norm":
        return layer_norm_rule(axes, bound.get("weight"), bound.get("eps", 1e-5))
    return rms_norm_rule(axes, bound.get("weight"), bound.get("eps"))


def activation_rule(ratio: Ratio, kind: str | None = None) -> CoefficientRule:
    """Return the rule c · φ(x)/x of an elementwise function with φ(0) = 0, given φ(x)/x and how kernels call it."""

    def rule(x: Tensor, coefficient: Tensor) -> Tensor:
        return (coefficient * ratio(x.detach())).to(coefficient.dtype)

    return _prefer_kernel(partial(fuse_activation, kind), rule)


def layer_norm_rule(axes: int, weight: Tensor | None, eps: float) -> CoefficientRule:
    """Return the gradient of LayerNorm with the standard deviation held constant; the centring stays."""
    last_axes = _last_axes(axes)

    def rule(x: Tensor, coefficient: Tensor) -> Tensor:
        variance = x.detach().var(last_axes, unbiased=False, keepdim=True)
        scaled = _times(coefficient, weight) * torch.rsqrt(variance + eps)
        return scaled - scaled.mean(last_axes, keepdim=True)

    return _prefer_kernel(partial(fuse_norm, FusedNorm(axes, weight, eps, centred=True)), rule)


def rms_norm_rule(axes: int, weight: Tensor | None, eps: float | None) -> CoefficientRule:
    """Return the gradient of RMSNorm with the root mean square held constant."""
    last_axes = _last_axes(axes)

    def rule(x: Tensor, coefficient: Tensor) -> Tensor:
        # torch's default is the precision of the input.
        epsilon = torch.finfo(x.dtype).eps if eps is None else eps
        mean_square = x.detach().square().mean(last_axes, keepdim=True)
        return _times(coefficient, weight) * torch.rsqrt(mean_square + epsilon)

    return _prefer_kernel(partial(fuse_norm, FusedNorm(axes, weight, eps)), rule)


def unit_norm_rule(power: float, axis: int, eps: float) -> CoefficientRule:
    """Return the gradient of x/‖x‖ with the norm held constant."""

    def rule(x: Tensor, coefficient: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x.detach(), power, axis, keepdim=True)
        return coefficient / norm.clamp(min=eps)

    return rule


def _prefer_kernel(fuse: FusedRule, rule: CoefficientRule) -> CoefficientRule:
    """Return a rule that is computed by a fused kernel where there is one."""

    def prefer_kernel(x: Tensor, coefficient: Tensor) -> Tensor:
        fused = fuse(x, coefficient)
        return rule(x, coefficient) if fused is None else fused

    return prefer_kernel


def _last_axes(count: int) -> tuple[int, ...]:
    return tuple(range(-count, 0))


def _times(coefficient: Tensor, weight: Tensor | None) -> Tensor:
    return coefficient if weight is None else coefficient * weight
