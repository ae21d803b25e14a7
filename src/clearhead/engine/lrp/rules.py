"""Relevance rules as a table: the name of a torch function → how relevance goes back through it.

A rule is called with the result and the arguments of one call, and answers with the activations that took
part (tensors that depend on the input) and a function `back(relevance, flow)` that shares the relevance of
the result among them. It keeps only what the way back needs.

Everything that does not depend on the input is a constant and receives nothing. Division is exact, with
0/0 = 0; relevance lost to such units is counted in `flow.dropped_B`.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from clearhead.engine.lrp.context import (
    Back,
    LinearCall,
    Recorded,
    RelevanceContext,
    Rule,
    SavedTensor,
    Shares,
    WeakTensor,
    is_activation,
)
from clearhead.engine.lrp.kernels.dispatch import few_rows, kernels_for, on_gpu, precision_of_dots, try_kernel
from clearhead.engine.lrp.linear import kind_of, product
from clearhead.engine.lrp.shape_ops import MOVING, elements, getitem, permute, reshape, transpose, transposed
from clearhead.errors import UnsupportedOperation

CHANNELS = 128
"""Of a head, at most, for the kernels of attention."""


def linear(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Recorded:
    if is_activation(weight) or type(weight) not in (Tensor, Parameter):
        raise UnsupportedOperation("A linear layer with quantised or input-dependent weights has no rule.")
    x, matrix = SavedTensor(input), SavedTensor(weight)
    shift = None if bias is None else SavedTensor(bias)
    # On a GPU memory is dearer than a product: the output is computed again where nobody else keeps it.
    result = WeakTensor(out) if on_gpu(out) else SavedTensor(out)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        added = shift.tensor if shift else None
        made = result.tensor if isinstance(result, WeakTensor) or result.intact else None
        return (flow.rules.linear(LinearCall(x.tensor, matrix.tensor, added, made), relevance, flow),)

    return (input,), back


def addmm(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor) -> Recorded:
    """GPT-2's way to write a linear layer: bias first, weight transposed."""
    return linear(out, mat1, mat2.T, input)


def matmul(out: Tensor, input: Tensor, other: Tensor) -> Recorded:
    """Eq. 2 for each operand; halving both is what the normalisation after Eq. 9 comes to."""
    if not (is_activation(input) and is_activation(other)):
        return _matmul_with_constant(input, other)
    left, right = SavedTensor(input), SavedTensor(other)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        u, v = left.tensor, right.tensor
        return _by_heads("mixed", u, v, relevance, flow) or _halved(u, v, relevance, flow)

    return (input, other), back


def _halved(u: Tensor, v: Tensor, relevance: Tensor, flow: RelevanceContext) -> tuple[Tensor, Tensor]:
    kind = relevance.dtype
    scaled = flow.divide(relevance, product(u, v, kind), factor=0.5, kind=kind_of(u, relevance))
    to_left = product(scaled, v.mT, kind).sum_to_size(u.shape)
    to_right = product(u.mT, scaled, kind).sum_to_size(v.shape)
    return to_left.mul_(u), to_right.mul_(v)


def _by_heads(
    kernel: str, u: Tensor, v: Tensor, relevance: Tensor, flow: RelevanceContext
) -> tuple[Tensor, Tensor] | None:
    """The shares by the kernels of attention, where they take these tensors."""
    fast, precision = kernels_for(relevance), _precision_of_heads(u, v, relevance)
    if not fast or not precision:
        return None
    given = (u.contiguous(), v.contiguous(), relevance, flow.samples(relevance), precision)
    found = try_kernel(getattr(fast, kernel), *given)
    if found is None:
        return None
    to_u, to_v, lost = found
    flow.lost.append(lost)
    return to_u, to_v


def _precision_of_heads(u: Tensor, v: Tensor, relevance: Tensor) -> str | None:
    """How the kernels of attention multiply these, if they take them: heads of one size, not too many channels."""
    if u.dim() != 4 or not u.shape[:2] == v.shape[:2] == relevance.shape[:2] or u.dtype != v.dtype:
        return None
    precision = precision_of_dots(u, relevance) if v.shape[-1] <= CHANNELS else None
    return None if precision == "ieee" and not few_rows(relevance[:, 0]) else precision


