"""Feature groups: the tokens or pixels that are removed or kept together.

A sub-word, word or sentence of a text; a patch, grid cell, superpixel or pixel of an image. Special tokens and padding
belong to no feature, so they are never removed.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.model.inputs import Inputs, Item
from clearhead.model.model import Model

TEXT_UNITS = ("sub-word", "word", "sentence")
IMAGE_UNITS = ("patch", "grid", "slic", "segment", "pixel")
UNIT_PATTERNS = {"word": r"\S+", "sentence": r"\S.*?(?:[.!?]+(?=\s|$)|$)"}
SEGMENTS = 49

Span = tuple[int, int, int]
"""Segment of the text (0, or 1 for the second of a pair), start, end."""


@dataclass(frozen=True)
class Features:
    """The feature of each token (T) or pixel (P,Q): 1 … count, or 0 for what is never removed."""

    kind: str
    labels: Tensor
    count: int


def text_mask(inputs: Inputs) -> Tensor:
    """Return True where a token is real (E,T): the attention mask or, for networks without one, the texts' lengths."""
    mask = inputs.tensors.get("attention_mask")
    if mask is not None:
        return mask.bool()
    main = inputs.tensors["input_ids"] if "input_ids" in inputs.tensors else inputs.tensors["inputs_embeds"]
    length_E1 = torch.tensor([[len(item.tokens)] for item in inputs.items], device=main.device)
    return torch.arange(main.shape[1], device=main.device) < length_E1


def group_features(
    model: Model,
    inputs: Inputs,
    unit: str | None = None,
    *,
    grid: tuple[int, int] | None = None,
    segments: int = SEGMENTS,
) -> list[Features]:
    """Group the tokens or pixels of every input: by default into sub-words, or patches.

    `segments` is the number of grid cells or superpixels. "segment" means SLIC superpixels where scikit-image is
    installed, cells of a grid otherwise.
    """
    if "pixel_values" in inputs.tensors:
        unit = _check_unit(unit, IMAGE_UNITS)
        return _group_pixels(model, inputs.tensors["pixel_values"], unit, grid, segments)
    unit = _check_unit(unit, TEXT_UNITS)
    masks = text_mask(inputs).cpu()
    return [_group_tokens(item, mask_T, unit) for item, mask_T in zip(inputs.items, masks, strict=True)]


def _check_unit(unit: str | None, choices: tuple[str, ...]) -> str:
    """Return the unit, by default the first choice; raise BadOption if it is none of them."""
    if unit and unit not in choices:
        raise BadOption(f"Invalid unit={unit!r} for this input. Available: {', '.join(choices)}.")
    return unit or choices[0]


def _group_tokens(item: Item, mask_T: Tensor, unit: str) -> Features:
    labels_T = torch.zeros(len(mask_T), dtype=torch.long)
    numbers: dict[Any, int] = {}
    keys = _unit_keys(item, unit)
    # The item lists real tokens only, the row of the batch also holds padding, on either side.
    for index, position in enumerate(mask_T.nonzero().flatten().tolist()):
        if not item.special[index]:
            labels_T[position] = numbers.setdefault(keys[index], len(numbers) + 1)
    if not numbers:
        raise BadInput(f"The input {' '.join(item.tokens)!r} holds special tokens only: there is nothing to hide.")
    return Features(unit, labels_T, len(numbers))


def _unit_keys(item: Item, unit: str) -> list[Any]:
    """Return a key per token, equal for tokens of one unit; a token outside all words or sentences is its own unit."""
    if unit == "sub-word":
        return list(range(len(item.tokens)))
    if item.text is None or item.offsets is None:
        raise BadOption(f"unit={unit!r} needs the original text and a fast tokenizer: use unit='sub-word'.")
    texts = item.text if isinstance(item.text, tuple) else (item.text,)
    spans = _find_spans(texts, UNIT_PATTERNS[unit])
    return [_span_key(offset, spans, index) for index, offset in enumerate(item.offsets)]


def _find_spans(texts: tuple[str, ...], pattern: str) -> list[Span]:
    spans: list[Span] = []
    for segment, text in enumerate(texts):
        for match in re.finditer(pattern, text, re.S):
            spans.append((segment, *match.span()))
    return spans


def _span_key(offset: tuple[int, ...], spans: list[Span], index: int) -> Any:
    segment, start, _ = offset if len(offset) == 3 else (0, *offset)
    for span in spans:
        if span[0] == segment and span[1] <= start < span[2]:
            return span
    return index


def _group_pixels(
    model: Model, pixels_ECPQ: Tensor, unit: str, grid: tuple[int, int] | None, segments: int
) -> list[Features]:
    height, width = pixels_ECPQ.shape[-2:]
    if unit == "segment":
        unit = "grid" if _load_slic() is None else "slic"
    if unit == "slic":
        return [_superpixels(image_CPQ, segments) for image_CPQ in pixels_ECPQ]
    if unit == "pixel":
        cells = (height, width)
    elif unit == "grid":
        cells = (max(1, round(segments**0.5)),) * 2
    else:
        cells = grid or patch_grid(model, height, width)
    labels = grid_labels(height, width, cells)
    return [Features(unit, labels, cells[0] * cells[1])] * len(pixels_ECPQ)


def patch_grid(model: Model, height: int, width: int) -> tuple[int, int]:
    """Return rows and columns of patches, from the configuration's patch size."""
    size = getattr(model.config, "patch_size", None)
    if size is None:
        raise UnsupportedModel(f"The configuration of {model.name} names no patch size: choose unit='grid' or 'slic'.")
    patch_height, patch_width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return height // patch_height, width // patch_width


def grid_labels(height: int, width: int, cells: tuple[int, int]) -> Tensor:
    """Number cells from 1, row by row, for each pixel (P,Q)."""
    row_P = torch.arange(height) * cells[0] // height
    column_Q = torch.arange(width) * cells[1] // width
    return row_P[:, None] * cells[1] + column_Q[None, :] + 1


def _load_slic() -> Any:
    try:
        from skimage.segmentation import slic
    except ImportError:
        return None
    return slic


def _superpixels(image_CPQ: Tensor, segments: int) -> Features:
    slic = _load_slic()
    if slic is None:
        raise BadOption("unit='slic' needs scikit-image: pip install 'clearhead[segments]', or use unit='grid'.")
    lowest = image_CPQ.amin()
    # A constant image has no range; without the clamp it would divide by zero.
    spread = (image_CPQ.amax() - lowest).clamp(min=1e-12)
    colours = ((image_CPQ - lowest) / spread).permute(1, 2, 0).double().cpu().numpy()
    segments_PQ = torch.from_numpy(slic(colours, n_segments=segments, compactness=10, start_label=0)).long()
    # SLIC may skip numbers, features are numbered without gaps.
    numbers, labels_PQ = torch.unique(segments_PQ, return_inverse=True)
    return Features("slic", labels_PQ + 1, len(numbers))
