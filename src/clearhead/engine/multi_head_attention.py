"""torch's multi-head attention decomposed into projections and scaled dot-product attention."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NAME = "multi_head_attention_forward"
# Arguments for cases that no model needed so far: masks, and keys and values of other sizes.
UNUSED = ("key_padding_mask", "attn_mask", "static_k", "static_v")


def can_decompose(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of `multi_head_attention_forward` is a plain one: no masks, one size, no added keys."""
    if len(args) != len(ARGUMENTS) or kwargs.get("use_separate_proj_weight"):
        return False
    by_name = dict(zip(ARGUMENTS, args, strict=True))
    has_added_keys = by_name["bias_k"] is not None or by_name["add_zero_attn"]
    return not has_added_keys and all(kwargs.get(name) is None for name in UNUSED)


# The positional arguments of torch's function.
ARGUMENTS = (
    *("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k"),
    *("bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias"),
)


def decompose_heads(
    args: tuple[Any, ...], call: Callable[..., Tensor], attend: Callable[..., Tensor]
) -> tuple[Tensor, None]:
    """Compute `multi_head_attention_forward` on sequences (T,B,D) in steps made by `call`; without returned weights."""
    by_name = dict(zip(ARGUMENTS, args, strict=True))
    heads = by_name["num_heads"]
    # Queries, keys and values are projected by one stacked matrix.
    weights = by_name["in_proj_weight"].chunk(3)
    biases = _split_bias(by_name["in_proj_bias"])
    projected = []
    for sequence, weight, bias in zip(args[:3], weights, biases, strict=True):
        projected.append(_split_heads(call(F.linear, sequence, weight, bias), heads, call))
    # Only the output is used: the weights that torch would return are recorded as the attention map.
    joined = _join_heads(attend(*projected), call)
    return call(F.linear, joined, by_name["out_proj_weight"], by_name["out_proj_bias"]), None


def _split_bias(bias: Tensor | None) -> tuple[Tensor | None, ...]:
    if bias is None:
        return (None, None, None)
    return bias.chunk(3)


def _split_heads(sequence_TBD: Tensor, heads: int, call: Callable[..., Tensor]) -> Tensor:
    tokens, samples, width = sequence_TBD.shape
    split = call(torch.reshape, sequence_TBD, (tokens, samples, heads, width // heads))
    return call(torch.permute, split, (1, 2, 0, 3))


def _join_heads(heads_BHTD: Tensor, call: Callable[..., Tensor]) -> Tensor:
    samples, heads, tokens, width = heads_BHTD.shape
    ordered = call(torch.permute, heads_BHTD, (2, 0, 1, 3))
    return call(torch.reshape, ordered, (tokens, samples, heads * width))
