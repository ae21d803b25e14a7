"""The positive rule of a linear layer: each of its two products with the work around it, in one kernel.

The positive part x⁺w⁺ + x⁻w⁻ is summed directly, so that nothing cancels. Weights are split by sign on the way, or come
split already (`by_sign`), which pays where many rows share them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import few_rows
from clearhead.engine.lrp.kernels.launch import Launch, pieces


@triton.jit
def _positive(x):
    return tl.where(x > 0, x, 0.0).to(x.dtype)


@triton.jit
def _negative(x):
    return tl.where(x < 0, x, 0.0).to(x.dtype)


@triton.jit
def _halves(weight, there, width: tl.constexpr, SPLIT: tl.constexpr):
    """Both halves of a tile of weights."""
    first = tl.load(weight, there, 0.0)
    if SPLIT:
        return first, tl.load(weight + width, there, 0.0)
    return _positive(first), _negative(first)


@triton.jit
def _tile(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which tile of the result this program makes: neighbours share rows, which stay in the cache."""
    across = tl.cdiv(columns, COLUMNS)
    band = tl.program_id(0) // (8 * across)
    height = min(tl.cdiv(rows, ROWS) - band * 8, 8)
    inside = tl.program_id(0) % (8 * across)
    down, right = band * 8 + inside % height, inside // height
    return down * ROWS + tl.arange(0, ROWS), right * COLUMNS + tl.arange(0, COLUMNS), right


@Launch
@triton.jit
def _per_unit(
    x,
    weight,
    relevance,
    scaled,
    lost,
    rows,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row, unit, band = _tile(rows, OUT, ROWS, COLUMNS)
    deep = tl.arange(0, DEPTH)
    width: tl.constexpr = 2 * IN if SPLIT else IN
    xs = x + (row % rows)[:, None].to(tl.int64) * IN + deep[None, :]
    ws = weight + (unit % OUT)[None, :].to(tl.int64) * width + deep[:, None]
    whole = tl.zeros((ROWS, COLUMNS), tl.float32)
    for at in range(0, IN, DEPTH):
        there = deep + at < IN
        value = tl.load(xs + at, there[None, :], 0.0)
        upper, lower = _halves(ws + at, there[:, None], IN, SPLIT)
        whole = tl.dot(_positive(value), upper, whole, input_precision=PRECISION)
        whole = tl.dot(_negative(value), lower, whole, input_precision=PRECISION)
    place = row[:, None].to(tl.int64) * OUT + unit[None, :]
    there = (row < rows)[:, None] & (unit < OUT)[None, :]
    r = tl.load(relevance + place, there, 0.0)
    empty = whole == 0
    share = tl.where(empty, 0.0, r / tl.where(empty, 1.0, whole))
    tl.store(scaled + place, share.to(scaled.dtype.element_ty), there)
    tl.store(lost + row.to(tl.int64) * tl.cdiv(OUT, COLUMNS) + band, tl.sum(tl.where(empty, r, 0.0), 1), row < rows)


@Launch
@triton.jit
def _to_inputs(
    scaled,
    weight,
    x,
    share,
    rows,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row, column, _ = _tile(rows, IN, ROWS, COLUMNS)
    deep = tl.arange(0, DEPTH)
    width: tl.constexpr = 2 * IN if SPLIT else IN
    ss = scaled + (row % rows)[:, None].to(tl.int64) * OUT + deep[None, :]
    ws = weight + deep[:, None].to(tl.int64) * width + (column % IN)[None, :]
    above, below = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for at in range(0, OUT, DEPTH):
        there = deep + at < OUT
        s = tl.load(ss + at, there[None, :], 0.0)
        upper, lower = _halves(ws + at * width, there[:, None], IN, SPLIT)
        above = tl.dot(s, upper, above, input_precision=PRECISION)
        below = tl.dot(s, lower, below, input_precision=PRECISION)
    place = row[:, None].to(tl.int64) * IN + column[None, :]
    there = (row < rows)[:, None] & (column < IN)[None, :]
    value = tl.load(x + place, there, 0.0).to(tl.float32)
    tl.store(share + place, tl.where(value > 0, above, below) * value, there)


def plan(x: Tensor) -> dict[str, int]:
    """Tiles and warps: small where there are few rows, so that every processor has one."""
    if few_rows(x):
        return {"ROWS": 32, "COLUMNS": 64, "DEPTH": 64, "num_warps": 4, "num_stages": 3}
    return {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64 if x.itemsize == 2 else 32, "num_warps": 8, "num_stages": 3}


def _grid(rows: int, columns: int, tiles: dict[str, int]) -> tuple[int, int]:
    return pieces(rows, tiles["ROWS"]) * pieces(columns, tiles["COLUMNS"]), 1


def per_unit(
    x: Tensor, weight: Tensor, relevance: Tensor, samples: int, *, split: bool, precision: str
) -> tuple[Tensor, Tensor]:
    """Relevance over the positive part of each unit, in the type of x, and what 0/0 took from parts of samples."""
    tiles, inputs, units = plan(x), x.shape[-1], relevance.shape[-1]
    rows = x.numel() // inputs
    scaled = torch.empty_like(relevance, dtype=x.dtype)
    lost = relevance.new_empty(samples, rows // samples * pieces(units, tiles["COLUMNS"]))
    given = (x, weight, relevance, scaled, lost, rows)
    _per_unit(_grid(rows, units, tiles), *given, OUT=units, IN=inputs, SPLIT=split, PRECISION=precision, **tiles)
    return scaled, lost


def to_inputs(scaled: Tensor, weight: Tensor, x: Tensor, *, split: bool, precision: str) -> Tensor:
    """x⁺ · (scaled w⁺) + x⁻ · (scaled w⁻), in float32."""
    tiles, inputs, units = plan(x), x.shape[-1], scaled.shape[-1]
    rows = x.numel() // inputs
    share = torch.empty_like(x, dtype=torch.float32)
    grid = _grid(rows, inputs, tiles)
    _to_inputs(grid, scaled, weight, x, share, rows, OUT=units, IN=inputs, SPLIT=split, PRECISION=precision, **tiles)
    return share
