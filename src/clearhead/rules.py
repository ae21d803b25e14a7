"""Relevance rules as a table: the name of a torch function → how relevance goes back through it.

A rule is called with the result and the arguments of one call, and answers with the activations that took
part (tensors that depend on the input) and a function `back(relevance, flow)` that shares the relevance of
the result among them. It keeps only what the way back needs.

Everything that does not depend on the input is a constant and receives nothing. Division is exact, with
0/0 = 0; relevance lost to such units is counted in `flow.dropped_B`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from clearhead.errors import UnsupportedOperation
from clearhead.flow import Back, Flow, Kept, Layer, Lent, Recorded, Rule, RuleSet, Shares, depends
from clearhead.fused import few_rows, kernels_for, on_gpu, precision_of_dots, tried
from clearhead.moving import MOVING, elements, permute, reshape, transpose, transposed


def positive(layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
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
    absolute = F.linear(x.abs(), weight.abs())
    denominator = torch.add(layer.product, absolute)
    denominator = denominator if layer.bias is None else denominator.sub_(layer.bias)
    empty = denominator <= absolute.mul_(nothing(x.dtype))
    scaled = flow.divide(relevance, denominator.mul_(0.5), empty)
    upper = torch.matmul(scaled, weight.clamp(min=0)).mul_(x.clamp(min=0))
    return upper.addcmul_(torch.matmul(scaled, weight.clamp(max=0)), x.clamp(max=0))


def nothing(dtype: torch.dtype) -> float:
    """Which part of |x||w| is within rounding of nothing."""
    return 16 * torch.finfo(dtype).eps


def _positive_fused(fast: Any, layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
    """The same, with both halves of the weights in one product and the work between products in one pass each."""
    samples, x, exact = flow.samples(relevance), layer.x.contiguous(), layer.x.dtype == relevance.dtype
    precision = precision_of_dots(x, relevance) if few_rows(x) or not exact else None
    found = (
        tried(_positive_in_two, fast, x, layer.weight.contiguous(), relevance, samples, precision)
        if precision
        else None
    )
    if found:
        flow.lost.append(found[1])
        return found[0]
    weights, sizes = fast.by_sign(layer.weight.contiguous(), absolute=exact)
    if exact:
        layer = layer.to(relevance.dtype)
        bias, out = layer.bias, layer.product
        if bias is not None and bias.shape != out.shape[-1:]:
            out, bias = out - bias, None
        bias = bias if bias is None else bias.contiguous()
        absolute = F.linear(x.abs(), sizes)
        scaled, lost = fast.positive(relevance, out.contiguous(), absolute, bias, samples, nothing(x.dtype))
    else:
        # Rounded outputs would break conservation: in half precision the positive part is summed directly.
        whole = product(fast.by_sign(x)[0], weights.mT, relevance.dtype)
        scaled, lost = fast.quotient(relevance, whole, samples, kind=_kind(x, relevance))
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


def _kind(activation: Tensor, relevance: Tensor) -> torch.dtype:
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


CHANNELS = 128
MIXED_PRODUCTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def z_plus(layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
    """TransAtt Eq. 4: the contributions x⁺w⁺ alone."""
    layer = layer.to(relevance.dtype)
    x, weight = layer.x.clamp(min=0), layer.weight.clamp(min=0)
    scaled = flow.divide(relevance, F.linear(x, weight))
    return torch.matmul(scaled, weight).mul_(x)


def evenly(layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
    """Every input of the layer alike: tells which tokens are read, not how much each counts."""
    return relevance.mean(-1, keepdim=True).expand(layer.x.shape)


POSITIVE = RuleSet("positive", positive, normalise_add=True)
Z_PLUS = RuleSet("z-plus", z_plus)
# Below the embedding output, learned positions keep their share of an add instead of leaving it to the patch.
Z_PLUS_PIXELS = replace(Z_PLUS, split_constants=True)
READING = RuleSet("reading", evenly, proportional=False)


def linear(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Recorded:
    if depends(weight) or type(weight) not in (Tensor, Parameter):
        raise UnsupportedOperation("A linear layer with quantised or input-dependent weights has no rule.")
    x, matrix = Kept(input), Kept(weight)
    shift = None if bias is None else Kept(bias)
    # On a GPU memory is dearer than a product: the output is computed again where nobody else keeps it.
    result = Lent(out) if on_gpu(out) else Kept(out)

    def back(relevance: Tensor, flow: Flow) -> Shares:
        added = shift.tensor if shift else None
        product = result.tensor if isinstance(result, Lent) or result.intact else None
        return (flow.rules.linear(Layer(x.tensor, matrix.tensor, added, product), relevance, flow),)

    return (input,), back


def addmm(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor) -> Recorded:
    """GPT-2's way to write a linear layer: bias first, weight transposed."""
    return linear(out, mat1, mat2.T, input)


