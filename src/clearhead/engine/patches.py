"""Patch-grid geometry of image tokens."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PatchGrid:
    """The grid of patches of an image; `tokens` counts them and the tokens before them and, `trailing`, behind them."""

    rows: int
    columns: int
    tokens: int
    trailing: int = 0

    @property
    def leading(self) -> int:
        """How many class, distillation and register tokens come before the patches."""
        return self.tokens - self.trailing - self.rows * self.columns

    def sum_pixels(self, pixels_BPQ: Tensor) -> Tensor:
        """Return the sum of a pixel map over each patch, zero for all other tokens (B,T)."""
        # Pooling averages, so the sum over a patch is its mean times its area.
        means = F.adaptive_avg_pool2d(pixels_BPQ, (self.rows, self.columns))
        area = pixels_BPQ.shape[-2] * pixels_BPQ.shape[-1] / (self.rows * self.columns)
        return F.pad(means.flatten(1) * area, (self.leading, self.trailing))

    def merge_factor(self, count: int) -> int | None:
        """Return how many patches per side were merged into each of `count` tokens; None if they form no grid."""
        # Merging joins squares of patches, so the number of tokens shrinks by the square of the factor.
        factor = (self.tokens / count) ** 0.5
        if self.leading or self.trailing or factor != int(factor):
            return None
        return int(factor)

    def spread_merged(self, scores_BT: Tensor, factor: int) -> Tensor:
        """Divide the scores of merged patches equally among the patches (B,T)."""
        # Divided by their number, so that the sum of the scores stays the same.
        merged = scores_BT.reshape(-1, self.rows // factor, self.columns // factor) / factor**2
        return merged.repeat_interleave(factor, 1).repeat_interleave(factor, 2).flatten(1)
