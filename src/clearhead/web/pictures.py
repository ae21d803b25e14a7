"""Images of the data that a server was started with."""

from pathlib import Path
from typing import Any

from PIL import Image

from clearhead.data.task import Example, Picture
from clearhead.web.limits import Limits
from clearhead.web.upload import encode_png, normalize_image


def is_image(source: Any) -> bool:
    """Return whether the input of an example is an image: neither a text, nor a pair of texts or a chat."""
    return not isinstance(source, str | tuple | list)


def render_image(example: Example, limits: Limits) -> bytes:
    """Return the image of an example as a PNG, so that the model sees the same pixels."""
    return encode_png(normalize_image(_open_image(example.raw), limits))


def _open_image(raw: Path | Image.Image) -> Image.Image:
    """Return an image of a task, whose reader names a file or has opened it already."""
    if isinstance(raw, Path):
        return Picture(raw.read_bytes()).opened()
    return raw