def weigh(out: Tensor, query: Tensor, key: Tensor, scale: float, added: Tensor | None) -> Recorded:
    """An attention map: mask, scale and softmax pass relevance as it is to the product of queries and keys."""
    if not (is_activation(query) and is_activation(key)):
        return _weigh_with_constant(out, query, key, scale)
    left, right = SavedTensor(query), SavedTensor(key)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        relevance = relevance if flow.rules.proportional else relevance * scale
        q, k = left.tensor, right.tensor
        shares = _by_heads("weighed", q, k, relevance, flow)
        if shares is None:
            to_query, turned = _halved(q, k.mT, relevance, flow)
            shares = to_query, turned.mT
        return shares

    return (query, key), back


def _weigh_with_constant(out: Tensor, query: Tensor, key: Tensor, scale: float) -> Recorded:
    """Learned queries, or keys that are the same for every input."""
    turned = is_activation(key)
    _, through = matmul(out, query, key.mT)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        (share,) = through(relevance if flow.rules.proportional else relevance * scale, flow)
        return (share.mT if turned else share,)

    return (key if turned else query,), back


def _matmul_with_constant(input: Tensor, other: Tensor) -> Recorded:
    # Asked now: a parameter that is frozen during the trace may not be so on the way back.
    first = is_activation(input)
    activation, constant = (input, other) if first else (other, input)
    fixed = SavedTensor(constant.detach())

    def multiplied(x: Tensor) -> Tensor:
        factor = fixed.to(x.dtype)
        return torch.matmul(x, factor) if first else torch.matmul(factor, x)

    return (activation,), _eq2(activation, multiplied)


