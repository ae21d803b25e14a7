"""Pictures of a prompt as plain data, for explanations that are read without torch."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from clearhead.arrays import Array

ROUNDING = 1e-9
Area = tuple[float, float, float, float]
"""Top, left, bottom and right of a part of a picture, as shares of what the model saw of it."""


@dataclass(frozen=True, eq=False)
class PictureSpan:
    """A picture among the words of a prompt: its tokens, and the part of the picture that each of them stands for.

    `box` is where what the model saw lies on the `image`, in its pixels; None without an image.
    """

    tokens: tuple[int, ...]
    areas: tuple[Area, ...]
    image: Image.Image | None = None
    box: tuple[float, float, float, float] | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the smallest parts, which tile the picture."""
        height, width = self._sizes.min(0)
        return round(1 / height), round(1 / width)

    @property
    def _sizes(self) -> Array:
        """Height and width of the part of every token (tokens × 2)."""
        areas = np.asarray(self.areas)
        sizes: Array = areas[:, 2:] - areas[:, :2]
        return sizes

    def place(self, relevance: Array) -> Array:
        """Return the relevance of the cells of the grid, row by row, from that of all tokens of a prompt.

        A token whose part covers several cells divides its relevance among them, so that the sum stays.
        """
        shares_KR, shares_KC = map(self._share_axis, (0, 1))
        relevance_K = np.asarray(relevance)[list(self.tokens)]
        placed: Array = np.einsum("k,kr,kc->rc", relevance_K, shares_KR, shares_KC)
        return placed.ravel()

    def _share_axis(self, axis: int) -> Array:
        """Return which share of each token's part lies in each row (axis 0) or column (axis 1) of the grid."""
        areas = np.asarray(self.areas)
        return _share_cells(areas[:, axis], areas[:, axis + 2], self.grid[axis])


def _share_cells(start_K: Array, end_K: Array, count: int) -> Array:
    """Return which share of each interval lies in each of `count` equal cells of the unit interval (K × cells)."""
    edges = np.arange(count + 1) / count
    overlap = np.minimum(end_K[:, None], edges[1:]) - np.maximum(start_K[:, None], edges[:-1])
    return _normalise(overlap)


def _normalise(overlap: Array) -> Array:
    # Rounding leaves a trace of overlap with the neighbours of a cell.
    overlap = np.where(overlap > ROUNDING, overlap, 0)
    shares: Array = overlap / overlap.sum(1, keepdims=True)
    return shares
