"""Where the image tokens of a prompt lie on its pictures, family by family."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import isqrt
from typing import Any

from torch import Tensor

from clearhead.errors import UnsupportedModel
from clearhead.model.picture_span import Area

WHOLE: Area = (0.0, 0.0, 1.0, 1.0)
TILE_NAME = re.compile(r"<row_(\d+)_col_(\d+)>")
# Families whose pictures reach the words in ways that image tokens cannot show.
REASONS = {
    "blip-2": "its Q-Former condenses a picture into query tokens, which stand for no part of it",
    "instructblip": "its Q-Former condenses a picture into query tokens, which stand for no part of it",
    "idefics2": "its resampler condenses a picture into latent tokens, which stand for no part of it",
    "kosmos-2": "its resampler condenses a picture into latent tokens, which stand for no part of it",
    "mllama": "its words read the picture by cross-attention, not from image tokens",
    "qwen3_vl": "its picture enters several blocks, not only the first",
}


@dataclass(frozen=True)
class PromptTokens:
    """What tells where image tokens lie: the network's config, its tensors for one prompt, and the tokens' names."""

    config: Any
    tensors: Mapping[str, Tensor]
    names: Sequence[str]
    is_image: Sequence[bool]

    @property
    def count(self) -> int:
        return sum(self.is_image)


Layout = list[list[Area | None]]
"""For each picture the parts that its image tokens stand for, in order; None for a token without a part."""


def find_layout(tokens: PromptTokens) -> Layout:
    """Return the parts of each picture; raise UnsupportedModel if their number is not that of the image tokens."""
    layout = LAYOUTS[tokens.config.model_type](tokens)
    count = sum(map(len, layout))
    _require_count(tokens, count)
    return layout


def _require_count(tokens: PromptTokens, count: int) -> None:
    if count != tokens.count:
        raise UnsupportedModel(
            f"The prompt has {tokens.count} image tokens, but pictures of these sizes have {count}: give the tensors "
            "as the model's own processor returns them."
        )


def _lay_out_squares(tokens: PromptTokens) -> Layout:
    """Return the parts of pictures that are squares of as many rows as columns (LLaVA, PaliGemma)."""
    pictures = len(tokens.tensors["pixel_values"])
    side = isqrt(tokens.count // pictures)
    return [_make_grid(side, side)] * pictures


def _make_grid(rows: int, columns: int, area: Area = WHOLE) -> list[Area | None]:
    """Return the cells of a grid over a part of a picture, row by row."""
    return [_make_cell(number, rows, columns, area) for number in range(rows * columns)]


def _make_cell(number: int, rows: int, columns: int, area: Area) -> Area:
    top, left, bottom, right = area
    row, column = divmod(number, columns)
    height = (bottom - top) / rows
    width = (right - left) / columns
    return (top + row * height, left + column * width, top + (row + 1) * height, left + (column + 1) * width)


def _lay_out_merged(tokens: PromptTokens) -> Layout:
    """Return the parts of pictures of any aspect ratio, whose patches are merged by squares (Qwen2-VL)."""
    factor = tokens.config.vision_config.spatial_merge_size
    grids = tokens.tensors["image_grid_thw"].tolist()
    return [_make_grid(rows // factor, columns // factor) for _, rows, columns in grids]


def _lay_out_tiles(tokens: PromptTokens) -> Layout:
    """Return the parts of pictures that are cut into tiles, which tokens between them name (Idefics3, SmolVLM)."""
    pictures: Layout = []
    tiles: list[Tile] = []
    for tile in _list_tiles(tokens):
        tiles.append(tile)
        if tile.is_whole:
            pictures.append(_join_tiles(tiles))
            tiles = []
    return pictures


def _list_tiles(tokens: PromptTokens) -> Iterator["Tile"]:
    """Yield the tiles of all pictures: each is a run of image tokens after a token with its name."""
    position = 0
    for is_image, run in groupby(tokens.is_image):
        length = len(list(run))
        if is_image:
            yield _read_tile(tokens.names[position - 1], length)
        position += length


@dataclass(frozen=True)
class Tile:
    """A tile of so many image tokens; row and column count from 1, and are 0 for the picture as a whole."""

    row: int
    column: int
    length: int

    @property
    def is_whole(self) -> bool:
        # It comes last, so that it ends a picture.
        return self.row == 0

    def lay_out(self, rows: int, columns: int) -> list[Area | None]:
        """Return the parts of its tokens in a picture of so many tiles."""
        side = isqrt(self.length)
        if self.is_whole:
            return _make_grid(side, side)
        number = (self.row - 1) * columns + self.column - 1
        return _make_grid(side, side, _make_cell(number, rows, columns, WHOLE))


def _join_tiles(tiles: Sequence[Tile]) -> list[Area | None]:
    """Return the parts of all tokens of a picture's tiles."""
    rows = max(tile.row for tile in tiles)
    columns = max(tile.column for tile in tiles)
    areas: list[Area | None] = []
    for tile in tiles:
        areas += tile.lay_out(rows, columns)
    return areas


