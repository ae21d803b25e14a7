"""Pictures as flat sequences of patches, as networks for pictures of any shape read them (SigLIP 2)."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

SPATIAL_SHAPES = "spatial_shapes"
"""The tensor of an image processor that tells rows and columns of patches (B,2)."""
CHANNELS = 3


def cut_patches(pixels_BCPQ: Tensor, size: int) -> Tensor:
    """Cut pictures into patches, row by row, with the channels of a pixel side by side (B,T,P·P·C)."""
    count, channels, height, width = pixels_BCPQ.shape
    cells = pixels_BCPQ.reshape(count, channels, height // size, size, width // size, size)
    return cells.permute(0, 2, 4, 3, 5, 1).reshape(count, -1, size * size * channels)


def join_patches(patches_TF: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the picture that was cut into rows × columns of patches, without their padding (C,P,Q)."""
    rows, columns = grid
    size = math.isqrt(patches_TF.shape[-1] // CHANNELS)
    cells = patches_TF[: rows * columns].reshape(rows, columns, size, size, CHANNELS)
    return cells.permute(4, 0, 2, 1, 3).reshape(CHANNELS, rows * size, columns * size)


def read_picture(processed: Mapping[str, Any]) -> Tensor:
    """Return the only picture that an image processor returned, put together if it is packed (C,P,Q)."""
    pixels: Tensor = processed["pixel_values"][0]
    if SPATIAL_SHAPES not in processed:
        return pixels
    rows, columns = processed[SPATIAL_SHAPES][0].tolist()
    return join_patches(pixels, (rows, columns))
