"""The positive rule of a linear layer: two kernels, each a matrix product with the elementwise work around it.

The positive part x⁺w⁺ + x⁻w⁻ is summed directly, so that nothing cancels. Weights are split by sign inside the kernels,
or come already split (`split_by_sign`), which pays if many rows share them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import has_few_rows
from clearhead.engine.lrp.kernels.launch import Launch, ceil_divide


@triton.jit
def _positive(x):
    """Return x⁺."""
    return tl.where(x > 0, x, 0.0).to(x.dtype)


@triton.jit
def _negative(x):
    """Return x⁻."""
    return tl.where(x < 0, x, 0.0).to(x.dtype)


@triton.jit
def _load_halves(weight, mask, width: tl.constexpr, SPLIT: tl.constexpr):
    """Load the positive and the negative half of a tile of weights."""
    first = tl.load(weight, mask, 0.0)
    if SPLIT:
        return first, tl.load(weight + width, mask, 0.0)
    return _positive(first), _negative(first)


@triton.jit
def _tile(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the rows and columns of this program's tile, and the index of its tile column.

    Programs go down bands of eight tile rows, so that neighbours share operands in the cache.
    """
    across = tl.cdiv(columns, COLUMNS)
    band = tl.program_id(0) // (8 * across)
    height = min(tl.cdiv(rows, ROWS) - band * 8, 8)
    inside = tl.program_id(0) % (8 * across)
    down, right = band * 8 + inside % height, inside // height
    return down * ROWS + tl.arange(0, ROWS), right * COLUMNS + tl.arange(0, COLUMNS), right


@Launch
@triton.jit
def _scale_per_unit(
    x,
    weight,
    relevance,
    scaled,
    dropped,
    rows,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """scaled = relevance / (x⁺w⁺ + x⁻w⁻) with 0/0 = 0, a tile of rows × output units."""
    row, unit, tile_column = _tile(rows, OUT, ROWS, COLUMNS)
    depth = tl.arange(0, DEPTH)
    width: tl.constexpr = 2 * IN if SPLIT else IN
    # Rows and units beyond the end wrap around: they load valid memory, and are not stored.
    x_pointers = x + (row % rows)[:, None].to(tl.int64) * IN + depth[None, :]
    weight_pointers = weight + (unit % OUT)[None, :].to(tl.int64) * width + depth[:, None]
    denominator = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, IN, DEPTH):
        in_depth = depth + start < IN
        value = tl.load(x_pointers + start, in_depth[None, :], 0.0)
        upper, lower = _load_halves(weight_pointers + start, in_depth[:, None], IN, SPLIT)
        denominator = tl.dot(_positive(value), upper, denominator, input_precision=PRECISION)
        denominator = tl.dot(_negative(value), lower, denominator, input_precision=PRECISION)
    offset = row[:, None].to(tl.int64) * OUT + unit[None, :]
    mask = (row < rows)[:, None] & (unit < OUT)[None, :]
    r = tl.load(relevance + offset, mask, 0.0)
    is_zero = denominator == 0
    share = tl.where(is_zero, 0.0, r / tl.where(is_zero, 1.0, denominator))
    tl.store(scaled + offset, share.to(scaled.dtype.element_ty), mask)
    dropped_offset = row.to(tl.int64) * tl.cdiv(OUT, COLUMNS) + tile_column
    tl.store(dropped + dropped_offset, tl.sum(tl.where(is_zero, r, 0.0), 1), row < rows)


@Launch
@triton.jit
def _share_inputs(
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
    """share = x⁺ · (scaled w⁺) + x⁻ · (scaled w⁻), a tile of rows × inputs."""
    row, column, _ = _tile(rows, IN, ROWS, COLUMNS)
    depth = tl.arange(0, DEPTH)
    width: tl.constexpr = 2 * IN if SPLIT else IN
    # Rows and columns beyond the end wrap around: they load valid memory, and are not stored.
    scaled_pointers = scaled + (row % rows)[:, None].to(tl.int64) * OUT + depth[None, :]
    weight_pointers = weight + depth[:, None].to(tl.int64) * width + (column % IN)[None, :]
    above, below = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, OUT, DEPTH):
        in_depth = depth + start < OUT
        s = tl.load(scaled_pointers + start, in_depth[None, :], 0.0)
        upper, lower = _load_halves(weight_pointers + start * width, in_depth[:, None], IN, SPLIT)
        above = tl.dot(s, upper, above, input_precision=PRECISION)
        below = tl.dot(s, lower, below, input_precision=PRECISION)
    offset = row[:, None].to(tl.int64) * IN + column[None, :]
    mask = (row < rows)[:, None] & (column < IN)[None, :]
    value = tl.load(x + offset, mask, 0.0).to(tl.float32)
    # An input is either positive or negative, so one of the two products applies.
    tl.store(share + offset, tl.where(value > 0, above, below) * value, mask)


def plan_tiles(x: Tensor) -> dict[str, int]:
    """Return tile sizes and warps: small tiles for few rows, so that every multiprocessor gets one."""
    if has_few_rows(x):
        return {"ROWS": 32, "COLUMNS": 64, "DEPTH": 64, "num_warps": 4, "num_stages": 3}
    return {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64 if x.itemsize == 2 else 32, "num_warps": 8, "num_stages": 3}


def _grid(rows: int, columns: int, tiles: dict[str, int]) -> tuple[int, int]:
    return ceil_divide(rows, tiles["ROWS"]) * ceil_divide(columns, tiles["COLUMNS"]), 1


def scale_per_unit(
    x: Tensor, weight: Tensor, relevance: Tensor, samples: int, *, split: bool, precision: str
) -> tuple[Tensor, Tensor]:
    """Return relevance over the positive part of each unit, in the dtype of x, and partial sums of what 0/0 dropped."""
    tiles = plan_tiles(x)
    inputs = x.shape[-1]
    units = relevance.shape[-1]
    rows = x.numel() // inputs
    scaled = torch.empty_like(relevance, dtype=x.dtype)
    dropped = relevance.new_empty(samples, rows // samples * ceil_divide(units, tiles["COLUMNS"]))
    constants = {"OUT": units, "IN": inputs, "SPLIT": split, "PRECISION": precision, **tiles}
    _scale_per_unit(_grid(rows, units, tiles), x, weight, relevance, scaled, dropped, rows, **constants)
    return scaled, dropped


def share_inputs(scaled: Tensor, weight: Tensor, x: Tensor, *, split: bool, precision: str) -> Tensor:
    """Return x⁺ · (scaled w⁺) + x⁻ · (scaled w⁻) in float32."""
    tiles = plan_tiles(x)
    inputs = x.shape[-1]
    units = scaled.shape[-1]
    rows = x.numel() // inputs
    share = torch.empty_like(x, dtype=torch.float32)
    constants = {"OUT": units, "IN": inputs, "SPLIT": split, "PRECISION": precision, **tiles}
    _share_inputs(_grid(rows, inputs, tiles), scaled, weight, x, share, rows, **constants)
    return share
