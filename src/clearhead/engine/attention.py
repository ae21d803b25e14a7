"""Scaled dot-product attention written out, for a recording that must see the map."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def plainly(function: Callable[..., Tensor], *args: Any) -> Tensor:
    return function(*args)


def decompose_attention(
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
    call: Callable[..., Tensor] = plainly,
    copied: Callable[[Tensor], Tensor] = Tensor.contiguous,
) -> Tensor:
    """Scaled dot-product attention in the steps that relevance takes, each made by `call`."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (call(torch.repeat_interleave, one, groups, -3) for one in (key, value))
    # Matrix products would copy them so every time: on the way there, and twice on the way back.
    query, key, value = copied(query), copied(key), copied(value)
    masks = masks or Masks()
    if is_causal:
        attn_mask = masks.causal(query.shape[-2], key.shape[-2], query.device)
    added, blind = (None, None) if attn_mask is None else masks.of(attn_mask, query.dtype)
    given = (query, key, query.shape[-1] ** -0.5 if scale is None else scale, added)
    # A mask that depends on the input has its own share of the relevance.
    attention = weigh(*given, call) if added is not None and added.requires_grad else call(weigh, *given)
    if blind is not None:
        attention = call(torch.masked_fill, attention, blind, 0.0)
    return call(torch.matmul, attention, value)


def weigh(
    query: Tensor, key: Tensor, scale: float, added: Tensor | None, call: Callable[..., Tensor] = plainly
) -> Tensor:
    """The attention map: how much each query heeds each key."""
    if call is plainly and query.dim() == 4 and query.shape[:2] == key.shape[:2]:
        scores = _scaled_product(query, key, scale)
    else:
        scores = call(torch.mul, call(torch.matmul, query, call(torch.transpose, key, -2, -1)), scale)
    return call(F.softmax, scores if added is None else call(torch.add, scores, added), -1)


def _scaled_product(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """scale · query · keyᵀ, scaled within the product: there are many more scores than queries."""
    pair = query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)
    scores = torch.baddbmm(query.new_empty(1, 1, 1), *pair, beta=0, alpha=scale)
    return scores.view(*query.shape[:-1], key.shape[-2])


class Masks:
    """What the masks of one forward pass come to: worked out once, although every block asks."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, torch.dtype], tuple[Tensor, Tensor, Tensor | None]] = {}
        self.triangles: dict[tuple[int, int, torch.device], Tensor] = {}

    def causal(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """True where a key is not behind its query."""
        key = (queries, keys, device)
        if key not in self.triangles:
            self.triangles[key] = torch.ones(queries, keys, dtype=torch.bool, device=device).tril()
        return self.triangles[key]

    def of(self, mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The mask as numbers to add, and the queries that may see no key, if there are any."""
        key = (id(mask), mask._version, dtype)
        if key not in self.known:
            added = mask
            if mask.dtype == torch.bool:
                added = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
            blind = (added == -torch.inf).all(-1, keepdim=True)
            seen = not blind.any()
            # Not even a blind row may become NaN: it is evened out here, and its attention set to nothing later.
            self.known[key] = (mask, added if seen else added.masked_fill(blind, 0.0), None if seen else blind)
        return self.known[key][1:]
