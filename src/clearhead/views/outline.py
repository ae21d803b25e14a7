"""Outlines around masks: a white line in a black one, so that it shows on any image."""

import numpy as np
from PIL import Image

from clearhead.arrays import Array

BLACK = (0, 0, 0, 255)
WHITE = (255, 255, 255, 255)


def draw_border(inside: Array) -> Image.Image:
    """Draw a white line in a black one along the border of a region, transparent elsewhere."""
    thickness = _line_thickness(*inside.shape)
    canvas = np.zeros((*inside.shape, 4), dtype=np.uint8)
    # The white line is drawn over the middle of the wider black one.
    canvas[_border_mask(inside, 2 * thickness)] = BLACK
    canvas[_border_mask(inside, thickness)] = WHITE
    return Image.fromarray(canvas, "RGBA")


def _line_thickness(height: int, width: int) -> int:
    # About a quarter of a per cent of the image, so that the line shows in large photos too.
    return max(1, round(max(height, width) / 400))


def _border_mask(inside: Array, distance: int) -> Array:
    """Return the pixels within `distance` of the border of a region, on either side."""
    grown = _dilate(inside, distance)
    shrunk = ~_dilate(~inside, distance)
    return grown & ~shrunk


def _dilate(inside: Array, distance: int) -> Array:
    """Grow a region by `distance` pixels in rows, then in columns."""
    return _dilate_rows(_dilate_rows(inside, distance).T, distance).T


def _dilate_rows(inside: Array, distance: int) -> Array:
    rows = len(inside)
    padded = np.pad(inside, [(distance, distance), (0, 0)])
    shifted = [padded[shift : shift + rows] for shift in range(2 * distance + 1)]
    grown: Array = np.logical_or.reduce(shifted)
    return grown
