"""The rule of the two products of attention (Eq. 2 for each operand, halved), without what they would leave in memory.

Tensors are batch × head × token × channel; the relevance of queries, keys and values is read and written in the order
batch × token × head × channel, in which the layers before and behind have it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.launch import Launch, pieces, power_of_two

TILE = 64


@triton.jit
def _rows(x, start, length, channels, SIZE: tl.constexpr, CHANNELS: tl.constexpr):
    """A tile of rows of the (token, channel) matrix of one head."""
    row, channel = start + tl.arange(0, SIZE), tl.arange(0, CHANNELS)
    there = (row < length)[:, None] & (channel < channels)[None, :]
    return tl.load(x + row[:, None].to(tl.int64) * channels + channel[None, :], there, 0.0)


@triton.jit
def _cells(start, across, length, width, SIZE: tl.constexpr, ACROSS: tl.constexpr):
    """Places of a tile of a map of one head, and which of them exist."""
    row, column = start + tl.arange(0, SIZE), across + tl.arange(0, ACROSS)
    return row[:, None].to(tl.int64) * width + column[None, :], (row < length)[:, None] & (column < width)[None, :]


@triton.jit
def _interleaved(start, length, heads, channels, SIZE: tl.constexpr, CHANNELS: tl.constexpr):
    """Places of a tile of rows in the order batch × token × head × channel."""
    row, channel = start + tl.arange(0, SIZE), tl.arange(0, CHANNELS)
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    token = batch.to(tl.int64) * length + row
    place = (token[:, None] * heads + head) * channels + channel[None, :]
    return place, (row < length)[:, None] & (channel < channels)[None, :]


@triton.jit
def _over(r, whole):
    """r / (2 · whole) with 0/0 = 0, and what that took."""
    empty = whole == 0
    return tl.where(empty, 0.0, 0.5 * r / tl.where(empty, 1.0, whole)), tl.where(empty, r, 0.0)


@Launch
@triton.jit
def _mixed_maps(
    attention,
    value,
    relevance,
    scaled,
    to_map,
    lost,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start, one = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    attention += one * queries * keys
    to_map += one * queries * keys
    value += one * keys * channels
    whole = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        at, there = _cells(start, tile * TILE, queries, keys, TILE, TILE)
        v = _rows(value, tile * TILE, keys, channels, TILE, CHANNELS)
        whole = tl.dot(tl.load(attention + at, there, 0.0), v, whole, input_precision=PRECISION)
    place, exists = _interleaved(start, queries, heads, channels, TILE, CHANNELS)
    found, taken = _over(tl.load(relevance + place, exists, 0.0), whole)
    row = start + tl.arange(0, TILE)
    tl.store(lost + one * queries + row, tl.sum(taken, 1), row < queries)
    share = found.to(attention.dtype.element_ty)
    tl.store(scaled + place, share, exists)
    for tile in range(TILES):
        at, there = _cells(start, tile * TILE, queries, keys, TILE, TILE)
        v = _rows(value, tile * TILE, keys, channels, TILE, CHANNELS)
        back = tl.dot(share, tl.trans(v), input_precision=PRECISION)
        tl.store(to_map + at, back * tl.load(attention + at, there, 0.0).to(tl.float32), there)


@Launch
@triton.jit
def _mixed_values(
    attention,
    value,
    scaled,
    to_value,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start, one = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    attention += one * queries * keys
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        at, there = _cells(tile * TILE, start, queries, keys, TILE, TILE)
        weights = tl.load(attention + at, there, 0.0)
        place, exists = _interleaved(tile * TILE, queries, heads, channels, TILE, CHANNELS)
        share = tl.load(scaled + place, exists, 0.0)
        back = tl.dot(tl.trans(weights), share, back, input_precision=PRECISION)
    v = _rows(value + one * keys * channels, start, keys, channels, TILE, CHANNELS)
    mine, exists = _interleaved(start, keys, heads, channels, TILE, CHANNELS)
    tl.store(to_value + mine, back * v.to(tl.float32), exists)


@Launch
@triton.jit
def _weighed_queries(
    query,
    key,
    relevance,
    to_query,
    lost,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start, one = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    relevance += one * queries * keys
    q = _rows(query + one * queries * channels, start, queries, channels, TILE, CHANNELS)
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    gone = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        k = _rows(key + one * keys * channels, tile * TILE, keys, channels, TILE, CHANNELS)
        at, there = _cells(start, tile * TILE, queries, keys, TILE, TILE)
        whole = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        share, taken = _over(tl.load(relevance + at, there, 0.0), whole)
        gone += tl.sum(taken, 1)
        back = tl.dot(share.to(k.dtype), k, back, input_precision=PRECISION)
    place, exists = _interleaved(start, queries, heads, channels, TILE, CHANNELS)
    tl.store(to_query + place, back * q.to(tl.float32), exists)
    row = start + tl.arange(0, TILE)
    tl.store(lost + one * queries + row, gone, row < queries)


@Launch
@triton.jit
def _weighed_keys(
    query,
    key,
    relevance,
    to_key,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start, one = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    relevance += one * queries * keys
    k = _rows(key + one * keys * channels, start, keys, channels, TILE, CHANNELS)
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        q = _rows(query + one * queries * channels, tile * TILE, queries, channels, TILE, CHANNELS)
        at, there = _cells(tile * TILE, start, queries, keys, TILE, TILE)
        whole = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        share, _ = _over(tl.load(relevance + at, there, 0.0), whole)
        back = tl.dot(tl.trans(share.to(q.dtype)), q, back, input_precision=PRECISION)
    place, exists = _interleaved(start, keys, heads, channels, TILE, CHANNELS)
    tl.store(to_key + place, back * k.to(tl.float32), exists)


def _spread(like: Tensor, dtype: torch.dtype) -> Tensor:
    """An empty tensor of the same shape that lies in the order batch × token × head × channel."""
    batch, heads, tokens, channels = like.shape
    return like.new_empty(batch, tokens, heads, channels, dtype=dtype).transpose(1, 2)


def _plan(tokens: int, channels: int, precision: str) -> dict[str, object]:
    return {
        "PRECISION": precision,
        "TILES": pieces(tokens, TILE),
        "TILE": TILE,
        "CHANNELS": max(16, power_of_two(channels)),
        "num_warps": 4,
    }


def mixed(
    attention: Tensor, value: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of attention and values in the relevance of attention · value, and what 0/0 took from parts of samples."""
    (batch, heads, queries, keys), channels = attention.shape, value.shape[-1]
    relevance = relevance.transpose(1, 2).contiguous()
    scaled = torch.empty_like(relevance, dtype=value.dtype)
    to_map, to_value = torch.empty_like(attention, dtype=torch.float32), _spread(value, torch.float32)
    lost = relevance.new_empty(samples, batch // samples * heads * queries)
    sizes, grid = (queries, keys, heads, channels), (batch * heads, pieces(queries, TILE))
    given = (attention, value, relevance, scaled, to_map, lost, *sizes)
    _mixed_maps(grid, *given, **_plan(keys, channels, precision))
    grid = (batch * heads, pieces(keys, TILE))
    _mixed_values(grid, attention, value, scaled, to_value, *sizes, **_plan(queries, channels, precision))
    return to_map, to_value, lost


def weighed(
    query: Tensor, key: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of queries and keys in the relevance of query · keyᵀ, and what 0/0 took from parts of samples."""
    (batch, heads, queries, channels), keys = query.shape, key.shape[-2]
    relevance = relevance.contiguous()
    to_query, to_key = _spread(query, torch.float32), _spread(key, torch.float32)
    lost = relevance.new_empty(samples, batch // samples * heads * queries)
    sizes, grid = (queries, keys, heads, channels), (batch * heads, pieces(queries, TILE))
    _weighed_queries(grid, query, key, relevance, to_query, lost, *sizes, **_plan(keys, channels, precision))
    grid = (batch * heads, pieces(keys, TILE))
    _weighed_keys(grid, query, key, relevance, to_key, *sizes, **_plan(queries, channels, precision))
    return to_query, to_key, lost
