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

from collections.abc import Callable, Container
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.activation_ratios import Ratio, divide_by_input, find_kind, find_ratio
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

Function = Callable[..., Any]

HALF: Factors = {ATTN_LRP: 0.5, BALANCED: 0.5}
HALF_IN_ATTN_LRP: Factors = {ATTN_LRP: 0.5}
HELD: Factors = {ATTN_LRP: 0.0, BALANCED: 0.0}
UNCHANGED: Factors = {}
HELD_IN_BALANCED: Factors = {BALANCED: 0.0}
HALF_OR_HELD: Factors = {ATTN_LRP: 0.5, BALANCED: 0.0}
QUARTER_OR_HELD: Factors = {ATTN_LRP: 0.25, BALANCED: 0.0}


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


LINEAR = _names(
    """
    linear addmm add sub rsub neg clone contiguous to type float double half bfloat16 type_as sum mean conv1d conv2d
    adaptive_avg_pool1d adaptive_avg_pool2d avg_pool2d max_pool2d dropout batch_norm view reshape flatten unflatten
    squeeze unsqueeze view_as reshape_as transpose swapaxes swapdims permute getitem cat concat stack split chunk
    unbind tensor_split narrow expand expand_as repeat roll flip gather index_select take_along_dim masked_fill where
    movedim moveaxis repeat_interleave t select tril triu diagonal broadcast_to tile rot90 pad T mT interpolate max amax
    index_add index_put scatter scatter_add cumsum as_strided
    """
)
"""Operations whose gradient is their rule; a maximum selects elements."""
ELEMENTWISE = _names("gelu silu tanh relu elu selu celu leaky_relu relu6 hardswish mish erf clamp abs square pow")
"""Functions of one number with φ(0) = 0."""
GATES = _names("gelu silu relu tanh sigmoid mish")
"""Functions whose output may gate another activation."""
SELF_PRODUCTS = _names("mul multiply")
"""Products that may be an activation function written out, such as x · sigmoid(x)."""
PRODUCTS = _names("matmul bmm mul multiply einsum grouped_mm _grouped_mm")
QUOTIENTS = _names("div truediv divide")
DEVIATIONS = _names("rsqrt sqrt std var norm linalg_norm linalg_vector_norm vector_norm")
CONSTANTS = DEVIATIONS | {"topk"}
"""Operations whose result is held constant: deviations and norms, and the weights of the chosen experts."""
NORM_ARGUMENTS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
}
"""The arguments of torch's norms in their order."""


