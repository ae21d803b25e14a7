"""A picture from a request: its type told by its content, its size checked before it is unpacked."""

import base64
import binascii
import io

from PIL import Image

from clearhead.errors import BadInput
from clearhead.model import images as photo
from clearhead.web.limits import Limits

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


def picture(text: str, limits: Limits) -> Image.Image:
    """The picture upright, as browsers show it, and no larger than a page needs."""
    content = _content(text)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as file:
            _check(file.size, limits)
            file.draft("RGB", (limits.side, limits.side))
            return shown(file, limits)
    except BadInput:
        raise
    except Image.DecompressionBombError as error:
        raise BadInput(
            f"The picture has too many pixels; at most {limits.pixels // 1_000_000} million are taken."
        ) from error
    except Exception as error:
        raise BadInput(f"The picture cannot be read: it is not a whole {', '.join(FORMATS)} file.") from error


def shown(image: Image.Image, limits: Limits) -> Image.Image:
    """Upright, and no larger than a page needs."""
    upright = photo.to_rgb(photo.rotate_upright(image))
    upright.thumbnail((limits.side, limits.side))
    return upright


def jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def _content(text: str) -> bytes:
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("The picture is not base64.") from error


def _check(size: tuple[int, int], limits: Limits) -> None:
    if size[0] * size[1] > limits.pixels:
        raise BadInput(
            f"The picture has {size[0]} × {size[1]} pixels; at most {limits.pixels // 1_000_000} million are taken."
        )
