"""Prepare images with the model's image processor."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from clearhead.errors import BadInput
from clearhead.model import images
from clearhead.model.batches import Box, Encoded, Item
from clearhead.model.model import Model
from clearhead.model.packed_patches import read_picture

# The longer edge of a picture by its shorter one, at most, where both are made multiples of a number.
LONGEST_EDGE = 1333 / 800


def encode_image(model: Model, source: Any) -> Encoded:
    """Prepare an image, or the file at a path, as pixel values."""
    image = open_image(source)
    pixels = _process(model.processor, image)
    return Encoded(_make_item(model.processor, image, pixels), {"pixel_values": pixels})


def _process(processor: Any, image: Image.Image) -> Tensor:
    # Processors return a batch, here of one image.
    return read_picture(processor(images=image, return_tensors="pt"))


def _make_item(processor: Any, image: Image.Image, pixels: Tensor) -> Item:
    height, width = pixels.shape[-2:]
    return Item(image=image, box=input_box(processor, image.size, (width, height)))


def open_image(source: Any) -> Image.Image:
    """Return an image, or the file at a path, upright and in RGB."""
    return images.to_rgb(_open_upright(source))


def _open_upright(source: Any) -> Image.Image:
    if isinstance(source, Image.Image):
        return images.rotate_upright(images.load_pixels(source))
    if isinstance(source, np.ndarray):
        return images.from_array(source)
    _require_path(source)
    return images.open_image_file(source, f"'{source}'")


def _require_path(source: Any) -> None:
    if not isinstance(source, str | Path):
        raise BadInput(f"An image model was given a {type(source).__name__}: give an image or the path to one.")


def input_box(processor: Any, original: tuple[int, int], final: tuple[int, int]) -> Box:
    """Return where the network's input lies on the original: (left, top, right, bottom) in original pixels.

    `original` and `final` are (width, height) before and after the processor.
    """
    width, height = original
    # Resizing alone, whatever the aspect ratio, maps the whole image.
    if not getattr(processor, "do_center_crop", False):
        return (0, 0, width, height)
    resized_width, resized_height = _resized_size(processor, width, height)
    left, right = _crop_interval(width, resized_width, final[0])
    top, bottom = _crop_interval(height, resized_height, final[1])
    return (left, top, right, bottom)


def _crop_interval(original: int, resized: int, final: int) -> tuple[float, float]:
    """Return where a centre crop from `resized` to `final` pixels starts and ends, in original pixels."""
    # Floor division, as the image processors do: the crop of an odd margin lies half a pixel to the left.
    start = (resized - final) // 2
    scale = original / resized
    return start * scale, (start + final) * scale


def _resized_size(processor: Any, width: int, height: int) -> tuple[int, int]:
    """Return (width, height) after the processor has resized and before it crops."""
    if not getattr(processor, "do_resize", True):
        return width, height
    # A dict, or the SizeDict of newer versions of Transformers.
    size = dict(getattr(processor, "size", None) or {})
    divisor = getattr(processor, "size_divisor", None)
    if size.get("shortest_edge") and divisor:
        return _scale_to_divisor(width, height, size["shortest_edge"], divisor)
    if size.get("shortest_edge"):
        return _scale_to_shortest_edge(width, height, size["shortest_edge"])
    return size.get("width") or width, size.get("height") or height


def _scale_to_shortest_edge(width: int, height: int, edge: int) -> tuple[int, int]:
    scale = edge / min(width, height)
    return _scale_edge(width, scale), _scale_edge(height, scale)


def _scale_to_divisor(width: int, height: int, edge: int, divisor: int) -> tuple[int, int]:
    """Return width and height as BridgeTower's processor makes them: multiples, of which the longer is limited."""
    scale = min(edge / min(width, height), int(LONGEST_EDGE * edge) / max(width, height))
    return _round_down(width * scale, divisor), _round_down(height * scale, divisor)


def _round_down(pixels: float, divisor: int) -> int:
    return int(pixels + 0.5) // divisor * divisor


def _scale_edge(pixels: int, scale: float) -> int:
    # Truncated, not rounded, as the image processors of Transformers do.
    return max(1, int(pixels * scale))
