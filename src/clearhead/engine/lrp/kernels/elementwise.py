"""Elementwise work between matrix products, in one pass over memory each. Every tensor is contiguous."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.launch import Launch, ceil_divide, power_of_two

BLOCK = 2048
WARPS = 8
# Up to this many partial sums per sample, every program adds them up itself.
MAX_PARTIAL_SUMS = 1024


@triton.jit
def _offsets(n, BLOCK: tl.constexpr):
    """Return the offsets of this program's block within its sample and in memory, and their mask.

    `n` is the number of elements of a sample; the grid is blocks of a sample × samples.
    """
    inside = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return inside, tl.program_id(1).to(tl.int64) * n + inside, inside < n


@triton.jit
def _store_sum(sums, values):
    """Store the sum of this program's block in a cell of its own."""
    tl.store(sums + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.sum(values, 0))


@Launch
@triton.jit
def _divide(relevance, denominator, quotient, dropped, n, factor, BLOCK: tl.constexpr):
    """quotient = factor · relevance / denominator with 0/0 = 0."""
    dtype = relevance.dtype.element_ty
    _, offset, mask = _offsets(n, BLOCK)
    # Masked elements are 0 / 1, so they drop nothing.
    r = tl.load(relevance + offset, mask, 0.0)
    d = tl.load(denominator + offset, mask, 1.0).to(dtype)
    is_zero = d == 0
    share = tl.where(is_zero, 0.0, r / tl.where(is_zero, 1.0, d)) * factor
    tl.store(quotient + offset, share.to(quotient.dtype.element_ty), mask)
    _store_sum(dropped, tl.where(is_zero, r, 0.0))


@Launch
@triton.jit
def _divide_by_positive_part(
    relevance, out, absolute, bias, scaled, dropped, n, width, tolerance, BIASED: tl.constexpr, BLOCK: tl.constexpr
):
    """scaled = relevance / ((out − bias + absolute) / 2), 0 where the sum is at most tolerance · absolute."""
    dtype = relevance.dtype.element_ty
    inside, offset, mask = _offsets(n, BLOCK)
    r = tl.load(relevance + offset, mask, 0.0)
    a = tl.load(absolute + offset, mask, 0.0)
    d = tl.load(out + offset, mask, 0.0) + a
    if BIASED:
        d -= tl.load(bias + inside % width, mask, 0.0)
    is_zero = d <= a * tolerance
    share = tl.where(is_zero, 0.0, r / tl.where(is_zero, 1.0, d * 0.5))
    tl.store(scaled + offset, share.to(dtype), mask)
    _store_sum(dropped, tl.where(is_zero, r, 0.0))


@Launch
@triton.jit
def _multiply_by_sign(both, x, share, n, width, BLOCK: tl.constexpr):
    """share = x · first half of both where x > 0, x · second half elsewhere."""
    dtype = both.dtype.element_ty
    _, offset, mask = _offsets(n, BLOCK)
    value = tl.load(x + offset, mask, 0.0).to(dtype)
    half = offset // width * (2 * width) + offset % width + tl.where(value > 0, 0, width)
    tl.store(share + offset, tl.load(both + half, mask, 0.0) * value, mask)


@Launch
@triton.jit
def _split_by_sign(x, both, absolute, n, width, ABSOLUTE: tl.constexpr, BLOCK: tl.constexpr):
    """both = x⁺ and x⁻ side by side; absolute = |x| if ABSOLUTE."""
    _, offset, mask = _offsets(n, BLOCK)
    value = tl.load(x + offset, mask, 0.0)
    first = both + offset // width * (2 * width) + offset % width
    tl.store(first, tl.where(value > 0, value, 0.0).to(value.dtype), mask)
    tl.store(first + width, tl.where(value < 0, value, 0.0).to(value.dtype), mask)
    if ABSOLUTE:
        tl.store(absolute + offset, tl.abs(value), mask)


@triton.jit
def _branch_quotients(relevance, u, v, offset, mask):
    """Return r, u · r / (u + v), v · r / (u + v), and where 0/0 drops relevance."""
    dtype = relevance.dtype.element_ty
    r = tl.load(relevance + offset, mask, 0.0)
    left, right = tl.load(u + offset, mask, 0.0).to(dtype), tl.load(v + offset, mask, 0.0).to(dtype)
    # Masked elements are 0/0 of zero relevance, so they drop nothing.
    total = left + right
    is_zero = total == 0
    scaled = tl.where(is_zero, 0.0, r / tl.where(is_zero, 1.0, total))
    return r, (scaled * left).to(dtype), (scaled * right).to(dtype), is_zero


