"""Read images as people see them: EXIF orientation applied, three channels, eight bits per channel."""

from typing import Any

import numpy as np
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from clearhead.arrays import Array
from clearhead.errors import BadInput

MAX_PIXEL_VALUE = 255
ARRAY_CHANNELS = (1, 3, 4)
# EXIF orientations that swap width and height.
TRANSPOSING_ORIENTATIONS = (5, 6, 7, 8)
Size = tuple[int, int]


def open_image_file(source: Any, name: str) -> Image.Image:
    """Open an image file or path and rotate it upright; `name` is used in error messages."""
    try:
        return _read_upright(source)
    except FileNotFoundError:
        raise BadInput(f"There is no image at {name}.") from None
    except Exception as error:  # Pillow raises nearly any exception on damaged files.
        raise BadInput(f"{name} cannot be read as an image: {error}") from error


def _read_upright(source: Any) -> Image.Image:
    with Image.open(source) as file:
        file.load()
        # Copied, because the file is closed on return.
        return rotate_upright(file).copy()


def from_array(pixels: Array) -> Image.Image:
    """Return an image from height × width × 3 (or 1, or 4) numbers, 0 … 255, or 0 … 1 if they are not whole."""
    values = _require_channels_last(pixels)
    if not np.issubdtype(values.dtype, np.number) and values.dtype != bool:
        raise BadInput(f"An array of {values.dtype} is no image: give numbers from 0 to 255, or from 0 to 1.")
    if values.dtype == bool:
        values = values * 255
    if values.dtype != np.uint8:
        values = _scale_array(values)
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)


def _require_channels_last(pixels: Array) -> Array:
    values = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if values.ndim == 3 and values.shape[2] in ARRAY_CHANNELS and 0 not in values.shape:
        return values
    advice = "give height × width × 3"
    if _has_channels_first(values):
        advice = "put the channels last, with transpose(1, 2, 0)"
    raise BadInput(f"An array of shape {' × '.join(map(str, pixels.shape))} is no image: {advice}.")


def _has_channels_first(values: Any) -> bool:
    return values.ndim == 3 and values.shape[0] in ARRAY_CHANNELS


def _scale_array(values: Array) -> Array:
    """Return numbers from 0 to 255, or from 0 to 1 if they are fractions, as bytes."""
    lowest, highest = float(values.min()), float(values.max())
    # Written this way round to catch NaN too.
    if not 0 <= lowest <= highest <= 255:
        raise BadInput(
            f"The array has values from {lowest:.4g} to {highest:.4g}: give colours from 0 to 255, or from 0 to 1 "
            "(undo the normalisation of a processor)."
        )
    if np.issubdtype(values.dtype, np.floating) and highest <= 1:
        values = values * 255
    scaled: Array = np.rint(values).astype(np.uint8)
    return scaled


def load_pixels(image: Image.Image) -> Image.Image:
    """Load all pixels of an image; raise BadInput if its file is damaged."""
    try:
        image.load()
    except Exception as error:  # Pillow raises nearly any exception on damaged files.
        raise BadInput(f"The image cannot be read ({error}): open it again from a complete file.") from error
    return image


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB with values 0 … 255; raise BadInput if the range of values is ambiguous."""
    _require_pixels(image)
    if image.mode.startswith("I;16"):
        image = _scale_16_bits(image)
    # Modes of 32 bits per pixel, in which white may be any value.
    if image.mode in ("I", "F"):
        _validate_value_range(np.asarray(image), image.mode)
    return _drop_alpha(image).convert("RGB")


def _drop_alpha(image: Image.Image) -> Image.Image:
    """Put a transparent image on white, as it is seen; the colours stored beneath its pixels are arbitrary."""
    if not image.has_transparency_data:
        return image
    opaque = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(opaque, image.convert("RGBA"))


def _require_pixels(image: Image.Image) -> None:
    if 0 in image.size:
        raise BadInput(f"The image has no pixels: its size is {image.width} × {image.height}.")


def _scale_16_bits(image: Image.Image) -> Image.Image:
    # Pillow would clip 16-bit values at 255. 65535 / 257 = 255.
    return Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))


def rotate_upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation; the result has none any more."""
    if read_orientation(image) == 1:
        return image
    return ImageOps.exif_transpose(image)


def rotate(image: Image.Image, orientation: int) -> Image.Image:
    """Apply the EXIF orientation of another image, for example to a mask drawn on its stored pixels."""
    # The copy belongs to no file, so setting its EXIF data changes nothing else.
    rotated = image.copy()
    rotated.getexif()[Base.Orientation] = orientation
    return rotate_upright(rotated)


