"""Pictures as people see them: whole, upright, in three colours of eight bits."""

from typing import Any

import numpy as np
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from clearhead.arrays import Array
from clearhead.errors import BadInput

BRIGHTEST = 255
SIDEWAYS = (5, 6, 7, 8)
"""The EXIF notes by which width and height change places."""
Size = tuple[int, int]


def open_image_file(source: Any, name: str) -> Image.Image:
    """A picture from a file or its path, upright; `name` is what a message calls it."""
    try:
        with Image.open(source) as file:
            file.load()
            return rotate_upright(file).copy()
    except FileNotFoundError:
        raise BadInput(f"There is no image at {name}.") from None
    except Exception as error:  # Damaged files make Pillow raise nearly anything.
        raise BadInput(f"{name} cannot be read as an image: {error}") from error


def load_pixels(image: Image.Image) -> Image.Image:
    """The same picture, all of it read; refused where that cannot be."""
    try:
        image.load()
    except Exception as error:
        raise BadInput(f"The picture cannot be read ({error}): open it again, from a whole file.") from error
    return image


def rotate_upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF note says; the result has no such note any more."""
    return image if orientation(image) == 1 else ImageOps.exif_transpose(image)


def rotate(image: Image.Image, note: int) -> Image.Image:
    """Turned by the EXIF note of another picture, on whose stored pixels this one lies."""
    bare = image.copy()
    bare.getexif()[Base.Orientation] = note
    return rotate_upright(bare)


def orientation(image: Image.Image) -> int:
    """How a picture is to be turned, from the head of its file; 1 where it stands upright or does not say."""
    try:
        note = Image.Image.getexif(image).get(Base.Orientation, 1)
    except Exception:  # A note that cannot be read says nothing.
        return 1
    return note if note in range(2, 9) else 1


def image_header(source: Any, name: str) -> tuple[Size, int]:
    """The stored width and height of a picture, and its note, without its pixels."""
    try:
        with Image.open(source) as file:
            # Pillow itself turns a TIFF, and tells its size so.
            return file.size, 1 if file.format == "TIFF" else orientation(file)
    except Exception as error:
        raise BadInput(f"{name} cannot be read as an image") from error


def orientation_after(mask: Any, picture: Any, names: tuple[str, str]) -> int:
    """The note by which a mask has to be turned to lie on its upright picture; refused where it has another size.

    A mask of the stored size without a note of its own was drawn on the pixels as they are stored.
    """
    (mask_size, mask_note), (size, note) = (image_header(*one) for one in zip((mask, picture), names, strict=True))
    if size == mask_size and mask_note == 1:
        return note
    seen, marked = _upright_size(size, note), _upright_size(mask_size, mask_note)
    if seen != marked:
        raise BadInput(f"{names[1]} is {seen[0]}×{seen[1]}, its mask {marked[0]}×{marked[1]}")
    return 1


def _upright_size(size: Size, note: int) -> Size:
    return size[::-1] if note in SIDEWAYS else size


def to_rgb(image: Image.Image) -> Image.Image:
    """In red, green and blue of 0 … 255: sixteen bits are scaled, numbers that do not tell what white is refused."""
    if 0 in image.size:
        raise BadInput(f"The picture has no pixels: it is {image.width} × {image.height}.")
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        _check_range(np.asarray(image), image.mode)
    return image.convert("RGB")


def _check_range(values: Any, mode: str) -> None:
    low, high = values.min(), values.max()
    if not 0 <= low <= high <= BRIGHTEST or 0 < high <= 1:
        raise BadInput(
            f"The picture has mode {mode} and values {low:g} … {high:g}, which do not tell what white is: "
            "scale them to 0 … 255 and convert it to mode L."
        )


def resize_map(source: Array, height: int, width: int) -> Array:
    """A map stretched bilinearly to another size."""
    return place_map(source, (0, 0, width, height), width, height)


def place_map(source: Array, box: tuple[float, float, float, float], width: int, height: int) -> Array:
    """The source map stretched bilinearly over the box, on a canvas of the original size."""
    left, top, right, bottom = box
    columns = (np.arange(width) + 0.5 - left) / (right - left)
    rows = (np.arange(height) + 0.5 - top) / (bottom - top)
    inside = ((rows >= 0) & (rows <= 1))[:, None] & ((columns >= 0) & (columns <= 1))[None, :]
    across = _interpolation_weights(columns, source.shape[1])
    down = _interpolation_weights(rows, source.shape[0])
    return np.where(inside, down @ source.astype(np.float64) @ across.T, np.nan)


def _interpolation_weights(places: Array, cells: int) -> Array:
    """Weights (places × cells) of linear interpolation between cell centres, flat beyond the outermost."""
    centre = np.clip(places * cells - 0.5, 0, cells - 1)
    lower = np.minimum(centre.astype(int), max(cells - 2, 0))
    weights = np.zeros((len(places), cells))
    rows = np.arange(len(places))
    weights[rows, lower] = 1 - (centre - lower)
    weights[rows, np.minimum(lower + 1, cells - 1)] += centre - lower
    return weights
