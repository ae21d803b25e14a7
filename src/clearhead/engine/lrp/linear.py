"""The relevance rules of linear layers, and the rule sets that differ in them."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.context import LinearCall, RelevanceContext, RuleSet
from clearhead.engine.lrp.kernels.dispatch import dot_precision, has_few_rows, kernels_for, try_kernel

# Products of half-precision factors with a float32 result (`out_dtype`) came with torch 2.8.
HAS_MIXED_PRODUCTS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)

MIN_WIDE = 4096
"""Units of a layer from which on it pays to look for those without relevance: most are outputs for a vocabulary."""


def positive(layer: LinearCall, relevance: Tensor, context: RelevanceContext) -> Tensor:
    """TransAtt Eq. 5: distribute relevance by the contributions x·w ≥ 0, in three matrix products.

    The denominator is x⁺w⁺ + x⁻w⁻ = (xw + |x||w|)/2, where xw is the layer's own output without its bias.
    """
    kernels = kernels_for(relevance)
    if kernels:
        return _positive_fused(kernels, layer, relevance.contiguous(), context)
    layer, relevance = _leave_out_idle(layer, relevance)
    layer = layer.to(relevance.dtype)
    denominator, is_zero = _sum_positive(layer, context)
    scaled = context.divide(relevance, denominator, is_zero)
    return _share_by_sign(scaled, layer.weight, layer.x)


def _leave_out_idle(layer: LinearCall, relevance: Tensor) -> tuple[LinearCall, Tensor]:
    """Return a wide layer, and the relevance of its units, without the units that have none.

    A language model scores a whole vocabulary, and only the words that are explained have relevance.
    """
    # Looking for them makes a GPU wait.
    if layer.weight.shape[0] < MIN_WIDE or relevance.device.type != "cpu":
        return layer, relevance
    units = relevance.flatten(0, -2).any(0).nonzero().flatten()
    return layer.select(units), relevance[..., units]


def _sum_positive(layer: LinearCall, context: RelevanceContext) -> tuple[Tensor, Tensor]:
    """Return the sum of the positive contributions to each unit, and whether it counts as zero."""
    absolute = F.linear(context.compute_once(torch.abs, layer.x), layer.weight.abs())
    doubled = torch.add(layer.output, absolute)
    if layer.bias is not None:
        doubled.sub_(layer.bias)
    # The sum cancels where all contributions are negative, so a rounding error counts as zero.
    is_zero = doubled <= absolute.mul_(zero_tolerance(layer.x.dtype))
    return doubled.mul_(0.5), is_zero


def _share_by_sign(scaled: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Return x⁺ · (scaled w⁺) + x⁻ · (scaled w⁻)."""
    # Two products instead of one with (w + |w|): a negative contribution gets exactly zero.
    share = torch.matmul(scaled, weight.clamp(min=0)).mul_(x.clamp(min=0))
    return share.addcmul_(torch.matmul(scaled, weight.clamp(max=0)), x.clamp(max=0))


def zero_tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance, relative to |x||w|, below which a sum of positive contributions counts as zero."""
    return 16 * torch.finfo(dtype).eps


def _positive_fused(kernels: Any, layer: LinearCall, relevance: Tensor, context: RelevanceContext) -> Tensor:
    """The positive rule by Triton kernels: with the products inside where that is faster, else around torch's."""
    x = layer.x.contiguous()
    weight = layer.weight.contiguous()
    share = _try_two_kernels(kernels, x, weight, relevance, context)
    if share is not None:
        return share
    if x.dtype == relevance.dtype:
        weights, scaled = _scale_from_output(kernels, layer, x, weight, relevance, context)
    else:
        weights, scaled = _scale_directly(kernels, x, weight, relevance, context)
    product = multiply(scaled, weights, relevance.dtype)
    return kernels.multiply_by_sign(product, x)  # type: ignore[no-any-return]


def _try_two_kernels(
    kernels: Any, x: Tensor, weight: Tensor, relevance: Tensor, context: RelevanceContext
) -> Tensor | None:
    """Return the shares by kernels with the products inside, or None where torch's products are faster."""
    samples = context.count_samples(relevance)
    precision = dot_precision(x, relevance)
    # In float32 with many rows torch's products are faster than those inside the kernels.
    is_slower = x.dtype == relevance.dtype and not has_few_rows(x)
    if not precision or is_slower:
        return None
    result = try_kernel(_positive_two_kernels, kernels, x, weight, relevance, samples, precision)
    if result is None:
        return None
    share, dropped = result
    context.dropped_sums.append(dropped)
    return share


def _positive_two_kernels(
    kernels: Any, x: Tensor, weight: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor]:
    """The positive rule in two kernels, three if many rows make it worth splitting the weights first.

    Returns the shares and what 0/0 dropped.
    """
    split = not has_few_rows(x)
    if split:
        weight, _ = kernels.split_by_sign(weight)
    scaled, dropped = kernels.scale_per_unit(x, weight, relevance, samples, split=split, precision=precision)
    share = kernels.share_inputs(scaled, weight, x, split=split, precision=precision)
    return share, dropped


