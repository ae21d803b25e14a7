"""Regions of pictures that seldom hold the subject: corners, edges, and what people did not mark."""

from collections.abc import Iterator

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Mask
from clearhead.drift.shortcuts import BACKGROUND, CORNER, EDGE
from clearhead.model.batches import Box

CORNER_DEPTH = 1 / 4
EDGE_DEPTH = 1 / 8
"""Which part of a side of the picture a corner or an edge takes."""
BORDER_NAME = "whole border"
BACKGROUND_NAME = "background"
SIDES = {"top": (0, False), "bottom": (0, True), "left": (1, False), "right": (1, True)}
"""The axis that is counted from each side, and whether it is counted from its end."""

Grid = tuple[int, int]


def name_region_kind(name: str) -> str:
    """Return whether a region is a corner, at the edge, or the background."""
    if name == BACKGROUND_NAME:
        return BACKGROUND
    if name.endswith(CORNER):
        return CORNER
    return EDGE


def list_region_names() -> list[str]:
    """Return the names of all regions; the background is there only where people marked the subject."""
    return [*mark_frame((1, 1)), BACKGROUND_NAME]


def mark_regions(grid: Grid, background_U: Array | None) -> dict[str, Array]:
    """Return by name which patches belong to each region (U), without those that people marked as the subject."""
    frame = mark_frame(grid)
    # Without marks nobody knows what the subject is, and so not what the background is.
    if background_U is None:
        return frame
    regions = {name: region_U & background_U for name, region_U in frame.items()}
    return {**regions, BACKGROUND_NAME: background_U}


def mark_frame(grid: Grid) -> dict[str, Array]:
    """Return by name which patches belong to each corner and edge, and to all edges together (U)."""
    # Edges and corners overlap: a marker in a corner is found by either.
    edges = {f"{side} edge": _mark_side(grid, side, EDGE_DEPTH) for side in SIDES}
    border_U: Array = np.any(list(edges.values()), axis=0)
    return {**dict(_mark_corners(grid)), **edges, BORDER_NAME: border_U}


def _mark_corners(grid: Grid) -> Iterator[tuple[str, Array]]:
    for row in ("top", "bottom"):
        for column in ("left", "right"):
            in_rows_U = _mark_side(grid, row, CORNER_DEPTH)
            yield f"{row} {column} {CORNER}", in_rows_U & _mark_side(grid, column, CORNER_DEPTH)


def _mark_side(grid: Grid, side: str, depth: float) -> Array:
    """Return the patches along a side (U), at least one deep."""
    axis, is_end = SIDES[side]
    # Patches are numbered row by row, as in explanations.
    distance_U = np.indices(grid)[axis].flatten()
    if is_end:
        distance_U = grid[axis] - 1 - distance_U
    is_near_U: Array = distance_U < max(1, round(depth * grid[axis]))
    return is_near_U


def find_background(subject: Mask, size: tuple[int, int], box: Box, grid: Grid) -> Array:
    """Return the patches without a pixel of the subject (U), in a picture of (width, height) that is seen in a box."""
    # Pixels that nobody could tell count as the subject: what is hidden as background must be none of it.
    marked_PQ = subject.array() != 0
    rows, columns = np.nonzero(marked_PQ)
    height, width = marked_PQ.shape
    left, top, right, bottom = box
    row_M = _find_cells(_scale(rows, height, size[1]), top, bottom, grid[0])
    column_M = _find_cells(_scale(columns, width, size[0]), left, right, grid[1])
    return _clear_cells(grid, row_M, column_M)


def _scale(pixel_M: Array, side: int, target: int) -> Array:
    """Return the centres of pixels on a side of another length: a mask may be smaller than its picture."""
    scaled_M: Array = (pixel_M + 0.5) * target / side
    return scaled_M


def _clear_cells(grid: Grid, row_M: Array, column_M: Array) -> Array:
    """Return all patches but some (U); numbers below zero lie outside of what the model sees."""
    background = np.ones(grid, dtype=bool)
    is_seen_M = (row_M >= 0) & (column_M >= 0)
    background[row_M[is_seen_M], column_M[is_seen_M]] = False
    return background.flatten()


def _find_cells(position_M: Array, start: float, end: float, cells: int) -> Array:
    """Return the number of the cell in which each position lies, −1 outside."""
    # A processor may cut off the margin of a picture, and what lies there is not seen.
    cell_M = np.floor((position_M - start) / (end - start) * cells).astype(int)
    return np.where(cell_M < cells, np.maximum(cell_M, -1), -1)
