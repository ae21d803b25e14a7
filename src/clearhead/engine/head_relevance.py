"""Relevance of single attention heads."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.balanced import HALF_IN_ATTN_LRP
from clearhead.errors import UnsupportedModel


def head_relevances(
    attentions: Sequence[Tensor], coefficients: Sequence[Tensor], samples: int, backward: str
) -> Tensor:
    """Return Σ o ⊙ c_o over the output o = A · V of every head (B,L,H), computed from the attention map A.

    As o is linear in A, Σ o ⊙ c_o = Σ A ⊙ c_A, divided by the share of the coefficient that the map gets of the
    product. Blocks with fewer heads than others have NaN for the missing ones.
    """
    share = HALF_IN_ATTN_LRP.get(backward, 1.0)
    blocks = []
    for attention, coefficient in zip(attentions, coefficients, strict=True):
        blocks.append(_sum_maps(attention, coefficient, samples) / share)
    return torch.stack(_align_heads(blocks), 1)


def _sum_maps(attention: Tensor, coefficient: Tensor, samples: int) -> Tensor:
    """Return the sum of A ⊙ c over the map of each head (B,H)."""
    _require_heads(attention, samples)
    maps_BH = (attention * coefficient).sum((-2, -1))
    # Windowed attention has the windows of a sample next to each other on the first axis.
    return maps_BH.view(samples, -1, maps_BH.shape[1]).sum(1)


def _require_heads(attention: Tensor, samples: int) -> None:
    if not _has_heads(attention, samples):
        raise UnsupportedModel(
            f"Heads cannot be told apart in attention maps of shape {tuple(attention.shape)}: samples × heads × "
            "queries × keys are expected. Leave out heads=True."
        )


def _has_heads(attention: Tensor, samples: int) -> bool:
    """Return whether the axes of a map are samples, or windows of samples, × heads × queries × keys."""
    return attention.dim() == 4 and attention.shape[0] % samples == 0


def _align_heads(blocks: Sequence[Tensor]) -> list[Tensor]:
    """Give all blocks as many heads as the largest has."""
    heads = max(block_BH.shape[1] for block_BH in blocks)
    return [_pad_heads(block_BH, heads) for block_BH in blocks]


def _pad_heads(block_BH: Tensor, heads: int) -> Tensor:
    # NaN, not zero: a head that does not exist is not one without relevance.
    return F.pad(block_BH, (0, heads - block_BH.shape[1]), value=torch.nan)
