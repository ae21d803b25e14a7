"""How a linear layer shares relevance among its inputs, and the rule sets that differ in it."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.context import LinearCall, RelevanceContext, RuleSet
from clearhead.engine.lrp.kernels.dispatch import few_rows, kernels_for, precision_of_dots, try_kernel


def positive(layer: LinearCall, relevance: Tensor, flow: RelevanceContext) -> Tensor:
    """TransAtt Eq. 5: the contributions x·w ≥ 0, in three matrix products.

    The denominator is x⁺w⁺ + x⁻w⁻ = (xw + |x||w|)/2, where xw is the layer's own output without its bias; a
    unit whose positive part is within rounding of nothing has none. On the way back the two halves stay
    apart, so that a contribution that is not positive gets exactly nothing.
    """
    fast = kernels_for(relevance)
    if fast:
        return _positive_fused(fast, layer, relevance.contiguous(), flow)
    layer = layer.to(relevance.dtype)
    x, weight = layer.x, layer.weight
    absolute = F.linear(flow.once(torch.abs, x), weight.abs())
    denominator = torch.add(layer.product, absolute)
    denominator = denominator if layer.bias is None else denominator.sub_(layer.bias)
    empty = denominator <= absolute.mul_(nothing(x.dtype))
    scaled = flow.divide(relevance, denominator.mul_(0.5), empty)
    upper = torch.matmul(scaled, weight.clamp(min=0)).mul_(x.clamp(min=0))
    return upper.addcmul_(torch.matmul(scaled, weight.clamp(max=0)), x.clamp(max=0))


def nothing(dtype: torch.dtype) -> float:
    """Which part of |x||w| is within rounding of nothing."""
    return 16 * torch.finfo(dtype).eps


def _positive_fused(fast: Any, layer: LinearCall, relevance: Tensor, flow: RelevanceContext) -> Tensor:
    """The same, with both halves of the weights in one product and the work between products in one pass each."""
    samples, x, exact = flow.samples(relevance), layer.x.contiguous(), layer.x.dtype == relevance.dtype
    precision = precision_of_dots(x, relevance) if few_rows(x) or not exact else None
    weight = layer.weight.contiguous()
    found = try_kernel(_positive_in_two, fast, x, weight, relevance, samples, precision) if precision else None
    if found:
        flow.lost.append(found[1])
        return found[0]
    weights, sizes = fast.by_sign(weight, absolute=exact)
    if exact:
        layer = layer.to(relevance.dtype)
        bias, out = layer.bias, layer.product
        if bias is not None and bias.shape != out.shape[-1:]:
            out, bias = out - bias, None
        bias = bias if bias is None else bias.contiguous()
        absolute = F.linear(flow.once(torch.abs, x), sizes)
        scaled, lost = fast.positive(relevance, out.contiguous(), absolute, bias, samples, nothing(x.dtype))
    else:
        # Rounded outputs would break conservation: in half precision the positive part is summed directly.
        whole = product(fast.by_sign(x)[0], weights.mT, relevance.dtype)
        scaled, lost = fast.quotient(relevance, whole, samples, kind=kind_of(x, relevance))
    flow.lost.append(lost)
    return fast.halves(product(scaled, weights, relevance.dtype), x)  # type: ignore[no-any-return]


def _positive_in_two(
    fast: Any, x: Tensor, weight: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor]:
    """The same in two kernels, or three where splitting the weights beforehand pays; and what 0/0 took."""
    split = not few_rows(x)
    weight = fast.by_sign(weight)[0] if split else weight
    scaled, lost = fast.per_unit(x, weight, relevance, samples, split=split, precision=precision)
    return fast.to_inputs(scaled, weight, x, split=split, precision=precision), lost


def kind_of(activation: Tensor, relevance: Tensor) -> torch.dtype:
    """In which type relevance per unit enters a product: bfloat16 reaches as far as float32, float16 does not."""
    return torch.bfloat16 if activation.dtype is torch.bfloat16 else relevance.dtype


def product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """left · right, added up and left in `dtype`, though the factors may be of half precision."""
    if left.dtype == right.dtype == dtype:
        return torch.matmul(left, right)
    mixed = MIXED_PRODUCTS and left.is_cuda and left.dtype == right.dtype and dtype is torch.float32
    if mixed and right.dim() == 2:
        return torch.mm(left.flatten(0, -2), right, out_dtype=dtype).view(*left.shape[:-1], -1)
    if mixed and left.shape[:-2] == right.shape[:-2]:
        return torch.bmm(left.flatten(0, -3), right.flatten(0, -3), out_dtype=dtype).view(*left.shape[:-1], -1)
    return torch.matmul(left.to(dtype), right.to(dtype))


MIXED_PRODUCTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def z_plus(layer: LinearCall, relevance: Tensor, flow: RelevanceContext) -> Tensor:
    """TransAtt Eq. 4: the contributions x⁺w⁺ alone."""
    layer = layer.to(relevance.dtype)
    x, weight = flow.once(torch.relu, layer.x), layer.weight.clamp(min=0)
    scaled = flow.divide(relevance, F.linear(x, weight))
    return torch.matmul(scaled, weight).mul_(x)


def evenly(layer: LinearCall, relevance: Tensor, flow: RelevanceContext) -> Tensor:
    """Every input of the layer alike: tells which tokens are read, not how much each counts."""
    return relevance.mean(-1, keepdim=True).expand(layer.x.shape)


POSITIVE = RuleSet("positive", positive, normalise_add=True)
Z_PLUS = RuleSet("z-plus", z_plus)
# Below the embedding output, learned positions keep their share of an add instead of leaving it to the patch.
Z_PLUS_PIXELS = replace(Z_PLUS, split_constants=True)
READING = RuleSet("reading", evenly, proportional=False)
