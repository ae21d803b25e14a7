"""Units: what is hidden or kept as a whole.

A sub-word, word or sentence of a text; a patch, grid cell, superpixel or pixel of an image. Special tokens and padding
belong to no unit, so they are never hidden.
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
SEGMENTS = 49


@dataclass(frozen=True)
class Features:
    """The unit of each token (T) or pixel (P,Q): 1 … count, or 0 for what is never hidden."""

    kind: str
    labels: Tensor
    count: int


def text_mask(inputs: Inputs) -> Tensor:
    """True where a token is real (E,T): what the mask says or, for networks that take none, how long each text is."""
    mask = inputs.tensors.get("attention_mask")
    if mask is not None:
        return mask.bool()
    main = next(inputs.tensors[name] for name in ("input_ids", "inputs_embeds") if name in inputs.tensors)
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
    """The units of every input: by default sub-words, or patches; `segments` counts grid cells or superpixels.

    "segment" means SLIC superpixels where scikit-image is installed, cells of a grid otherwise.
    """
    image = "pixel_values" in inputs.tensors
    choices = IMAGE_UNITS if image else TEXT_UNITS
    unit = unit or choices[0]
    if unit not in choices:
        raise BadOption(f"unit={unit!r} is not a choice here. Use one of {', '.join(choices)}.")
    if image:
        return _image_units(model, inputs.tensors["pixel_values"], unit, grid, segments)
    return [_text_units(item, mask, unit) for item, mask in zip(inputs.items, text_mask(inputs).cpu(), strict=True)]


def _text_units(item: Item, mask_T: Tensor, unit: str) -> Features:
    names: dict[Any, int] = {}
    labels_T = torch.zeros(len(mask_T), dtype=torch.long)
    positions = mask_T.nonzero().flatten().tolist()
    own = _unit_names(item, unit)
    for place, position in enumerate(positions):
        if not item.special[place]:
            labels_T[position] = names.setdefault(own[place], len(names) + 1)
    if not names:
        raise BadInput(f"The input {' '.join(item.tokens)!r} holds special tokens only: there is nothing to hide.")
    return Features(unit, labels_T, len(names))


def _unit_names(item: Item, unit: str) -> list[Any]:
    """For each token the name of its unit; a token outside all words or sentences is its own."""
    if unit == "sub-word":
        return list(range(len(item.tokens)))
    if item.text is None or item.offsets is None:
        raise BadOption(f"unit={unit!r} needs the original text and a fast tokenizer: use unit='sub-word'.")
    segments = item.text if isinstance(item.text, tuple) else (item.text,)
    pattern = r"\S+" if unit == "word" else r"\S.*?(?:[.!?]+(?=\s|$)|$)"
    spans = [
        (number, *match.span()) for number, part in enumerate(segments) for match in re.finditer(pattern, part, re.S)
    ]
    return [_span(offset, spans, place) for place, offset in enumerate(item.offsets)]


def _span(offset: tuple[int, ...], spans: list[tuple[int, int, int]], place: int) -> Any:
    segment, start, _ = offset if len(offset) == 3 else (0, *offset)
    found = (span for span in spans if span[0] == segment and span[1] <= start < span[2])
    return next(found, place)


def _image_units(
    model: Model, pixels_ECPQ: Tensor, unit: str, grid: tuple[int, int] | None, segments: int
) -> list[Features]:
    height, width = pixels_ECPQ.shape[-2:]
    if unit == "segment":
        unit = "slic" if _slic() is not None else "grid"
    if unit == "slic":
        return [_superpixels(picture, segments) for picture in pixels_ECPQ]
    if unit == "grid":
        grid = (max(1, round(segments**0.5)),) * 2
    cells = (height, width) if unit == "pixel" else grid or patch_grid(model, height, width)
    labels = grid_labels(height, width, cells)
    return [Features(unit, labels, cells[0] * cells[1])] * len(pixels_ECPQ)


def patch_grid(model: Model, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of patches, from the configuration's patch size."""
    size = getattr(model.config, "patch_size", None)
    if size is None:
        raise UnsupportedModel(f"The configuration of {model.name} names no patch size: choose unit='grid' or 'slic'.")
    down, across = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return height // down, width // across


def grid_labels(height: int, width: int, cells: tuple[int, int]) -> Tensor:
    """Cells numbered from 1, row by row, for each pixel (P,Q)."""
    row_P = torch.arange(height) * cells[0] // height
    column_Q = torch.arange(width) * cells[1] // width
    return row_P[:, None] * cells[1] + column_Q[None, :] + 1


def _slic() -> Any:
    try:
        from skimage.segmentation import slic
    except ImportError:
        return None
    return slic


def _superpixels(picture_CPQ: Tensor, segments: int) -> Features:
    slic = _slic()
    if slic is None:
        raise BadOption("unit='slic' needs scikit-image: pip install 'clearhead[segments]', or use unit='grid'.")
    lowest, highest = picture_CPQ.amin(), picture_CPQ.amax()
    scaled = (picture_CPQ - lowest) / (highest - lowest).clamp(min=1e-12)
    colours = scaled.permute(1, 2, 0).double().cpu().numpy()
    found = torch.from_numpy(slic(colours, n_segments=segments, compactness=10, start_label=0)).long()
    names, labels_PQ = torch.unique(found, return_inverse=True)
    return Features("slic", labels_PQ + 1, len(names))
