"""Decode uploaded images: the format is read from the content, the size is checked before decoding."""

import base64
import io

from PIL import Image

from clearhead.errors import BadInput
from clearhead.model import images
from clearhead.web.limits import Limits

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


def decode_image(encoded: str, limits: Limits) -> Image.Image:
    """Decode a base64 image; return it upright, as browsers show it, and no larger than the page needs."""
    content = _decode_base64(encoded)
    try:
        return _open_image(content, limits)
    except BadInput:
        raise
    except Image.DecompressionBombError as error:
        raise BadInput(f"The image has too many pixels: at most {_format_millions(limits)} are accepted.") from error
    except Exception as error:
        # Pillow raises many kinds of errors for damaged files, of which not all are documented.
        raise BadInput(f"The image cannot be decoded: it is not a complete {', '.join(FORMATS)} file.") from error


def _open_image(content: bytes, limits: Limits) -> Image.Image:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        _check_size(image.size, limits)
        # Lets the JPEG decoder skip detail that would be scaled away; other formats ignore it.
        image.draft("RGB", _max_size(limits))
        return normalize_image(image, limits)


def normalize_image(image: Image.Image, limits: Limits) -> Image.Image:
    """Return the image upright, in RGB, and no larger than the page needs."""
    # Rotated first: the conversion to RGB may drop the EXIF orientation.
    upright = images.to_rgb(images.rotate_upright(image))
    upright.thumbnail(_max_size(limits))
    return upright


def _max_size(limits: Limits) -> tuple[int, int]:
    return (limits.max_image_side, limits.max_image_side)


def encode_png(image: Image.Image) -> bytes:
    """Return the image as the content of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(_remove_prefix(text), validate=True)
    except ValueError as error:
        raise BadInput("The image is not valid base64.") from error


def _remove_prefix(text: str) -> str:
    # As canvas.toDataURL() and FileReader write it.
    if text.startswith("data:"):
        return text.partition(",")[2]
    return text


def _check_size(size: tuple[int, int], limits: Limits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise BadInput(f"The image has {width} × {height} pixels: at most {_format_millions(limits)} are accepted.")


def _format_millions(limits: Limits) -> str:
    return f"{limits.max_pixels // 1_000_000} million"
