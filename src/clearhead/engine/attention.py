"""Scaled dot-product attention decomposed into steps, so that its attention map is recorded."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def call_directly(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call a function without recording it."""
    return function(*args)


def decompose_attention(  # noqa: PLR0913  the arguments of torch's function, and three of ours
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    masks: "Masks | None" = None,
    call: Callable[..., Tensor] = call_directly,
    make_contiguous: Callable[[Tensor], Tensor] = Tensor.contiguous,
) -> Tensor:
    """Compute scaled_dot_product_attention in the steps that have relevance rules, each made by `call`.

    Dropout is ignored: networks are traced in evaluation mode.
    """
    if enable_gqa:
        key = _repeat_heads(key, query, call)
        value = _repeat_heads(value, query, call)
    # Matrix products would copy strided operands each time: once in the forward pass and twice in the relevance pass.
    query = make_contiguous(query)
    key = make_contiguous(key)
    value = make_contiguous(value)
    masks = masks or Masks()
    if is_causal:
        attn_mask = masks.causal(query.shape[-2], key.shape[-2], query.device)
    bias, masked_rows = masks.as_bias(attn_mask, query.dtype)
    attention = _call_attention_weights(query, key, _scale_or_default(scale, query), bias, call)
    if masked_rows is not None:
        attention = call(torch.masked_fill, attention, masked_rows, 0.0)
    return call(torch.matmul, attention, value)


def _repeat_heads(grouped: Tensor, query: Tensor, call: Callable[..., Tensor]) -> Tensor:
    """Repeat the heads of keys or values that several heads of the queries share."""
    groups = query.shape[-3] // grouped.shape[-3]
    return call(torch.repeat_interleave, grouped, groups, -3)


def _scale_or_default(scale: float | None, query: Tensor) -> float:
    if scale is not None:
        return scale
    # Vaswani et al. 2017, Eq. 1: dot products of D features have a deviation of √D.
    inverse: float = query.shape[-1] ** -0.5
    return inverse


def _call_attention_weights(
    query: Tensor, key: Tensor, scale: float, bias: Tensor | None, call: Callable[..., Tensor]
) -> Tensor:
    """Compute attention weights as one recorded step if the bias is constant, else in elementary steps."""
    # A bias that depends on the input gets relevance of its own, so the addition must be on the tape.
    if bias is not None and bias.requires_grad:
        return attention_weights(query, key, scale, bias, call)
    return call(attention_weights, query, key, scale, bias)


def attention_weights(
    query: Tensor, key: Tensor, scale: float, bias: Tensor | None, call: Callable[..., Tensor] = call_directly
) -> Tensor:
    """Return softmax(scale · query · keyᵀ + bias)."""
    # Recorded step by step, the product must be one that has a rule.
    if call is call_directly and query.dim() == 4 and query.shape[:2] == key.shape[:2]:
        scores = _scaled_product(query, key, scale)
    else:
        scores = _call_scaled_product(query, key, scale, call)
    if bias is not None:
        scores = call(torch.add, scores, bias)
    return call(F.softmax, scores, -1)


def _call_scaled_product(query: Tensor, key: Tensor, scale: float, call: Callable[..., Tensor]) -> Tensor:
    transposed = call(torch.transpose, key, -2, -1)
    product = call(torch.matmul, query, transposed)
    return call(torch.mul, product, scale)


def _scaled_product(query_BHTD: Tensor, key_BHSD: Tensor, scale: float) -> Tensor:
    """Return scale · query · keyᵀ (B,H,T,S)."""
    query = query_BHTD.flatten(0, 1)
    transposed = key_BHSD.flatten(0, 1).transpose(1, 2)
    # baddbmm scales within the product, which saves a pass over the scores; beta=0 ignores the added tensor.
    unused = query.new_empty(1, 1, 1)
    scores = torch.baddbmm(unused, query, transposed, beta=0, alpha=scale)
    return scores.view(*query_BHTD.shape[:-1], key_BHSD.shape[-2])


class Masks:
    """The attention masks of one forward pass as additive biases; blocks share a mask, so each is converted once."""

    def __init__(self) -> None:
        # The mask itself is in the value, so that its id is not reused while the entry exists.
        self._biases: dict[tuple[int, int, torch.dtype], tuple[Tensor, Tensor, Tensor | None]] = {}
        self._triangles: dict[tuple[int, int, torch.device], Tensor] = {}

    def causal(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """Return the causal mask (T,S): True where a query may attend to a key."""
        sizes = (queries, keys, device)
        if sizes not in self._triangles:
            self._triangles[sizes] = _make_triangle(*sizes)
        return self._triangles[sizes]

    def can_fuse(
        self, dtype: torch.dtype, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *_: Any, **__: Any
    ) -> bool:
        """Return whether torch's fused kernel computes what `decompose_attention` does.

        `attn_mask` and what follows are the arguments of torch's function.
        """
        # A mask that depends on the input has a backward pass of its own, and fully masked rows may become NaN.
        if dropout_p or (attn_mask is not None and attn_mask.requires_grad):
            return False
        masked_rows = self.as_bias(attn_mask, dtype)[1]
        return masked_rows is None

    def as_bias(self, mask: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """Return a mask as numbers to add to the scores, and its fully masked query rows if it has any."""
        if mask is None:
            return None, None
        identity = (id(mask), mask._version, dtype)
        if identity not in self._biases:
            self._biases[identity] = (mask, *_convert_mask(mask, dtype))
        _, bias, masked_rows = self._biases[identity]
        return bias, masked_rows


def _make_triangle(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return True where a key does not come after the query (T,S)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def _convert_mask(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    bias = mask
    # torch's boolean masks are True where a query may attend.
    if mask.dtype == torch.bool:
        bias = _forbid(~mask, dtype)
    # The kernels of a replayed pass are recorded without waiting for numbers, and only for inputs without padding.
    if bias.is_cuda and torch.cuda.is_current_stream_capturing():
        return bias, None
    masked_rows = (bias == -torch.inf).all(-1, keepdim=True)
    if not masked_rows.any():
        return bias, None
    # The softmax of a row of -inf is NaN: such rows get a bias of 0 here, and zero attention afterwards.
    return bias.masked_fill(masked_rows, 0.0), masked_rows


def _forbid(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bias of -inf where a key is hidden from a query, else 0."""
    zeros = hidden.new_zeros(hidden.shape, dtype=dtype)
    return zeros.masked_fill_(hidden, -torch.inf)