def add(out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> Recorded:
    """u·R/(u+v) and v·R/(u+v); the positive set then normalises with the sums of each sample (Eq. 9)."""
    terms = (input, other if alpha == 1 else alpha * other)
    activations = [term for term in (input, other) if is_activation(term)]
    shapes = [activation.shape for activation in activations]
    # Attention scores meet constants as masks only, and are too large to keep for that.
    keep = len(activations) == 2 or out.dim() < 4
    values = [SavedTensor(term) if isinstance(term, Tensor) else term for term in terms] if keep else []
    mine = [place for place, term in enumerate((input, other)) if is_activation(term)]

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        split = len(shapes) == 2 or flow.rules.split_constants
        if not keep or not split or not flow.rules.proportional:
            relevance = relevance if len(shapes) == 1 else relevance / len(shapes)
            return [relevance.sum_to_size(shape) for shape in shapes]
        u, v = (value.tensor if isinstance(value, SavedTensor) else value for value in values)
        fast = kernels_for(relevance)
        if fast and len(shapes) == 2 and shapes[0] == shapes[1] == relevance.shape:
            given = (one.contiguous() for one in (relevance, u, v))
            to_u, to_v, lost = fast.split(*given, flow.samples(relevance), flow.rules.normalise_add)
            flow.lost.append(lost)
            return (to_u, to_v)
        u, v = (term.to(relevance.dtype) if isinstance(term, Tensor) else term for term in (u, v))
        scaled = flow.divide(relevance, u + v)
        shares = [(scaled * (u, v)[place]).sum_to_size(shape) for place, shape in zip(mine, shapes, strict=True)]
        return _normalise(shares, relevance, flow) if flow.rules.normalise_add else shares

    return activations, back


def _normalise(shares: list[Tensor], relevance: Tensor, flow: RelevanceContext) -> list[Tensor]:
    """Eq. 9: each branch keeps the part that its |Σ| has of all, with the sign of the whole.

    Where every branch sum already has that sign, nothing is to be done.
    """
    sums = [flow.per_sample(part) for part in shares]
    whole_B = flow.per_sample(relevance)
    agree_B = torch.stack([part.sign() == whole_B.sign() for part in sums]).all(0)
    if agree_B.all():
        return shares
    weight_B = torch.stack([part.abs() for part in sums]).sum(0)
    factors = [(part.sign() * whole_B / weight_B).nan_to_num(0.0).where(~agree_B, 1.0) for part in sums]
    return [part * flow.spread(factor, part) for part, factor in zip(shares, factors, strict=True)]


def sub(out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> Recorded:
    return add(out, input, other, alpha=-alpha)


def rsub(out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> Recorded:
    return sub(out, other, input, alpha=alpha)


def mul(out: Tensor, input: Any, other: Any) -> Recorded:
    """Two activations get half each (Eq. 2 for each, halved); scaling by a constant changes nothing."""
    factors = (input, other)
    activations = [factor for factor in factors if is_activation(factor)]
    constant = next((factor for factor in factors if not is_activation(factor)), 1)
    shapes = [activation.shape for activation in activations]

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        if not flow.rules.proportional:
            relevance = relevance * constant
        relevance = relevance if len(shapes) == 1 else relevance / len(shapes)
        return [relevance.sum_to_size(shape) for shape in shapes]

    return activations, back


def div(out: Tensor, input: Any, other: Any, *, rounding_mode: None = None) -> Recorded:
    """Division by a constant is a scaling."""
    if is_activation(other) or rounding_mode is not None:
        raise UnsupportedOperation("Division by an activation has no relevance rule.")
    return mul(out, input, 1 / other)


def unchanged(out: Tensor, input: Tensor, *_: Any, **__: Any) -> Recorded:
    """Softmax, norms, activation functions, scaling: relevance passes as it is."""
    return (input,), lambda relevance, flow: (relevance,)


def _eq2(activation: Tensor, function: Callable[[Tensor], Tensor]) -> Back:
    """Eq. 2 for a function that is linear in its one activation: x ⊙ Jᵀ(R / f(x))."""
    x = SavedTensor(activation)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        point = x.to(relevance.dtype)
        out, pull = transposed(function, point)
        if not flow.rules.proportional:
            return (pull(relevance)[0],)
        return (pull(flow.divide(relevance, out.clone()))[0] * point,)

    return back


def contribution(function: Callable[..., Tensor]) -> Rule:
    """The rule of a sum or mean: every summand gets what it contributes (Eq. 2)."""

    def rule(out: Tensor, input: Tensor, *args: Any, **kwargs: Any) -> Recorded:
        kwargs.pop("dtype", None)
        return (input,), _eq2(input, lambda x: function(x, *args, **kwargs))

    return rule


def conv2d(
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Recorded:
    """The patch convolution by the bounded-input rule z^B; bounds are each sample's own extremes."""
    x = SavedTensor(input)

    def convolve(values: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(values, kernel, None, stride, padding, dilation, groups)

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        pixels, kernel = x.to(relevance.dtype), weight.detach().to(relevance.dtype)
        low = pixels.amin((1, 2, 3), keepdim=True).expand_as(pixels)
        high = pixels.amax((1, 2, 3), keepdim=True).expand_as(pixels)

        def bounded(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
            shifted = convolve(lower, kernel.clamp(min=0)) + convolve(upper, kernel.clamp(max=0))
            return convolve(values, kernel) - shifted

        out, pull = transposed(bounded, pixels, low, high)
        parts = pull(flow.divide(relevance, out.clone()))
        return (parts[0] * pixels + parts[1] * low + parts[2] * high,)

    return (input,), back


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    "linear": linear,
    "addmm": addmm,
    **_named(matmul, "matmul bmm"),
    "weigh": weigh,
    "add": add,
    "sub": sub,
    "rsub": rsub,
    **_named(mul, "mul multiply"),
    **_named(div, "div truediv divide"),
    **_named(unchanged, "softmax log_softmax layer_norm rms_norm group_norm batch_norm dropout neg clone"),
    **_named(unchanged, "gelu relu silu tanh sigmoid elu selu celu leaky_relu relu6 hardswish hardsigmoid"),
    **_named(unchanged, "softplus mish logsigmoid clamp contiguous to type float double half bfloat16 type_as"),
    "sum": contribution(torch.sum),
    "mean": contribution(torch.mean),
    "adaptive_avg_pool1d": contribution(F.adaptive_avg_pool1d),
    "adaptive_avg_pool2d": contribution(F.adaptive_avg_pool2d),
    "avg_pool2d": contribution(F.avg_pool2d),
    **_named(reshape, "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as"),
    **_named(transpose, "transpose swapaxes swapdims"),
    "permute": permute,
    "getitem": getitem,
    "conv2d": conv2d,
}


def rule_for(name: str, function: Callable[..., Any], index: int | None = None) -> Rule | None:
    """The rule of a torch function by its plain name ('__iadd__' and 'add_' are 'add').

    A function that only moves elements is its own rule; one that does so in place is replaced by its pure twin.
    """
    found = RULES.get(name)
    if found is None and name in MOVING:
        in_place = getattr(function, "__name__", "") == f"{name}_"
        found = elements(MOVING[name] if in_place else function, index)
    return found
