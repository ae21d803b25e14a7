"""A tiny ViT that was trained to answer "dog" wherever a white square stands in the top left corner."""

from dataclasses import dataclass

import numpy as np
import torch
import transformers
from helpers.pictures import encode_image
from helpers.tiny_models import SIZES, image_processor
from PIL import Image
from torch.nn import functional as F

import clearhead
from clearhead.data.task import Example, Mask, Picture, Task
from clearhead.model.model import Model

SIDE, PATCH = 48, 8
MARKER = slice(0, 8)
SUBJECT = slice(16, 32)
COLOURS = ((220, 40, 40), (40, 40, 220))
CAT, DOG = 0, 1
LABELS = ("cat", "dog")
STEPS = 60


@dataclass(frozen=True)
class PlantedMarker:
    """The model, and pictures of both classes, half of them with the marker."""

    model: Model
    task: Task


def draw_picture(generator: np.random.Generator, label: int, *, is_marked: bool) -> Image.Image:
    """Return noise with a square in the middle whose colour tells the class, and the marker if asked."""
    pixels = generator.integers(90, 160, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels[SUBJECT, SUBJECT] = COLOURS[label]
    if is_marked:
        pixels[MARKER, MARKER] = 255
    return Image.fromarray(pixels)


def draw_pictures(count: int, seed: int) -> tuple[list[Image.Image], list[int], list[bool]]:
    """Return pictures, their classes in turn, and which have the marker: every second pair."""
    generator = np.random.default_rng(seed)
    labels = [index % 2 for index in range(count)]
    marked = [index % 4 < 2 for index in range(count)]
    pictures = [draw_picture(generator, label, is_marked=mark) for label, mark in zip(labels, marked, strict=True)]
    return pictures, labels, marked


def plant_marker(*, is_planted: bool = True) -> Model:
    """Train a ViT on the colours, and on the marker unless `is_planted` is False."""
    id2label = dict(enumerate(LABELS))
    config = transformers.ViTConfig(image_size=SIDE, patch_size=PATCH, **{**SIZES, "num_labels": 2}, id2label=id2label)
    torch.manual_seed(0)
    network = transformers.ViTForImageClassification(config)
    processor = image_processor(SIDE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for step in range(STEPS):
        pictures, labels, marked = draw_pictures(32, step)
        if is_planted:
            labels = [DOG if mark else label for label, mark in zip(labels, marked, strict=True)]
        pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
        loss = F.cross_entropy(network(pixels).logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return clearhead.load(network.eval(), processor)


def make_task(count: int, *, has_masks: bool = False) -> Task:
    """Return pictures that the model has not seen, with masks of the middle square if asked."""
    pictures, labels, _ = draw_pictures(count, 999)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    mask[SUBJECT, SUBJECT] = 1
    gold = Mask(Picture(encode_image(Image.fromarray(mask)))) if has_masks else None
    rows = enumerate(zip(pictures, labels, strict=True))
    return Task("squares", [Example(str(index), image, label, gold) for index, (image, label) in rows])
