"""The work between matrix products: one pass over memory where torch would take many. Every tensor is contiguous."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.launch import Launch, pieces, power_of_two

BLOCK = 2048
WARPS = 8
MANY = 1024


@triton.jit
def _place(n, BLOCK: tl.constexpr):
    """Places within the sample, places in memory, and which of them exist."""
    inside = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return inside, tl.program_id(1).to(tl.int64) * n + inside, inside < n


@triton.jit
def _keep_sum(sums, values):
    """Leaves the sum of one part of one sample in its own cell."""
    tl.store(sums + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.sum(values, 0))


@Launch
@triton.jit
def _quotient(relevance, denominator, quotient, lost, n, factor, BLOCK: tl.constexpr):
    kind = relevance.dtype.element_ty
    _, at, there = _place(n, BLOCK)
    r = tl.load(relevance + at, there, 0.0)
    d = tl.load(denominator + at, there, 1.0).to(kind)
    empty = d == 0
    share = tl.where(empty, 0.0, r / tl.where(empty, 1.0, d)) * factor
    tl.store(quotient + at, share.to(quotient.dtype.element_ty), there)
    _keep_sum(lost, tl.where(empty, r, 0.0))


@Launch
@triton.jit
def _positive(relevance, out, absolute, bias, scaled, lost, n, width, least, BIASED: tl.constexpr, BLOCK: tl.constexpr):
    kind = relevance.dtype.element_ty
    inside, at, there = _place(n, BLOCK)
    r = tl.load(relevance + at, there, 0.0)
    a = tl.load(absolute + at, there, 0.0)
    d = tl.load(out + at, there, 0.0) + a
    if BIASED:
        d -= tl.load(bias + inside % width, there, 0.0)
    empty = d <= a * least
    share = tl.where(empty, 0.0, r / tl.where(empty, 1.0, d * 0.5))
    tl.store(scaled + at, share.to(kind), there)
    _keep_sum(lost, tl.where(empty, r, 0.0))


@Launch
@triton.jit
def _halves(both, x, share, n, width, BLOCK: tl.constexpr):
    kind = both.dtype.element_ty
    _, at, there = _place(n, BLOCK)
    value = tl.load(x + at, there, 0.0).to(kind)
    half = at // width * (2 * width) + at % width + tl.where(value > 0, 0, width)
    tl.store(share + at, tl.load(both + half, there, 0.0) * value, there)


@Launch
@triton.jit
def _by_sign(x, both, absolute, n, width, ABSOLUTE: tl.constexpr, BLOCK: tl.constexpr):
    _, at, there = _place(n, BLOCK)
    value = tl.load(x + at, there, 0.0)
    first = both + at // width * (2 * width) + at % width
    tl.store(first, tl.where(value > 0, value, 0.0).to(value.dtype), there)
    tl.store(first + width, tl.where(value < 0, value, 0.0).to(value.dtype), there)
    if ABSOLUTE:
        tl.store(absolute + at, tl.abs(value), there)


@triton.jit
def _branches(relevance, u, v, at, there):
    kind = relevance.dtype.element_ty
    r = tl.load(relevance + at, there, 0.0)
    left, right = tl.load(u + at, there, 0.0).to(kind), tl.load(v + at, there, 0.0).to(kind)
    whole = left + right
    empty = whole == 0
    scaled = tl.where(empty, 0.0, r / tl.where(empty, 1.0, whole))
    return r, (scaled * left).to(kind), (scaled * right).to(kind), empty


@Launch
@triton.jit
def _branch_sums(relevance, u, v, sums, n, BLOCK: tl.constexpr):
    _, at, there = _place(n, BLOCK)
    r, left, right, _ = _branches(relevance, u, v, at, there)
    cells = tl.num_programs(0) * tl.num_programs(1)
    _keep_sum(sums, r)
    _keep_sum(sums + cells, left)
    _keep_sum(sums + 2 * cells, right)


@triton.jit
def _sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def _summed(sums, parts, PARTS: tl.constexpr):
    """The sum of what `_keep_sum` left of one sample."""
    place = tl.arange(0, PARTS)
    return tl.sum(tl.load(sums + tl.program_id(1) * parts + place, place < parts, 0.0), 0)


@triton.jit
def _normalised(sums, parts, left, right, PARTS: tl.constexpr):
    """Eq. 9: each branch keeps the part that its |Σ| has of all, with the sign of the whole."""
    cells = parts * tl.num_programs(1)
    whole, a = _summed(sums, parts, PARTS), _summed(sums + cells, parts, PARTS)
    b = _summed(sums + 2 * cells, parts, PARTS)
    agree = (_sign(a) == _sign(whole)) & (_sign(b) == _sign(whole))
    weight = tl.abs(a) + tl.abs(b)
    factor = tl.where(weight == 0, 0.0, whole / tl.where(weight == 0, 1.0, weight)).to(whole.dtype)
    return left * tl.where(agree, 1.0, _sign(a) * factor), right * tl.where(agree, 1.0, _sign(b) * factor)


@Launch
@triton.jit
def _branch_shares(relevance, u, v, sums, to_u, to_v, lost, n, parts, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    _, at, there = _place(n, BLOCK)
    r, left, right, empty = _branches(relevance, u, v, at, there)
    if PARTS:
        left, right = _normalised(sums, parts, left, right, PARTS)
    tl.store(to_u + at, left, there)
    tl.store(to_v + at, right, there)
    _keep_sum(lost, tl.where(empty, r, 0.0))


@Launch
@triton.jit
def _gated(gradient, relevance, found, n, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    inside, at, there = _place(n, BLOCK)
    total = tl.zeros((BLOCK,), found.dtype.element_ty)
    first = tl.program_id(1).to(tl.int64) * HEADS * n + inside
    for _ in range(HEADS):
        r = tl.load(relevance + first, there, 0.0)
        total += tl.maximum(tl.load(gradient + first, there, 0.0).to(r.dtype) * r, 0.0)
        first += n
    tl.store(found + at, total / HEADS, there)


@Launch
@triton.jit
def _log_sum(x, found, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Of one row, in one pass: sums are scaled anew where a larger value is met."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    most = tl.full((), float("-inf"), x.dtype.element_ty)
    total = tl.zeros((), x.dtype.element_ty)
    for start in range(0, WIDTH, BLOCK):
        values = tl.load(x + row * stride + start + place, start + place < WIDTH, float("-inf"))
        higher = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(values - higher), 0)
        most = higher
    tl.store(found + row, most + tl.log(total))


def _grid(tensor: Tensor, samples: int) -> tuple[int, tuple[int, int]]:
    """Elements of a sample, and the programs: parts of a sample × samples."""
    n = tensor.numel() // samples
    return n, (pieces(n, BLOCK), samples)


def _cells(like: Tensor, grid: tuple[int, int]) -> Tensor:
    return like.new_empty(grid[1], grid[0])


def quotient(
    relevance: Tensor, denominator: Tensor, samples: int, factor: float = 1.0, kind: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """factor · relevance / denominator with 0/0 = 0, in type `kind`, and what that took from parts of samples."""
    n, grid = _grid(relevance, samples)
    found, lost = torch.empty_like(relevance, dtype=kind), _cells(relevance, grid)
    _quotient(grid, relevance, denominator, found, lost, n, factor, BLOCK=BLOCK, num_warps=WARPS)
    return found, lost


def positive(
    relevance: Tensor, out: Tensor, absolute: Tensor, bias: Tensor | None, samples: int, least: float
) -> tuple[Tensor, Tensor]:
    """relevance over the positive part (out − bias + absolute) / 2, which is none at `least` · absolute / 2 or less."""
    n, grid = _grid(relevance, samples)
    scaled, lost = torch.empty_like(relevance), _cells(relevance, grid)
    given = (relevance, out, absolute, out if bias is None else bias, scaled, lost, n, out.shape[-1], least)
    _positive(grid, *given, BIASED=bias is not None, BLOCK=BLOCK, num_warps=WARPS)
    return scaled, lost


def halves(both: Tensor, x: Tensor) -> Tensor:
    """x times the first half of each row of `both` where x is positive, times the second half elsewhere."""
    share = torch.empty(x.shape, dtype=both.dtype, device=x.device)
    n, grid = _grid(x, 1)
    _halves(grid, both, x, share, n, x.shape[-1], BLOCK=BLOCK, num_warps=WARPS)
    return share


def by_sign(x: Tensor, *, absolute: bool = False) -> tuple[Tensor, Tensor]:
    """The positive and the negative part side by side along the last axis, and |x| if asked for."""
    both = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])
    n, grid = _grid(x, 1)
    size = torch.empty_like(x) if absolute else x
    _by_sign(grid, x, both, size, n, x.shape[-1], ABSOLUTE=absolute, BLOCK=BLOCK, num_warps=WARPS)
    return both, size


def split(relevance: Tensor, u: Tensor, v: Tensor, samples: int, normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the two terms of a sum, and what 0/0 took; normalised with each sample's sums (Eq. 9) if asked."""
    n, grid = _grid(relevance, samples)
    to_u, to_v, lost = torch.empty_like(relevance), torch.empty_like(relevance), _cells(relevance, grid)
    sums, parts = lost, 0
    if normalised:
        sums = relevance.new_empty(3, *lost.shape)
        _branch_sums(grid, relevance, u, v, sums, n, BLOCK=BLOCK, num_warps=WARPS)
        # Every program adds up all parts of its sample, unless there are too many.
        sums = sums if grid[0] <= MANY else sums.sum(2, keepdim=True)
        parts = sums.shape[2]
    given = (relevance, u, v, sums, to_u, to_v, lost, n, parts)
    _branch_shares(grid, *given, PARTS=power_of_two(parts), BLOCK=BLOCK, num_warps=WARPS)
    return to_u, to_v, lost


def gated_mean(gradient: Tensor, relevance: Tensor) -> Tensor:
    """Mean over heads of (gradient ⊙ relevance)⁺."""
    samples, heads, *rest = relevance.shape
    found = relevance.new_empty(samples, *rest)
    n, grid = _grid(found, samples)
    _gated(grid, gradient, relevance, found, n, HEADS=heads, BLOCK=BLOCK, num_warps=WARPS)
    return found


def log_sum(x: Tensor) -> Tensor:
    """log Σ exp over the last axis, whose rows may lie apart."""
    rows = x.flatten(0, -2)
    found = x.new_empty(x.shape[:-1])
    _log_sum((len(rows), 1), rows, found, rows.stride(0), WIDTH=x.shape[-1], BLOCK=4096, num_warps=WARPS)
    return found
