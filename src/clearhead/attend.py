"""Scaled dot-product attention written out, for a recording that must see the map."""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    masks: "Masks | None" = None,
) -> Tensor:
    """Scaled dot-product attention in its elementary steps, so that the map itself can be seen."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    # Matrix products would copy them so every time: on the way there, and twice on the way back.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is None:
        return torch.matmul(F.softmax(scores, -1), value)
    added, blind = (masks or Masks()).of(attn_mask, scores.dtype)
    attention = F.softmax(scores + added, -1)
    if blind is not None:
        attention = attention.masked_fill(blind, 0.0)
    return torch.matmul(attention, value)


class Masks:
    """What the masks of one forward pass come to: worked out once, although every block asks."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, torch.dtype], tuple[Tensor, Tensor, Tensor | None]] = {}

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