def matmul(out: Tensor, input: Tensor, other: Tensor) -> Recorded:
    """Eq. 2 for each operand; halving both is what the normalisation after Eq. 9 comes to."""
    if not (depends(input) and depends(other)):
        return _matmul_with_constant(input, other)
    left, right = Kept(input), Kept(other)

    def back(relevance: Tensor, flow: Flow) -> Shares:
        u, v = left.tensor, right.tensor
        return _by_heads("mixed", u, v, relevance, flow) or _halved(u, v, relevance, flow)

    return (input, other), back


def _halved(u: Tensor, v: Tensor, relevance: Tensor, flow: Flow) -> tuple[Tensor, Tensor]:
    kind = relevance.dtype
    scaled = flow.divide(relevance, product(u, v, kind), factor=0.5, kind=_kind(u, relevance))
    to_left = product(scaled, v.mT, kind).sum_to_size(u.shape)
    to_right = product(u.mT, scaled, kind).sum_to_size(v.shape)
    return to_left.mul_(u), to_right.mul_(v)


def _by_heads(kernel: str, u: Tensor, v: Tensor, relevance: Tensor, flow: Flow) -> tuple[Tensor, Tensor] | None:
    """The shares by the kernels of attention, where they take these tensors."""
    fast, precision = kernels_for(relevance), _precision_of_heads(u, v, relevance)
    if not fast or not precision:
        return None
    given = (u.contiguous(), v.contiguous(), relevance, flow.samples(relevance), precision)
    found = tried(getattr(fast, kernel), *given)
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
    if not (depends(query) and depends(key)):
        return _weigh_with_constant(out, query, key, scale)
    left, right = Kept(query), Kept(key)

    def back(relevance: Tensor, flow: Flow) -> Shares:
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
    mine = key if depends(key) else query
    _, through = matmul(out, query, key.mT)

    def back(relevance: Tensor, flow: Flow) -> Shares:
        (share,) = through(relevance if flow.rules.proportional else relevance * scale, flow)
        return (share.mT if mine is key else share,)

    return (mine,), back


def _matmul_with_constant(input: Tensor, other: Tensor) -> Recorded:
    # Asked now: a parameter that is frozen during the trace may not be so on the way back.
    first = depends(input)
    activation, constant = (input, other) if first else (other, input)
    fixed = Kept(constant.detach())

    def multiplied(x: Tensor) -> Tensor:
        factor = fixed.to(x.dtype)
        return torch.matmul(x, factor) if first else torch.matmul(factor, x)

    return (activation,), _eq2(activation, multiplied)


def add(out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> Recorded:
    """u·R/(u+v) and v·R/(u+v); the positive set then normalises with the sums of each sample (Eq. 9)."""
    terms = (input, other if alpha == 1 else alpha * other)
    activations = [term for term in (input, other) if depends(term)]
    shapes = [activation.shape for activation in activations]
    # Attention scores meet constants as masks only, and are too large to keep for that.
    keep = len(activations) == 2 or out.dim() < 4
    values = [Kept(term) if isinstance(term, Tensor) else term for term in terms] if keep else []
    mine = [place for place, term in enumerate((input, other)) if depends(term)]

    def back(relevance: Tensor, flow: Flow) -> Shares:
        split = len(shapes) == 2 or flow.rules.split_constants
        if not keep or not split or not flow.rules.proportional:
            relevance = relevance if len(shapes) == 1 else relevance / len(shapes)
            return [relevance.sum_to_size(shape) for shape in shapes]
        u, v = (value.tensor if isinstance(value, Kept) else value for value in values)
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


def _normalise(shares: list[Tensor], relevance: Tensor, flow: Flow) -> list[Tensor]:
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
    activations = [factor for factor in factors if depends(factor)]
    constant = next((factor for factor in factors if not depends(factor)), 1)
    shapes = [activation.shape for activation in activations]

    def back(relevance: Tensor, flow: Flow) -> Shares:
        if not flow.rules.proportional:
            relevance = relevance * constant
        relevance = relevance if len(shapes) == 1 else relevance / len(shapes)
        return [relevance.sum_to_size(shape) for shape in shapes]

    return activations, back


def div(out: Tensor, input: Any, other: Any, *, rounding_mode: None = None) -> Recorded:
    """Division by a constant is a scaling."""
    if depends(other) or rounding_mode is not None:
        raise UnsupportedOperation("Division by an activation has no relevance rule.")
    return mul(out, input, 1 / other)


def unchanged(out: Tensor, input: Tensor, *_: Any, **__: Any) -> Recorded:
    """Softmax, norms, activation functions, scaling: relevance passes as it is."""
    return (input,), lambda relevance, flow: (relevance,)


def _eq2(activation: Tensor, function: Callable[[Tensor], Tensor]) -> Back:
    """Eq. 2 for a function that is linear in its one activation: x ⊙ Jᵀ(R / f(x))."""
    x = Kept(activation)

    def back(relevance: Tensor, flow: Flow) -> Shares:
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
    x = Kept(input)

    def convolve(values: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(values, kernel, None, stride, padding, dilation, groups)

    def back(relevance: Tensor, flow: Flow) -> Shares:
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
