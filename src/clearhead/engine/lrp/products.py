"""Relevance rules of matrix products: of two activations, of an activation and a constant, and of attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.lrp.context import (
    Backward,
    RelevanceContext,
    RuleResult,
    Shares,
    is_activation,
)
from clearhead.engine.lrp.kernels.dispatch import dot_precision, has_few_rows, kernels_for, try_kernel
from clearhead.engine.lrp.linear import multiply, quotient_dtype
from clearhead.engine.lrp.saved import SavedTensors
from clearhead.engine.lrp.shape_ops import vjp

# The attention kernels hold all channels of a head in shared memory.
MAX_KERNEL_CHANNELS = 128


def matmul(saved: SavedTensors, out: Tensor, input: Tensor, other: Tensor) -> RuleResult:
    """Eq. 2 for each operand, halved: two operands get the same sum, so Eq. 9 gives each one half."""
    if not (is_activation(input) and is_activation(other)):
        return _matmul_with_constant(saved, input, other)
    saved_left = saved.save(input)
    saved_right = saved.save(other)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        return _share_product(saved_left.tensor, saved_right.tensor, relevance, context)

    return (input, other), backward


def _share_product(left: Tensor, right: Tensor, relevance: Tensor, context: RelevanceContext) -> tuple[Tensor, Tensor]:
    """Return the shares of both operands of left · right."""
    shares = _try_attention_kernel("share_attention_value", left, right, relevance, context)
    return shares or _halve_product(left, right, relevance, context)


def _halve_product(left: Tensor, right: Tensor, relevance: Tensor, context: RelevanceContext) -> tuple[Tensor, Tensor]:
    """Return the shares of both operands of left · right by Eq. 2, halved."""
    dtype = relevance.dtype
    product = multiply(left, right, dtype)
    scaled = context.divide(relevance, product, factor=0.5, dtype=quotient_dtype(left, relevance))
    # Operands may have been broadcast.
    to_left = multiply(scaled, right.mT, dtype).sum_to_size(left.shape)
    to_right = multiply(left.mT, scaled, dtype).sum_to_size(right.shape)
    return to_left.mul_(left), to_right.mul_(right)


def _try_attention_kernel(
    name: str, left: Tensor, right: Tensor, relevance: Tensor, context: RelevanceContext
) -> tuple[Tensor, Tensor] | None:
    """Return the shares of both operands by a kernel for attention, or None if none fits these tensors."""
    kernels = kernels_for(relevance)
    precision = _attention_precision(left, right, relevance)
    if not kernels or not precision:
        return None
    kernel = getattr(kernels, name)
    samples = context.count_samples(relevance)
    result = try_kernel(kernel, left.contiguous(), right.contiguous(), relevance, samples, precision)
    if result is None:
        return None
    to_left, to_right, dropped = result
    context.dropped_sums.append(dropped)
    return to_left, to_right


def _attention_precision(left: Tensor, right: Tensor, relevance: Tensor) -> str | None:
    """Return the precision in which the attention kernels multiply these tensors, or None if they do not fit."""
    if not _has_same_heads(left, right, relevance) or left.dtype != right.dtype:
        return None
    if right.shape[-1] > MAX_KERNEL_CHANNELS:
        return None
    precision = dot_precision(left, relevance)
    # Without tensor cores, torch's products are faster unless launching dominates.
    if precision == "ieee" and not has_few_rows(relevance[:, 0]):
        return None
    return precision


def _has_same_heads(left: Tensor, right: Tensor, relevance: Tensor) -> bool:
    return left.dim() == 4 and left.shape[:2] == right.shape[:2] == relevance.shape[:2]


def attention_weights(
    saved: SavedTensors, out: Tensor, query: Tensor, key: Tensor, scale: float, bias: Tensor | None
) -> RuleResult:
    """An attention map: mask, scale and softmax pass relevance unchanged to the product of queries and keys."""
    if not (is_activation(query) and is_activation(key)):
        return _attention_weights_with_constant(saved, out, query, key, scale)
    saved_query = saved.save(query)
    saved_key = saved.save(key)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        relevance = scale_unless_proportional(relevance, scale, context)
        return _share_scores(saved_query.tensor, saved_key.tensor, relevance, context)

    return (query, key), backward


def _share_scores(query: Tensor, key: Tensor, relevance: Tensor, context: RelevanceContext) -> tuple[Tensor, Tensor]:
    """Return the shares of queries and keys in query · keyᵀ."""
    shares = _try_attention_kernel("share_query_key", query, key, relevance, context)
    if shares is not None:
        return shares
    # The kernel takes keys as they are, a product takes them transposed.
    to_query, to_key_transposed = _halve_product(query, key.mT, relevance, context)
    return to_query, to_key_transposed.mT


def scale_unless_proportional(relevance: Tensor, scale: Any, context: RelevanceContext) -> Tensor:
    """Multiply relevance by a constant factor of the forward pass, which proportional rules ignore."""
    return relevance if context.rules.proportional else relevance * scale


def _attention_weights_with_constant(
    saved: SavedTensors, out: Tensor, query: Tensor, key: Tensor, scale: float
) -> RuleResult:
    """An attention map of learned queries, or of keys that are the same for every input."""
    # Asked now: a parameter that is frozen during the trace may not be so in the relevance pass.
    is_key = is_activation(key)
    _, product_backward = matmul(saved, out, query, key.mT)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        relevance = scale_unless_proportional(relevance, scale, context)
        (share,) = product_backward(relevance, context)
        return (share.mT if is_key else share,)

    return (key if is_key else query,), backward


def _matmul_with_constant(saved: SavedTensors, input: Tensor, other: Tensor) -> RuleResult:
    """Eq. 2 for a product with a constant on either side."""
    # Asked now: a parameter that is frozen during the trace may not be so in the relevance pass.
    if is_activation(input):
        constant = saved.save(other.detach())
        return (input,), proportional_backward(saved, input, lambda x: torch.matmul(x, constant.to(x.dtype)))
    constant = saved.save(input.detach())
    return (other,), proportional_backward(saved, other, lambda x: torch.matmul(constant.to(x.dtype), x))


def proportional_backward(saved: SavedTensors, activation: Tensor, function: Callable[[Tensor], Tensor]) -> Backward:
    """Eq. 2 for a function that is linear in its one activation: x ⊙ Jᵀ(R / f(x))."""
    saved_x = saved.save(activation)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        x = saved_x.to(relevance.dtype)
        out, apply_transpose = vjp(function, x)
        if not context.rules.proportional:
            return apply_transpose(relevance)
        # Division overwrites its denominator, and `out` may be a view of `x`.
        (share,) = apply_transpose(context.divide(relevance, out.clone()))
        return (share * x,)

    return backward