@Launch
@triton.jit
def _branch_sums(relevance, u, v, sums, n, BLOCK: tl.constexpr):
    """Store partial sums of the relevance and of both branches, one after the other."""
    _, offset, mask = _offsets(n, BLOCK)
    r, left, right, _ = _branch_quotients(relevance, u, v, offset, mask)
    cells = tl.num_programs(0) * tl.num_programs(1)
    _store_sum(sums, r)
    _store_sum(sums + cells, left)
    _store_sum(sums + 2 * cells, right)


@triton.jit
def _sign(x):
    """Return −1, 0 or 1."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def _add_up(sums, count, COUNT: tl.constexpr):
    """Return the sum of the partial sums of this program's sample; COUNT is a power of two ≥ count."""
    # The length of an arange must be a power of two.
    index = tl.arange(0, COUNT)
    return tl.sum(tl.load(sums + tl.program_id(1) * count + index, index < count, 0.0), 0)


@triton.jit
def _normalise(sums, count, left, right, COUNT: tl.constexpr):
    """TransAtt Eq. 9: scale each branch to the fraction that its |Σ| has of both, with the sign of the total."""
    cells = count * tl.num_programs(1)
    total, a = _add_up(sums, count, COUNT), _add_up(sums + cells, count, COUNT)
    b = _add_up(sums + 2 * cells, count, COUNT)
    agree = (_sign(a) == _sign(total)) & (_sign(b) == _sign(total))
    weight = tl.abs(a) + tl.abs(b)
    factor = tl.where(weight == 0, 0.0, total / tl.where(weight == 0, 1.0, weight)).to(total.dtype)
    return left * tl.where(agree, 1.0, _sign(a) * factor), right * tl.where(agree, 1.0, _sign(b) * factor)