def _scale_from_output(
    kernels: Any, layer: LinearCall, x: Tensor, weight: Tensor, relevance: Tensor, context: RelevanceContext
) -> tuple[Tensor, Tensor]:
    """Return the weights split by sign, and relevance over the positive part computed from the layer's output."""
    weights, absolute_weight = kernels.split_by_sign(weight, absolute=True)
    out, bias = _output_and_bias(layer.to(relevance.dtype))
    absolute = F.linear(context.compute_once(torch.abs, x), absolute_weight)
    samples = context.count_samples(relevance)
    tolerance = zero_tolerance(x.dtype)
    scaled, dropped = kernels.divide_by_positive_part(relevance, out.contiguous(), absolute, bias, samples, tolerance)
    context.dropped_sums.append(dropped)
    return weights, scaled


def _output_and_bias(layer: LinearCall) -> tuple[Tensor, Tensor | None]:
    """Return the layer's output, and the bias that the kernel takes from it."""
    out = layer.output
    bias = layer.bias
    if bias is None:
        return out, None
    # The kernel subtracts a vector only; a bias of another shape is taken off here.
    if bias.shape != out.shape[-1:]:
        return out - bias, None
    return out, bias.contiguous()


def _scale_directly(
    kernels: Any, x: Tensor, weight: Tensor, relevance: Tensor, context: RelevanceContext
) -> tuple[Tensor, Tensor]:
    """Return the weights split by sign, and relevance over x⁺w⁺ + x⁻w⁻.

    In half precision the output is rounded, which would break conservation, so the positive part is summed directly.
    """
    weights, _ = kernels.split_by_sign(weight)
    split_x, _ = kernels.split_by_sign(x)
    denominator = multiply(split_x, weights.mT, relevance.dtype)
    samples = context.count_samples(relevance)
    scaled, dropped = kernels.divide(relevance, denominator, samples, dtype=quotient_dtype(x, relevance))
    context.dropped_sums.append(dropped)
    return weights, scaled


def quotient_dtype(activation: Tensor, relevance: Tensor) -> torch.dtype:
    """Return the dtype in which relevance per unit enters a product."""
    # bfloat16 has the range of float32; float16 does not, and quotients would overflow.
    if activation.dtype is torch.bfloat16:
        return torch.bfloat16
    return relevance.dtype


def multiply(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Return left · right, accumulated and returned in `dtype` even if the factors are in half precision."""
    if left.dtype == right.dtype == dtype:
        return torch.matmul(left, right)
    if _can_mix(left, right, dtype):
        return _multiply_mixed(left, right, dtype)
    return torch.matmul(left.to(dtype), right.to(dtype))


def _can_mix(left: Tensor, right: Tensor, dtype: torch.dtype) -> bool:
    """Return whether torch multiplies these half-precision factors with a result in `dtype`."""
    if not HAS_MIXED_PRODUCTS or dtype is not torch.float32:
        return False
    is_half_on_cuda = left.is_cuda and left.dtype == right.dtype
    # `mm` and `bmm` do not broadcast, other than a matrix over the rows of the left factor.
    return is_half_on_cuda and (right.dim() == 2 or left.shape[:-2] == right.shape[:-2])


def _multiply_mixed(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    # Only `mm` and `bmm` take `out_dtype`, so the other axes are flattened for them.
    if right.dim() == 2:
        product = torch.mm(left.flatten(0, -2), right, out_dtype=dtype)
    else:
        product = torch.bmm(left.flatten(0, -3), right.flatten(0, -3), out_dtype=dtype)
    return product.view(*left.shape[:-1], -1)


def z_plus(layer: LinearCall, relevance: Tensor, context: RelevanceContext) -> Tensor:
    """TransAtt Eq. 4: distribute relevance by the contributions x⁺w⁺."""
    layer, relevance = _leave_out_idle(layer, relevance)
    layer = layer.to(relevance.dtype)
    # The layers that follow on the tape often share their input.
    x = context.compute_once(torch.relu, layer.x)
    weight = layer.weight.clamp(min=0)
    scaled = context.divide(relevance, F.linear(x, weight))
    return torch.matmul(scaled, weight).mul_(x)


def uniform(layer: LinearCall, relevance: Tensor, context: RelevanceContext) -> Tensor:
    """Distribute relevance evenly over the inputs: shows which tokens are read, not how much each contributes."""
    return relevance.mean(-1, keepdim=True).expand(layer.x.shape)


POSITIVE = RuleSet("positive", positive, normalise_add=True)
Z_PLUS = RuleSet("z-plus", z_plus)
# Below the embedding output, learned positions keep their share of an add instead of leaving it to the patch.
Z_PLUS_PIXELS = replace(Z_PLUS, split_constants=True)
READING = RuleSet("reading", uniform, proportional=False)