def _read_tile(name: str, length: int) -> Tile:
    match = TILE_NAME.fullmatch(name)
    if match is None:
        return Tile(0, 0, length)
    return Tile(int(match[1]), int(match[2]), length)


def _lay_out_any_resolution(tokens: PromptTokens) -> Layout:
    """Return the parts of pictures given small as a whole, then large without borders, line by line (LLaVA-NeXT)."""
    return [_lay_out_lines(tokens.config, size) for size in tokens.tensors["image_sizes"].tolist()]


def _lay_out_lines(config: Any, size: Sequence[int]) -> list[Area | None]:
    side = config.vision_config.image_size // config.vision_config.patch_size
    height, width = _count_any_resolution_tiles(config, size)
    rows, columns = _list_lines(size, (side * height, side * width))
    areas = _make_grid(side, side)
    for top, bottom in rows:
        areas += [(top, left, bottom, right) for left, right in columns]
        # A token that ends the line.
        areas.append(None)
    return areas


def _count_any_resolution_tiles(config: Any, size: Sequence[int]) -> tuple[int, int]:
    """Return in how many rows and columns of tiles a picture of a size is cut."""
    from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape

    pinpoints = list(map(list, config.image_grid_pinpoints))
    rows, columns = get_anyres_image_grid_shape(list(size), pinpoints, config.vision_config.image_size)
    return rows, columns


Interval = tuple[float, float]


def _list_lines(size: Sequence[int], cells: Sequence[int]) -> tuple[list[Interval], list[Interval]]:
    """Return which part of a picture's height each row of cells shows, and of its width each column.

    A picture of another aspect ratio has borders, whose cells are left out.
    """
    scale = min(cells[0] / size[0], cells[1] / size[1])
    rows, columns = (_cut_border(cells[axis], size[axis] * scale) for axis in (0, 1))
    return rows, columns


def _cut_border(cells: int, covered: float) -> list[Interval]:
    """Return the shares of a side that its cells show, of which the picture covers some in the middle."""
    # As Transformers does: whole cells are left out, as many on both sides.
    border = (cells - int(round(covered, 7))) // 2
    start = (cells - covered) / 2
    # The outer cells may show some of the border, so that their parts reach beyond the picture.
    edges = [(edge - start) / covered for edge in range(border, cells - border + 1)]
    return list(pairwise(edges))


LAYOUTS: dict[str, Callable[[PromptTokens], Layout]] = {
    "llava": _lay_out_squares,
    "vipllava": _lay_out_squares,
    "paligemma": _lay_out_squares,
    "gemma3": _lay_out_squares,
    "llava_next": _lay_out_any_resolution,
    "qwen2_vl": _lay_out_merged,
    "qwen2_5_vl": _lay_out_merged,
    "idefics3": _lay_out_tiles,
    "smolvlm": _lay_out_tiles,
}
"""What finds the parts, by the model type of the config."""
