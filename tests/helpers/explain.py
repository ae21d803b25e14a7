"""Shared by the tests that came from test_explain."""

import io

import numpy as np
import torch
from PIL import Image


def photo(width=60, height=40):
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


IDS = {"input_ids": torch.ones(1, 3).long()}


def cut(folder):
    """A picture that was opened, but whose file ends too early."""
    photo().save(folder / "cut.png")
    return Image.open(io.BytesIO((folder / "cut.png").read_bytes()[:2000]))
