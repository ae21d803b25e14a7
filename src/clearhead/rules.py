"""Relevance rules as a table: the name of a torch function → how relevance goes back through it.

A rule is called with the result and the arguments of one call, and answers with the activations that took
part (tensors that depend on the input) and a function `back(relevance, flow)` that shares the relevance of
the result among them. It keeps only what the way back needs.

Everything that does not depend on the input is a constant and receives nothing. Division is exact, with
0/0 = 0; relevance lost to such units is counted in `flow.dropped_B`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from clearhead.errors import UnsupportedOperation

Shares = Sequence[Tensor]
Back = Callable[[Tensor, "Flow"], Shares]
Recorded = tuple[Sequence[Tensor], Back]
Rule = Callable[..., Recorded]


class Kept:
    """A value that the way back needs, guarded against being overwritten in the meantime."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor.detach(), tensor._version

    @property
    def intact(self) -> bool:
        return self.tensor._version == self.version

    def to(self, dtype: torch.dtype) -> Tensor:
        if not self.intact:
            raise UnsupportedOperation(
                "The network overwrote an activation in place after using it, so relevance cannot be followed. "
                "Choose a method without relevance."
            )
        return self.tensor.to(dtype)


@dataclass(frozen=True)
class Layer:
    """A linear layer as it was called: out = x · weightᵀ + bias."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor


@dataclass(frozen=True)
class RuleSet:
    """How one pass treats the operations on which the papers differ."""

    name: str
    linear: Callable[[Layer, Tensor, "Flow"], Tensor]
    normalise_add: bool = False
    proportional: bool = True
    split_constants: bool = False


@dataclass
class Flow:
    """One pass of relevance: its rule set, the batch size, and what 0/0 took from each sample."""

    rules: RuleSet
    batch: int
    dropped_B: Tensor

    def per_sample(self, tensor: Tensor) -> Tensor:
        """Sums over each sample; samples are the outermost part of the first axis."""
        if tensor.dim() == 0 or tensor.shape[0] % self.batch:
            raise UnsupportedOperation(
                f"A tensor of shape {tuple(tensor.shape)} does not keep the {self.batch} samples apart. "
                "Explain one input at a time, or choose a method without relevance."
            )
        return tensor.reshape(self.batch, -1).sum(1)

    def spread(self, factor_B: Tensor, like: Tensor) -> Tensor:
        """A number per sample, shaped so that it multiplies `like`."""
        repeated = factor_B.repeat_interleave(like.shape[0] // self.batch)
        return repeated.view(-1, *[1] * (like.dim() - 1))

    def divide(self, relevance: Tensor, denominator: Tensor, empty: Tensor | None = None) -> Tensor:
        """relevance / denominator with 0/0 = 0. Overwrites `denominator`, which must be the caller's own."""
        empty = denominator == 0 if empty is None else empty
        quotient = torch.div(relevance, denominator, out=denominator)
        if not empty.any():
            return quotient
        self.dropped_B += self.per_sample(relevance * empty)
        return quotient.masked_fill_(empty, 0.0)


def depends(value: object) -> bool:
    """Whether a value is an activation: parameters are frozen during a trace, so only those carry gradients."""
    return isinstance(value, Tensor) and value.requires_grad


