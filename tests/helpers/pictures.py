"""Pictures of coloured noise, as images and as files."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.data.task import Picture


def photo(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    """Return an image of coloured noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def picture(seed: int = 0) -> Image.Image:
    """Return an image as large as the tiny ViT takes."""
    return photo(24, 24, seed)


def encode_image(image: Image.Image, image_format: str = "PNG") -> bytes:
    """Return the content of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, image_format)
    return buffer.getvalue()


def make_photo(size: tuple[int, int] = (60, 40), image_format: str = "PNG", seed: int = 0) -> bytes:
    """Return a file of coloured noise."""
    return encode_image(photo(*size, seed), image_format)


def encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def png(values: Any) -> Picture:
    """Return an array of grey values as the picture of a task."""
    return Picture(encode_image(Image.fromarray(np.asarray(values, dtype=np.uint8))))


def cut(folder: Path) -> Image.Image:
    """Return a picture that was opened, but whose file ends too early."""
    photo().save(folder / "cut.png")
    return Image.open(io.BytesIO((folder / "cut.png").read_bytes()[:2000]))
