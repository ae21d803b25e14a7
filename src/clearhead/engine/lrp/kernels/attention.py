"""The relevance rule of attention's two matrix products (TransAtt Eq. 2 for each operand, halved).

Denominators and quotients stay on chip instead of going through memory. Tensors are batch × head × token × channel; the
relevance of queries, keys and values is read and written in the order batch × token × head × channel, which the
neighbouring layers have.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearhead.engine.lrp.kernels.launch import Launch, ceil_divide, power_of_two

TILE = 64


@triton.jit
def _load_rows(x, start, length, channels, SIZE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load a tile of rows of the token × channel matrix of one head."""
    row, channel = start + tl.arange(0, SIZE), tl.arange(0, CHANNELS)
    mask = (row < length)[:, None] & (channel < channels)[None, :]
    return tl.load(x + row[:, None].to(tl.int64) * channels + channel[None, :], mask, 0.0)


@triton.jit
def _map_tile(start, across, length, width, SIZE: tl.constexpr, ACROSS: tl.constexpr):
    """Return the offsets of a tile of one head's attention map, and the mask of those that exist."""
    row, column = start + tl.arange(0, SIZE), across + tl.arange(0, ACROSS)
    return row[:, None].to(tl.int64) * width + column[None, :], (row < length)[:, None] & (column < width)[None, :]


