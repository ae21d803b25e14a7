"""Patch-grid geometry of image tokens."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CELLS = (8, 8)
"""Rows and columns that an image is divided into if its network has no patches, or they are not known."""


def choose_cells(pixels: Tensor) -> tuple[int, int]:
    """Return rows and columns of cells for images without patches."""
    height, width = pixels.shape[-2:]
    return min(CELLS[0], height), min(CELLS[1], width)


def number_cells(pixels: int, cells: int) -> Tensor:
    """Return the cell of each pixel of a side."""
    # In integers: cells of a side that they do not divide differ by one pixel at most.
    return torch.arange(pixels) * cells // pixels


def _select_cells(pixels: int, cells: int, like: Tensor) -> Tensor:
    """Return a matrix with ones where a pixel of a side lies in a cell (cells × pixels)."""
    return F.one_hot(number_cells(pixels, cells), cells).T.to(like)


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
        return F.pad(self._sum_cells(pixels_BPQ).flatten(1), (self.leading, self.trailing))

    def _sum_cells(self, pixels_BPQ: Tensor) -> Tensor:
        height, width = pixels_BPQ.shape[-2:]
        # Pooled cells would overlap.
        if height % self.rows or width % self.columns:
            rows_RP = _select_cells(height, self.rows, pixels_BPQ)
            return rows_RP @ pixels_BPQ @ _select_cells(width, self.columns, pixels_BPQ).T
        # Pooling averages, so the sum over a patch is its mean times its area.
        means = F.adaptive_avg_pool2d(pixels_BPQ, (self.rows, self.columns))
        return means * (height * width / (self.rows * self.columns))

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