def positive(layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
    """TransAtt Eq. 5: the contributions x·w ≥ 0, in three matrix products.

    The denominator is x⁺w⁺ + x⁻w⁻ = (xw + |x||w|)/2, where xw is the layer's own output without its bias; a
    unit whose positive part is within rounding of nothing has none. On the way back the two halves stay
    apart, so that a contribution that is not positive gets exactly nothing.
    """
    x, weight = layer.x, layer.weight
    absolute = F.linear(x.abs(), weight.abs())
    denominator = torch.add(layer.out, absolute)
    denominator = denominator if layer.bias is None else denominator.sub_(layer.bias)
    empty = denominator <= absolute.mul_(16 * torch.finfo(x.dtype).eps)
    scaled = flow.divide(relevance, denominator.mul_(0.5), empty)
    upper = torch.matmul(scaled, weight.clamp(min=0)).mul_(x.clamp(min=0))
    return upper.addcmul_(torch.matmul(scaled, weight.clamp(max=0)), x.clamp(max=0))


def z_plus(layer: Layer, relevance: Tensor, flow: Flow) -> Tensor:
    """TransAtt Eq. 4: the contributions x⁺w⁺ alone."""
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
    kept, result = [Kept(tensor) for tensor in (input, weight)], Kept(out)
    shift = None if bias is None else Kept(bias)

    def back(relevance: Tensor, flow: Flow) -> Shares:
        dtype = relevance.dtype
        x, matrix = (value.to(dtype) for value in kept)
        added = None if shift is None else shift.to(dtype)
        # The output serves as it is, unless it was rounded to less or overwritten since.
        serves = result.intact and result.tensor.dtype == dtype
        product = result.tensor if serves else F.linear(x, matrix, added)
        return (flow.rules.linear(Layer(x, matrix, added, product), relevance, flow),)

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
        u, v = left.to(relevance.dtype), right.to(relevance.dtype)
        scaled = flow.divide(relevance, torch.matmul(u, v)).mul_(0.5)
        to_left = torch.matmul(scaled, v.mT).sum_to_size(u.shape)
        to_right = torch.matmul(u.mT, scaled).sum_to_size(v.shape)
        return to_left * u, to_right * v

    return (input, other), back


def _matmul_with_constant(input: Tensor, other: Tensor) -> Recorded:
    def product(activation: Tensor) -> Tensor:
        constant = (other if depends(input) else input).detach().to(activation.dtype)
        pair = (activation, constant) if depends(input) else (constant, activation)
        return torch.matmul(*pair)

    return (input if depends(input) else other,), _eq2(input if depends(input) else other, product)


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
            return [(relevance / len(shapes)).sum_to_size(shape) for shape in shapes]
        u, v = (value.to(relevance.dtype) if isinstance(value, Kept) else value for value in values)
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
        return [(relevance / len(shapes)).sum_to_size(shape) for shape in shapes]

    return activations, back


def div(out: Tensor, input: Any, other: Any, *, rounding_mode: None = None) -> Recorded:
    """Division by a constant is a scaling."""
    if depends(other) or rounding_mode is not None:
        raise UnsupportedOperation("Division by an activation has no relevance rule.")
    return mul(out, input, 1 / other)


def unchanged(out: Tensor, input: Tensor, *_: Any, **__: Any) -> Recorded:
    """Softmax, norms, activation functions, scaling: relevance passes as it is."""
    return (input,), lambda relevance, flow: (relevance,)


def _transposed(
    function: Callable[..., Tensor], *point: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """The function's value, and the transpose of its derivative."""
    return torch.func.vjp(function, *point)  # type: ignore[return-value]


def _eq2(activation: Tensor, function: Callable[[Tensor], Tensor]) -> Back:
    """Eq. 2 for a function that is linear in its one activation: x ⊙ Jᵀ(R / f(x))."""
    x = Kept(activation)

    def back(relevance: Tensor, flow: Flow) -> Shares:
        point = x.to(relevance.dtype)
        out, pull = _transposed(function, point)
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


def elements(function: Callable[..., Any], index: int | None) -> Rule:
    """Relevance follows the elements that a view, slice, copy or concatenation moves.

    The way back is the function's own transpose, which does not depend on values: only shapes are kept.
    `index` picks one result of a function that returns several.
    """

    def rule(out: Tensor, *args: Any, **kwargs: Any) -> Recorded:
        activations: list[Tensor] = []
        holes, named = _with_holes((args, kwargs), activations)
        shapes = [activation.shape for activation in activations]

        def moved(*values: Tensor) -> Tensor:
            left = iter(values)
            result: Any = function(*_filled(holes, left), **_filled(named, left))
            picked: Tensor = result if index is None else result[index]
            return picked

        def back(relevance: Tensor, flow: Flow) -> Shares:
            blanks = [relevance.new_zeros(shape) for shape in shapes]
            return _transposed(moved, *blanks)[1](relevance)

        return activations, back

    return rule


class _Hole:
    """Stands where an activation stood among the arguments."""


def _with_holes(args: Any, found: list[Tensor]) -> Any:
    if depends(args):
        found.append(args)
        return _Hole
    if type(args) in (list, tuple):
        return type(args)(_with_holes(part, found) for part in args)
    if type(args) is dict:
        return {name: _with_holes(part, found) for name, part in args.items()}
    return args.detach() if isinstance(args, Tensor) else args


def _filled(args: Any, values: Any) -> Any:
    if args is _Hole:
        return next(values)
    if type(args) in (list, tuple):
        return type(args)([_filled(part, values) for part in args])
    if type(args) is dict:
        return {name: _filled(part, values) for name, part in args.items()}
    return args


def reshape(out: Tensor, input: Tensor, *_: Any, **__: Any) -> Recorded:
    """The frequent case of `elements` where order does not change."""
    shape = input.shape
    return (input,), lambda relevance, flow: (relevance.reshape(shape),)


def transpose(out: Tensor, input: Tensor, dim0: int, dim1: int) -> Recorded:
    return (input,), lambda relevance, flow: (relevance.transpose(dim0, dim1),)


def permute(out: Tensor, input: Tensor, *places: Any, dims: Any = None) -> Recorded:
    given = places if dims is None else (dims,)
    order = given[0] if len(given) == 1 and not isinstance(given[0], int) else given
    inverse = sorted(range(len(order)), key=lambda place: order[place] % len(order))
    return (input,), lambda relevance, flow: (relevance.permute(inverse),)


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

        out, pull = _transposed(bounded, pixels, low, high)
        parts = pull(flow.divide(relevance, out.clone()))
        return (parts[0] * pixels + parts[1] * low + parts[2] * high,)

    return (input,), back


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def _moving(names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(torch, name, None) or getattr(Tensor, name) for name in names.split()}


RULES: dict[str, Rule] = {
    "linear": linear,
    "addmm": addmm,
    **_named(matmul, "matmul bmm"),
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

MOVING: dict[str, Callable[..., Any]] = {
    **_moving("cat concat stack split chunk unbind tensor_split narrow expand expand_as repeat roll flip"),
    **_moving("gather index_select take_along_dim masked_fill where movedim moveaxis repeat_interleave t"),
    **_moving("select tril triu diagonal broadcast_to tile rot90"),
    "getitem": Tensor.__getitem__,
    "pad": F.pad,
    "T": lambda tensor: tensor.T,
    "mT": lambda tensor: tensor.mT,
}


def rule_for(name: str, function: Callable[..., Any], index: int | None) -> Rule | None:
    """The rule of a torch function by its plain name ('__iadd__' and 'add_' are 'add').

    A function that only moves elements is its own rule; one that does so in place is replaced by its pure twin.
    """
    if name in MOVING:
        in_place = getattr(function, "__name__", "") == f"{name}_"
        return elements(MOVING[name] if in_place else function, index)
    return RULES.get(name)