@triton.jit
def _interleaved_tile(start, length, heads, channels, SIZE: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the offsets of a tile of rows in the order batch × token × head × channel, and their mask."""
    row, channel = start + tl.arange(0, SIZE), tl.arange(0, CHANNELS)
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    token = batch.to(tl.int64) * length + row
    offset = (token[:, None] * heads + head) * channels + channel[None, :]
    return offset, (row < length)[:, None] & (channel < channels)[None, :]


@triton.jit
def _halve_quotient(r, denominator):
    """Return r / (2 · denominator) with 0/0 = 0, and what that drops."""
    is_zero = denominator == 0
    return tl.where(is_zero, 0.0, 0.5 * r / tl.where(is_zero, 1.0, denominator)), tl.where(is_zero, r, 0.0)


@Launch
@triton.jit
def _share_attention(
    attention,
    value,
    relevance,
    scaled,
    to_map,
    dropped,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """scaled = relevance / (2 · attention · value) and to_map = attention ⊙ (scaled · valueᵀ), a tile of queries."""
    # 64 bits: the maps of a batch may have more elements than 32-bit offsets can address.
    start, head_index = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    attention += head_index * queries * keys
    to_map += head_index * queries * keys
    value += head_index * keys * channels
    product = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        map_offset, map_mask = _map_tile(start, tile * TILE, queries, keys, TILE, TILE)
        v = _load_rows(value, tile * TILE, keys, channels, TILE, CHANNELS)
        product = tl.dot(tl.load(attention + map_offset, map_mask, 0.0), v, product, input_precision=PRECISION)
    offset, mask = _interleaved_tile(start, queries, heads, channels, TILE, CHANNELS)
    quotient, lost = _halve_quotient(tl.load(relevance + offset, mask, 0.0), product)
    row = start + tl.arange(0, TILE)
    tl.store(dropped + head_index * queries + row, tl.sum(lost, 1), row < queries)
    share = quotient.to(attention.dtype.element_ty)
    tl.store(scaled + offset, share, mask)
    for tile in range(TILES):
        map_offset, map_mask = _map_tile(start, tile * TILE, queries, keys, TILE, TILE)
        v = _load_rows(value, tile * TILE, keys, channels, TILE, CHANNELS)
        back = tl.dot(share, tl.trans(v), input_precision=PRECISION)
        weights = tl.load(attention + map_offset, map_mask, 0.0).to(tl.float32)
        tl.store(to_map + map_offset, back * weights, map_mask)


@Launch
@triton.jit
def _share_values(
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
    """to_value = value ⊙ (attentionᵀ · scaled), a tile of keys."""
    start, head_index = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    attention += head_index * queries * keys
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        map_offset, map_mask = _map_tile(tile * TILE, start, queries, keys, TILE, TILE)
        weights = tl.load(attention + map_offset, map_mask, 0.0)
        offset, mask = _interleaved_tile(tile * TILE, queries, heads, channels, TILE, CHANNELS)
        share = tl.load(scaled + offset, mask, 0.0)
        back = tl.dot(tl.trans(weights), share, back, input_precision=PRECISION)
    v = _load_rows(value + head_index * keys * channels, start, keys, channels, TILE, CHANNELS)
    offset, mask = _interleaved_tile(start, keys, heads, channels, TILE, CHANNELS)
    tl.store(to_value + offset, back * v.to(tl.float32), mask)


@Launch
@triton.jit
def _share_queries(
    query,
    key,
    relevance,
    to_query,
    dropped,
    queries,
    keys,
    heads,
    channels,
    PRECISION: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """to_query = query ⊙ (relevance / (2 · query · keyᵀ)) · key, a tile of queries."""
    start, head_index = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    relevance += head_index * queries * keys
    q = _load_rows(query + head_index * queries * channels, start, queries, channels, TILE, CHANNELS)
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    lost_sum = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        k = _load_rows(key + head_index * keys * channels, tile * TILE, keys, channels, TILE, CHANNELS)
        map_offset, map_mask = _map_tile(start, tile * TILE, queries, keys, TILE, TILE)
        product = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        share, lost = _halve_quotient(tl.load(relevance + map_offset, map_mask, 0.0), product)
        lost_sum += tl.sum(lost, 1)
        back = tl.dot(share.to(k.dtype), k, back, input_precision=PRECISION)
    offset, mask = _interleaved_tile(start, queries, heads, channels, TILE, CHANNELS)
    tl.store(to_query + offset, back * q.to(tl.float32), mask)
    row = start + tl.arange(0, TILE)
    tl.store(dropped + head_index * queries + row, lost_sum, row < queries)


@Launch
@triton.jit
def _share_keys(
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
    """to_key = key ⊙ (relevance / (2 · query · keyᵀ))ᵀ · query, a tile of keys."""
    start, head_index = tl.program_id(1) * TILE, tl.program_id(0).to(tl.int64)
    relevance += head_index * queries * keys
    k = _load_rows(key + head_index * keys * channels, start, keys, channels, TILE, CHANNELS)
    back = tl.zeros((TILE, CHANNELS), tl.float32)
    for tile in range(TILES):
        q = _load_rows(query + head_index * queries * channels, tile * TILE, queries, channels, TILE, CHANNELS)
        map_offset, map_mask = _map_tile(tile * TILE, start, queries, keys, TILE, TILE)
        # Computed a second time: cheaper than the quotients' way through memory.
        product = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        share, _ = _halve_quotient(tl.load(relevance + map_offset, map_mask, 0.0), product)
        back = tl.dot(tl.trans(share.to(q.dtype)), q, back, input_precision=PRECISION)
    offset, mask = _interleaved_tile(start, keys, heads, channels, TILE, CHANNELS)
    tl.store(to_key + offset, back * k.to(tl.float32), mask)


def _empty_interleaved(tensor_BHTD: Tensor) -> Tensor:
    """Return an empty float32 tensor of the same shape whose memory is in the order batch × token × head × channel."""
    batch, heads, tokens, channels = tensor_BHTD.shape
    return tensor_BHTD.new_empty(batch, tokens, heads, channels, dtype=torch.float32).transpose(1, 2)


def _plan_tiles(tokens: int, channels: int, precision: str) -> dict[str, object]:
    """Return the constants of a kernel that loops over this many tokens."""
    return {
        "PRECISION": precision,
        "TILES": ceil_divide(tokens, TILE),
        "TILE": TILE,
        # Triton's matrix products need powers of two, and at least 16.
        "CHANNELS": max(16, power_of_two(channels)),
        "num_warps": 4,
    }


def share_attention_value(
    attention: Tensor, value: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shares of attention and values in attention · value, and partial sums of what 0/0 dropped."""
    batch, heads, queries, keys = attention.shape
    channels = value.shape[-1]
    relevance = relevance.transpose(1, 2).contiguous()
    scaled = torch.empty_like(relevance, dtype=value.dtype)
    to_map = torch.empty_like(attention, dtype=torch.float32)
    to_value = _empty_interleaved(value)
    dropped = relevance.new_empty(samples, batch // samples * heads * queries)
    sizes = (queries, keys, heads, channels)
    grid = (batch * heads, ceil_divide(queries, TILE))
    constants = _plan_tiles(keys, channels, precision)
    _share_attention(grid, attention, value, relevance, scaled, to_map, dropped, *sizes, **constants)
    grid = (batch * heads, ceil_divide(keys, TILE))
    _share_values(grid, attention, value, scaled, to_value, *sizes, **_plan_tiles(queries, channels, precision))
    return to_map, to_value, dropped


def share_query_key(
    query: Tensor, key: Tensor, relevance: Tensor, samples: int, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shares of queries and keys in query · keyᵀ, and partial sums of what 0/0 dropped."""
    batch, heads, queries, channels = query.shape
    keys = key.shape[-2]
    relevance = relevance.contiguous()
    to_query = _empty_interleaved(query)
    to_key = _empty_interleaved(key)
    dropped = relevance.new_empty(samples, batch // samples * heads * queries)
    sizes = (queries, keys, heads, channels)
    grid = (batch * heads, ceil_divide(queries, TILE))
    _share_queries(grid, query, key, relevance, to_query, dropped, *sizes, **_plan_tiles(keys, channels, precision))
    grid = (batch * heads, ceil_divide(keys, TILE))
    _share_keys(grid, query, key, relevance, to_key, *sizes, **_plan_tiles(queries, channels, precision))
    return to_query, to_key, dropped