def read_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 (upright) if absent or invalid."""
    orientation = _stored_orientation(image)
    if orientation not in range(2, 9):
        return 1
    return int(orientation)


def _stored_orientation(image: Image.Image) -> Any:
    try:
        # The method of the base class reads the header only: some plugins override it and load the pixels.
        return Image.Image.getexif(image).get(Base.Orientation)
    except Exception:  # Damaged EXIF data raises nearly any exception.
        return None


def read_image_header(source: Any, name: str) -> tuple[Size, int]:
    """Return the stored (width, height) and EXIF orientation without reading the pixels."""
    try:
        with Image.open(source) as file:
            return file.size, _header_orientation(file)
    except FileNotFoundError:
        raise BadInput(f"There is no image at {name}.") from None
    except Exception as error:  # Pillow raises nearly any exception on damaged files.
        raise BadInput(f"{name} cannot be read as an image") from error


def _header_orientation(file: Image.Image) -> int:
    # Pillow applies the orientation of TIFF files itself and reports the rotated size.
    if file.format == "TIFF":
        return 1
    return read_orientation(file)


def orientation_after(mask: Any, image: Any, names: tuple[str, str]) -> int:
    """Return the EXIF orientation to apply to a mask so that it fits its upright image.

    A mask of the stored size without an orientation of its own was drawn on the stored pixels. Raise BadInput if the
    sizes do not match. `names` are those of mask and image in messages.
    """
    mask_name, image_name = names
    mask_size, mask_orientation = read_image_header(mask, mask_name)
    image_size, image_orientation = read_image_header(image, image_name)
    if mask_size == image_size and mask_orientation == 1:
        return image_orientation
    upright_mask = _upright_size(mask_size, mask_orientation)
    _require_same_size(_upright_size(image_size, image_orientation), upright_mask, image_name)
    return 1


def _require_same_size(image: Size, mask: Size, name: str) -> None:
    if image != mask:
        raise BadInput(f"{name} is {_format_size(image)}, its mask {_format_size(mask)}")


def resize_map(source: Array, height: int, width: int) -> Array:
    """Resize a map bilinearly."""
    return place_map(source, (0, 0, width, height), width, height)


def place_map(source: Array, box: tuple[float, float, float, float], width: int, height: int) -> Array:
    """Resize a map bilinearly to `box` (left, top, right, bottom) on a width × height canvas; NaN outside the box."""
    left, top, right, bottom = box
    columns = _relative_centres(width, left, right)
    rows = _relative_centres(height, top, bottom)
    column_weights = _interpolation_weights(columns, source.shape[1])
    row_weights = _interpolation_weights(rows, source.shape[0])
    # Bilinear weights are a product, so two small matrices replace four lookups per pixel.
    resized = row_weights @ source.astype(np.float64) @ column_weights.T
    inside = _is_inside(rows)[:, None] & _is_inside(columns)[None, :]
    return np.where(inside, resized, np.nan)


def _relative_centres(pixels: int, start: float, end: float) -> Array:
    """Return the centres of canvas pixels relative to an interval: 0 at its start, 1 at its end."""
    centres: Array = np.arange(pixels) + 0.5
    return (centres - start) / (end - start)


def _is_inside(positions: Array) -> Array:
    return (positions >= 0) & (positions <= 1)


def _upright_size(size: Size, orientation: int) -> Size:
    width, height = size
    if orientation in TRANSPOSING_ORIENTATIONS:
        return height, width
    return width, height


def _format_size(size: Size) -> str:
    width, height = size
    return f"{width}×{height}"


def _validate_value_range(values: Any, mode: str) -> None:
    """Raise BadInput if it is unclear which value is white: outside 0 … 255, or a float image in 0 … 1."""
    low = values.min()
    high = values.max()
    if not _is_byte_range(low, high):
        raise _unknown_white(mode, low, high)


def _unknown_white(mode: str, low: float, high: float) -> BadInput:
    return BadInput(
        f"The image has mode {mode} and values {low:g} … {high:g}, from which white cannot be determined: "
        "scale them to 0 … 255 and convert it to mode L."
    )


def _is_byte_range(low: float, high: float) -> bool:
    # False for NaN too, for which no comparison holds. With 1 as the maximum, white may be 1 or 255.
    return 0 <= low <= high <= MAX_PIXEL_VALUE and not 0 < high <= 1


def _interpolation_weights(positions: Array, cells: int) -> Array:
    """Return weights (positions × cells) of linear interpolation between cell centres, constant beyond the outermost.

    `positions` are relative: 0 is the left edge of the first cell, 1 the right edge of the last.
    """
    last = cells - 1
    centre = np.clip(positions * cells - 0.5, 0, last)
    # The lower neighbour is never the last cell, unless there is only one.
    lower = np.minimum(centre.astype(int), max(last - 1, 0))
    upper = np.minimum(lower + 1, last)
    fraction = centre - lower
    weights = np.zeros((len(positions), cells))
    rows = np.arange(len(positions))
    weights[rows, lower] = 1 - fraction
    # Added, not assigned: with one cell, lower and upper are the same.
    weights[rows, upper] += fraction
    return weights
