"""Relevance rules as a table: the name of a torch function → how relevance is propagated back through it.

A rule is called with the tape's saved tensors, the output and the arguments of one call. It returns the activations
among the arguments (tensors that depend on the input) and a function `backward(relevance, context)` that distributes
the relevance of the output among them. It saves only what the backward function needs.

Everything that does not depend on the input is a constant and receives no relevance. Division is exact, with 0/0 = 0;
relevance dropped at such units is counted in `context.dropped_B`. Equations are those of TransAtt.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from clearhead.engine.lrp.context import (
    Backward,
    LinearCall,
    RelevanceContext,
    Rule,
    RuleResult,
    Shares,
    is_activation,
)
from clearhead.engine.lrp.kernels.dispatch import kernels_for, on_gpu
from clearhead.engine.lrp.products import attention_weights, matmul, proportional_backward, scale_unless_proportional
from clearhead.engine.lrp.saved import SavedTensor, SavedTensors, WeakTensor
from clearhead.engine.lrp.shape_ops import SHAPE_OPS, getitem, permute, reshape, transpose, transpose_rule, vjp
from clearhead.errors import UnsupportedOperation


def linear(saved: SavedTensors, out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> RuleResult:
    """A linear layer, by the rule of the rule set."""
    _require_constant(weight)
    saved_x = saved.save(input)
    saved_weight = saved.save(weight)
    saved_bias = None if bias is None else saved.save(bias)
    # On a GPU memory is scarcer than time: the output is computed again unless another rule saves it.
    saved_out = saved.save_weakly(out) if on_gpu(out) else saved.save(out)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        call = LinearCall(saved_x.tensor, saved_weight.tensor, _load(saved_bias), _load_intact(saved_out))
        return (context.rules.linear(call, relevance, context),)

    return (input,), backward


def _require_constant(weight: Tensor) -> None:
    # Quantised weights are subclasses of Tensor that do not hold the values themselves.
    if is_activation(weight) or type(weight) not in (Tensor, Parameter):
        raise UnsupportedOperation("A linear layer with quantised or input-dependent weights has no rule.")


def _load_intact(saved_out: SavedTensor | WeakTensor) -> Tensor | None:
    """Return a saved output, or None if it is gone or overwritten."""
    if isinstance(saved_out, SavedTensor) and not saved_out.is_intact:
        return None
    return saved_out.tensor


def addmm(saved: SavedTensors, out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor) -> RuleResult:
    """A linear layer as GPT-2 writes it: bias first, weight transposed."""
    return linear(saved, out, mat1, mat2.T, input)


def add(saved: SavedTensors, out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> RuleResult:
    """u·R/(u+v) and v·R/(u+v); the positive rule set then normalises by the sums of each sample (Eq. 9)."""
    activations = [term for term in (input, other) if is_activation(term)]
    shapes = [activation.shape for activation in activations]
    # With a constant, values are needed below the embeddings only. Attention scores (4 axes) meet constants as masks
    # and are too large to save.
    if len(activations) == 1 and out.dim() >= 4:
        return activations, lambda relevance, context: _divide_evenly(relevance, shapes)
    scaled_other = other if alpha == 1 else alpha * other
    terms = [_save_if_tensor(saved, input), _save_if_tensor(saved, scaled_other)]
    # Asked now, since the scaled term and saved constants do not tell.
    positions = [position for position, term in enumerate((input, other)) if is_activation(term)]
    return activations, _add_backward(terms, positions, shapes)


def _add_backward(terms: list[Any], positions: list[int], shapes: list[torch.Size]) -> Backward:
    """Return the backward function of a sum of two terms, with activations at these positions."""

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        if not _needs_values(shapes, context):
            return _divide_evenly(relevance, shapes)
        u, v = map(_load, terms)
        shares = _try_split_kernel(u, v, shapes, relevance, context)
        if shares is not None:
            return shares
        return _split_sum((u, v), positions, shapes, relevance, context)

    return backward


def _needs_values(shapes: list[torch.Size], context: RelevanceContext) -> bool:
    """Return whether the shares of a sum depend on the values of its terms."""
    # One activation takes all relevance, unless the constant has a share too.
    has_two_shares = len(shapes) == 2 or context.rules.split_constants
    return has_two_shares and context.rules.proportional


def _save_if_tensor(saved: SavedTensors, term: Any) -> Any:
    return saved.save(term) if isinstance(term, Tensor) else term


def _load(term: Any) -> Any:
    return term.tensor if isinstance(term, SavedTensor) else term


def _divide_evenly(relevance: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    """Give each operand the same relevance, summed over broadcast axes."""
    # A single operand gets the tensor itself, without a copy.
    if len(shapes) > 1:
        relevance = relevance / len(shapes)
    return [relevance.sum_to_size(shape) for shape in shapes]


def _try_split_kernel(
    u: Tensor, v: Tensor, shapes: list[torch.Size], relevance: Tensor, context: RelevanceContext
) -> Shares | None:
    """Return the shares of both terms by the fused kernel, or None where it does not run."""
    kernels = kernels_for(relevance)
    # The kernel neither broadcasts nor shares with constants.
    if not kernels or shapes != [relevance.shape, relevance.shape]:
        return None
    samples = context.count_samples(relevance)
    normalise = context.rules.normalise_add
    to_u, to_v, dropped = kernels.split_sum(relevance.contiguous(), u.contiguous(), v.contiguous(), samples, normalise)
    context.dropped_sums.append(dropped)
    return to_u, to_v


def _split_sum(
    terms: tuple[Any, Any],
    positions: list[int],
    shapes: list[torch.Size],
    relevance: Tensor,
    context: RelevanceContext,
) -> list[Tensor]:
    """Return the shares of the activations, which are at these positions among the two terms."""
    values = [_convert(term, relevance.dtype) for term in terms]
    scaled = context.divide(relevance, values[0] + values[1])
    shares = []
    for position, shape in zip(positions, shapes, strict=True):
        share = scaled * values[position]
        # Terms may have been broadcast.
        shares.append(share.sum_to_size(shape))
    if context.rules.normalise_add:
        return _normalise(shares, relevance, context)
    return shares


def _convert(term: Any, dtype: torch.dtype) -> Any:
    return term.to(dtype) if isinstance(term, Tensor) else term


def _normalise(shares: list[Tensor], relevance: Tensor, context: RelevanceContext) -> list[Tensor]:
    """Eq. 9: scale each share to the fraction that its |Σ| has of all, with the sign of the total."""
    sums = [context.sum_per_sample(share) for share in shares]
    total_B = context.sum_per_sample(relevance)
    agree_B = (torch.stack(sums).sign() == total_B.sign()).all(0)
    # If every sum has the sign of the total, all factors are 1.
    if agree_B.all():
        return shares
    weight_B = torch.stack(sums).abs().sum(0)
    normalised = []
    for share, sum_B in zip(shares, sums, strict=True):
        factor_B = _normalising_factor(sum_B, total_B, weight_B).where(~agree_B, 1.0)
        normalised.append(share * context.expand_per_sample(factor_B, share))
    return normalised


def _normalising_factor(sum_B: Tensor, total_B: Tensor, weight_B: Tensor) -> Tensor:
    # 0/0 where all sums are zero: nothing is left to scale.
    return (sum_B.sign() * total_B / weight_B).nan_to_num(0.0)


def sub(saved: SavedTensors, out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> RuleResult:
    """Subtraction is the addition of the negative."""
    return add(saved, out, input, other, alpha=-alpha)


def rsub(saved: SavedTensors, out: Tensor, input: Any, other: Any, *, alpha: float = 1) -> RuleResult:
    """Subtraction with its operands swapped."""
    return sub(saved, out, other, input, alpha=alpha)


def mul(saved: SavedTensors, out: Tensor, input: Any, other: Any) -> RuleResult:
    """Two activations get one half each (Eq. 2 for each, halved); a constant factor changes nothing."""
    activations = [factor for factor in (input, other) if is_activation(factor)]
    constants = [factor for factor in (input, other) if not is_activation(factor)]
    shapes = [activation.shape for activation in activations]

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        for constant in constants:
            relevance = scale_unless_proportional(relevance, constant, context)
        return _divide_evenly(relevance, shapes)

    return activations, backward


def gated_rule(gated: int) -> Rule:
    """Return the rule of x · g(x), an activation function written out: relevance passes to x unchanged."""

    def rule(saved: SavedTensors, out: Tensor, *factors: Any) -> RuleResult:
        return (factors[gated],), lambda relevance, context: (relevance,)

    return rule


def div(saved: SavedTensors, out: Tensor, input: Any, other: Any, *, rounding_mode: None = None) -> RuleResult:
    """Division by a constant is a multiplication by its reciprocal."""
    if is_activation(other) or rounding_mode is not None:
        raise UnsupportedOperation("Division by an activation has no relevance rule.")
    return mul(saved, out, input, 1 / other)


def unchanged(saved: SavedTensors, out: Tensor, input: Tensor, *_: Any, **__: Any) -> RuleResult:
    """Softmax, norms, activation functions and scaling pass relevance unchanged."""
    return (input,), lambda relevance, context: (relevance,)


def contribution(function: Callable[..., Tensor]) -> Rule:
    """Return the rule of a sum or mean: every summand gets relevance in proportion to its contribution (Eq. 2)."""

    def rule(saved: SavedTensors, out: Tensor, input: Tensor, *args: Any, **kwargs: Any) -> RuleResult:
        # Relevance is computed in its own dtype, whatever the network casts to.
        kwargs.pop("dtype", None)
        return (input,), proportional_backward(saved, input, lambda x: function(x, *args, **kwargs))

    return rule


def convolution(
    saved: SavedTensors,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RuleResult:
    """A convolution inside a network: a linear layer of the window around each position."""
    _require_constant(weight)
    _require_plain(padding)
    saved_x = saved.save(input)

    def unfold(values: Tensor) -> Tensor:
        windows_BFL = F.unfold(values, weight.shape[2:], dilation, padding, stride)
        return windows_BFL.mT

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        windows_BLF, fold = vjp(unfold, saved_x.to(relevance.dtype))
        matrix = _spread_groups(weight.detach().to(relevance.dtype), groups)
        call = LinearCall(windows_BLF, matrix, None, None)
        return fold(context.rules.linear(call, relevance.flatten(2).mT, context))

    return (input,), backward


def _require_plain(padding: Any) -> None:
    if isinstance(padding, str):
        raise UnsupportedOperation(f"A convolution with padding={padding!r} has no relevance rule.")


def _spread_groups(kernel: Tensor, groups: int) -> Tensor:
    """Return the kernel of a grouped convolution as the matrix of a linear layer that reads whole windows."""
    rows = kernel.flatten(1)
    # One block per group on the diagonal: a group reads its own channels only.
    return torch.block_diag(*rows.chunk(groups))  # type: ignore[no-any-return, no-untyped-call]


def bounded_convolution(
    saved: SavedTensors,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> RuleResult:
    """The patch convolution by the bounded-input rule z^B; the bounds are each sample's own extremes."""
    saved_pixels = saved.save(input)

    def convolve(values: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(values, kernel, None, stride, padding, dilation, groups)

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        pixels_BCPQ = saved_pixels.to(relevance.dtype)
        # Detached: once the trace is over, the weight may require gradients again.
        kernel = weight.detach().to(relevance.dtype)
        return (_propagate_bounded(convolve, pixels_BCPQ, kernel, relevance, context),)

    return (input,), backward


def _propagate_bounded(
    convolve: Callable[[Tensor, Tensor], Tensor],
    pixels_BCPQ: Tensor,
    kernel: Tensor,
    relevance: Tensor,
    context: RelevanceContext,
) -> Tensor:
    """z^B: distribute relevance by x·w − low·w⁺ − high·w⁻, which no pixel makes negative."""
    low_BCPQ, high_BCPQ = _extremes(pixels_BCPQ)

    def convolve_bounded(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        bounds = convolve(lower, kernel.clamp(min=0)) + convolve(upper, kernel.clamp(max=0))
        return convolve(values, kernel) - bounds

    out, apply_transpose = vjp(convolve_bounded, pixels_BCPQ, low_BCPQ, high_BCPQ)
    # A copy, because division overwrites its denominator.
    to_pixels, to_low, to_high = apply_transpose(context.divide(relevance, out.clone()))
    return to_pixels * pixels_BCPQ + to_low * low_BCPQ + to_high * high_BCPQ


def _extremes(pixels_BCPQ: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest value of each sample, in the shape of the pixels."""
    low_B111 = pixels_BCPQ.amin((1, 2, 3), keepdim=True)
    high_B111 = pixels_BCPQ.amax((1, 2, 3), keepdim=True)
    # Views, which take no memory of their own.
    return low_B111.expand_as(pixels_BCPQ), high_B111.expand_as(pixels_BCPQ)


def _for_names(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    "linear": linear,
    "addmm": addmm,
    **_for_names(matmul, "matmul bmm"),
    "attention_weights": attention_weights,
    "add": add,
    "sub": sub,
    "rsub": rsub,
    **_for_names(mul, "mul multiply"),
    **_for_names(div, "div truediv divide"),
    **_for_names(unchanged, "softmax log_softmax layer_norm rms_norm group_norm batch_norm dropout neg clone"),
    **_for_names(unchanged, "gelu relu silu tanh sigmoid elu selu celu leaky_relu relu6 hardswish hardsigmoid"),
    **_for_names(unchanged, "softplus mish logsigmoid clamp contiguous to type float double half bfloat16 type_as"),
    "sum": contribution(torch.sum),
    "mean": contribution(torch.mean),
    "adaptive_avg_pool1d": contribution(F.adaptive_avg_pool1d),
    "adaptive_avg_pool2d": contribution(F.adaptive_avg_pool2d),
    "avg_pool2d": contribution(F.avg_pool2d),
    **_for_names(reshape, "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as"),
    **_for_names(transpose, "transpose swapaxes swapdims"),
    "permute": permute,
    "getitem": getitem,
    "conv2d": convolution,
}


def rule_for(name: str, function: Callable[..., Any], index: int | None = None) -> Rule | None:
    """Return the rule of a torch function by its plain name ('__iadd__' and 'add_' are 'add'), or None.

    `index` is the position of the output in question if the function returns several.
    """
    rule = RULES.get(name)
    if rule is not None or name not in SHAPE_OPS:
        return rule
    # The transpose of an in-place function would overwrite its argument: take the out-of-place one.
    if getattr(function, "__name__", "") == f"{name}_":
        function = SHAPE_OPS[name]
    return transpose_rule(function, index)