@Launch
@triton.jit
def _split_sum(relevance, u, v, sums, to_u, to_v, dropped, n, count, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """to_u, to_v = u · r / (u + v), v · r / (u + v), normalised by the partial sums if there are any."""
    _, offset, mask = _offsets(n, BLOCK)
    r, left, right, is_zero = _branch_quotients(relevance, u, v, offset, mask)
    if COUNT:
        left, right = _normalise(sums, count, left, right, COUNT)
    tl.store(to_u + offset, left, mask)
    tl.store(to_v + offset, right, mask)
    _store_sum(dropped, tl.where(is_zero, r, 0.0))


@Launch
@triton.jit
def _gated_mean(gradient, relevance, mean, n, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """mean = Σ over heads (gradient · relevance)⁺ / HEADS."""
    inside, offset, mask = _offsets(n, BLOCK)
    total = tl.zeros((BLOCK,), mean.dtype.element_ty)
    head_offset = tl.program_id(1).to(tl.int64) * HEADS * n + inside
    for _ in range(HEADS):
        r = tl.load(relevance + head_offset, mask, 0.0)
        total += tl.maximum(tl.load(gradient + head_offset, mask, 0.0).to(r.dtype) * r, 0.0)
        head_offset += n
    tl.store(mean + offset, total / HEADS, mask)


@Launch
@triton.jit
def _log_sum(x, out, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out = log Σ exp of one row, in one pass: the sum is rescaled when a larger maximum appears."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    maximum = tl.full((), float("-inf"), x.dtype.element_ty)
    total = tl.zeros((), x.dtype.element_ty)
    for start in range(0, WIDTH, BLOCK):
        values = tl.load(x + row * stride + start + column, start + column < WIDTH, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(values, 0))
        total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(values - new_maximum), 0)
        maximum = new_maximum
    tl.store(out + row, maximum + tl.log(total))


def _plan_grid(tensor: Tensor, samples: int) -> tuple[int, tuple[int, int]]:
    """Return the number of elements of a sample, and the grid: blocks of a sample × samples."""
    n = tensor.numel() // samples
    return n, (ceil_divide(n, BLOCK), samples)


def _empty_sums(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return an empty tensor for the partial sums of all programs, samples first."""
    return relevance.new_empty(grid[1], grid[0])


def divide(
    relevance: Tensor, denominator: Tensor, samples: int, factor: float = 1.0, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return factor · relevance / denominator with 0/0 = 0 in `dtype`, and partial sums of what 0/0 dropped."""
    n, grid = _plan_grid(relevance, samples)
    quotient = torch.empty_like(relevance, dtype=dtype)
    dropped = _empty_sums(relevance, grid)
    _divide(grid, relevance, denominator, quotient, dropped, n, factor, BLOCK=BLOCK, num_warps=WARPS)
    return quotient, dropped


def divide_by_positive_part(
    relevance: Tensor, out: Tensor, absolute: Tensor, bias: Tensor | None, samples: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Return relevance over the positive part (out − bias + absolute) / 2, and partial sums of what 0/0 dropped.

    A positive part of at most tolerance · absolute / 2 counts as zero.
    """
    n, grid = _plan_grid(relevance, samples)
    scaled = torch.empty_like(relevance)
    dropped = _empty_sums(relevance, grid)
    # Triton needs a pointer even if the kernel does not use it.
    bias_or_any = out if bias is None else bias
    args = (relevance, out, absolute, bias_or_any, scaled, dropped, n, out.shape[-1], tolerance)
    _divide_by_positive_part(grid, *args, BIASED=bias is not None, BLOCK=BLOCK, num_warps=WARPS)
    return scaled, dropped


def multiply_by_sign(both: Tensor, x: Tensor) -> Tensor:
    """Return x times the first half of each row of `both` where x is positive, times the second half elsewhere."""
    share = torch.empty(x.shape, dtype=both.dtype, device=x.device)
    n, grid = _plan_grid(x, 1)
    _multiply_by_sign(grid, both, x, share, n, x.shape[-1], BLOCK=BLOCK, num_warps=WARPS)
    return share


def split_by_sign(x: Tensor, *, absolute: bool = False) -> tuple[Tensor, Tensor]:
    """Return x⁺ and x⁻ side by side along the last axis, and |x| if `absolute` (else x itself)."""
    both = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])
    n, grid = _plan_grid(x, 1)
    size = torch.empty_like(x) if absolute else x
    _split_by_sign(grid, x, both, size, n, x.shape[-1], ABSOLUTE=absolute, BLOCK=BLOCK, num_warps=WARPS)
    return both, size


def split_sum(relevance: Tensor, u: Tensor, v: Tensor, samples: int, normalise: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shares of the two terms of a sum, and partial sums of what 0/0 dropped.

    `normalise` applies TransAtt Eq. 9 to each sample.
    """
    n, grid = _plan_grid(relevance, samples)
    to_u = torch.empty_like(relevance)
    to_v = torch.empty_like(relevance)
    dropped = _empty_sums(relevance, grid)
    # Without normalisation the kernel does not read the sums, but Triton needs a pointer.
    sums = dropped
    count = 0
    if normalise:
        sums = relevance.new_empty(3, *dropped.shape)
        _branch_sums(grid, relevance, u, v, sums, n, BLOCK=BLOCK, num_warps=WARPS)
        if grid[0] > MAX_PARTIAL_SUMS:
            sums = sums.sum(2, keepdim=True)
        count = sums.shape[2]
    args = (relevance, u, v, sums, to_u, to_v, dropped, n, count)
    _split_sum(grid, *args, COUNT=power_of_two(count), BLOCK=BLOCK, num_warps=WARPS)
    return to_u, to_v, dropped


def gated_mean(gradient: Tensor, relevance: Tensor) -> Tensor:
    """Return the mean over heads of (gradient ⊙ relevance)⁺."""
    samples, heads, *rest = relevance.shape
    mean = relevance.new_empty(samples, *rest)
    n, grid = _plan_grid(mean, samples)
    _gated_mean(grid, gradient, relevance, mean, n, HEADS=heads, BLOCK=BLOCK, num_warps=WARPS)
    return mean


def log_sum(x: Tensor) -> Tensor:
    """Return log Σ exp over the last axis; rows need not be adjacent in memory."""
    rows = x.flatten(0, -2)
    out = x.new_empty(x.shape[:-1])
    _log_sum((len(rows), 1), rows, out, rows.stride(0), WIDTH=x.shape[-1], BLOCK=4096, num_warps=WARPS)
    return out