class BalancedCalls:
    """Makes the calls of a forward pass so that their backward can be switched.

    `softmaxes`, `gates` and `held` have the nodes of attention maps, of the outputs of activation functions, and of
    what is computed from constants alone; `sources` tells which activations are functions of the same one.
    """

    # Given the collections instead of functions of the recorder: a reference to the recorder would make a cycle, and
    # keep all activations alive until the garbage collector runs.
    def __init__(
        self,
        switch: BackwardSwitch,
        saved: SavedTensors,
        *,
        softmaxes: Container[int],
        gates: Container[int],
        held: Container[int],
        sources: ElementwiseSources,
    ) -> None:
        self._switch = switch
        self._saved = saved
        self._softmaxes = softmaxes
        self._gates = gates
        self._held = held
        self._sources = sources

    def call(self, name: str, function: Function, args: Any, kwargs: Any, describe: Callable[[], str]) -> Any:
        """Call a function; `describe` names the operation in the error of a function without a rule."""
        if name in PRODUCTS:
            return function(*self._scale_product(name, args), **kwargs)
        if name in QUOTIENTS:
            return function(*self._hold_divisor(args), **kwargs)
        if name == "softmax":
            return function(scale(args[0], self._switch, HELD_IN_BALANCED), *args[1:], **kwargs)
        if name == "attention_weights":
            query = scale(args[0], self._switch, HALF_OR_HELD)
            key = scale(args[1], self._switch, HALF_OR_HELD)
            return function(query, key, *args[2:], **kwargs)
        if name == "scaled_dot_product_attention":
            return function(*self._scale_attention(*args), **kwargs)
        return self._replace_backward(name, function, args, kwargs, describe)

    def call_in_norm(self, name: str, function: Function, args: Any, kwargs: Any) -> Any:
        """Call a function inside a norm that is written out in steps: with the deviation held, the rest is linear."""
        out = function(*args, **kwargs)
        if not is_activation(out):
            return out
        if name in DEVIATIONS or _is_negative_power(name, args):
            return scale(out, self._switch, HELD)
        rule = _find_norm_rule(name, args, kwargs)
        if rule is None:
            return out
        return replace(out, args[0], self._switch, rule)

    def replace_activation(self, out: Tensor, x: Tensor, function: Function) -> Tensor:
        """Return the output of an activation function that is a module of its own."""
        return replace(out, x, self._switch, activation_rule(partial(divide_by_input, function)))

    def _scale_product(self, name: str, args: Any) -> Any:
        first = 1 if name == "einsum" else 0
        operands = args[first : first + 2]
        # A product with a constant is linear. The operands of einsum follow its equation.
        if not all(map(is_activation, operands)) or len(operands) < 2:
            return args
        left, right = operands
        left_factors, right_factors = self._product_factors(name, left, right)
        scaled = (scale(left, self._switch, left_factors), scale(right, self._switch, right_factors))
        return (*args[:first], *scaled, *args[first + 2 :])

    def _scale_attention(self, query: Tensor, key: Tensor, value: Tensor, *args: Any) -> tuple[Any, ...]:
        """Return the operands of a fused attention: queries and keys are factors of two products, values of one."""
        query = scale(query, self._switch, QUARTER_OR_HELD)
        key = scale(key, self._switch, QUARTER_OR_HELD)
        value = scale(value, self._switch, HALF_IN_ATTN_LRP)
        return query, key, value, *args

    def _product_factors(self, name: str, left: Tensor, right: Tensor) -> tuple[Factors, Factors]:
        left_node = self._saved.node_of(left)
        right_node = self._saved.node_of(right)
        # The product of an attention map and values.
        if left_node in self._softmaxes:
            return HALF_IN_ATTN_LRP, HALF_IN_ATTN_LRP
        # The other factor gets all, as in a product with a constant.
        if left_node in self._held:
            return HELD, UNCHANGED
        if right_node in self._held:
            return UNCHANGED, HELD
        if name not in SELF_PRODUCTS:
            return HALF, HALF
        gated = self._sources.find_gated(left_node, right_node)
        if gated is not None:
            # x · g(x) is a function φ of x, and g(x) = φ(x)/x.
            return (UNCHANGED, HELD) if gated == 0 else (HELD, UNCHANGED)
        return self._gate_factors(left_node in self._gates, right_node in self._gates)

    @staticmethod
    def _gate_factors(is_left_gate: bool, is_right_gate: bool) -> tuple[Factors, Factors]:
        # With two gates or none, no factor is the gated one.
        if is_left_gate == is_right_gate:
            return HALF, HALF
        if is_left_gate:
            return HALF_OR_HELD, HALF_IN_ATTN_LRP
        return HALF_IN_ATTN_LRP, HALF_OR_HELD

    def _hold_divisor(self, args: Any) -> Any:
        # Division by a constant is linear.
        if len(args) < 2 or not is_activation(args[1]):
            return args
        return (args[0], scale(args[1], self._switch, HELD), *args[2:])

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
        if name in CONSTANTS:
            return scale(out, self._switch, HELD)
        rule = _find_rule(name, function, args, kwargs)
        # A function that has overwritten its input cannot be divided by it; ReLU leaves the ratio as it was.
        if rule is None or (out is args[0] and name != "relu"):
            return refuse(out, self._switch, describe())
        return replace(out, args[0], self._switch, rule)


def _is_negative_power(name: str, args: Any) -> bool:
    return name == "pow" and len(args) > 1 and not isinstance(args[1], Tensor) and args[1] < 0


def _find_rule(name: str, function: Function, args: Any, kwargs: Any) -> CoefficientRule | None:
    if not args:
        return None
    # x⁻ⁿ has no value at 0.
    if name in ELEMENTWISE and not _is_negative_power(name, args):
        return activation_rule(find_ratio(name, function, args, kwargs), find_kind(name, args, kwargs))
    return _find_norm_rule(name, args, kwargs)


def _find_norm_rule(name: str, args: Any, kwargs: Any) -> CoefficientRule | None:
    # The rule needs the input by position, where `replace` reads it.
    if name not in NORM_ARGUMENTS or not args:
        return None
    bound = {**dict(zip(NORM_ARGUMENTS[name], args, strict=False)), **kwargs}
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
