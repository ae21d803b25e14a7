"""Feature groups: the tokens or pixels that are removed or kept together.

A sub-word, word or sentence of a text, a source of a prompt; a patch, grid cell, superpixel or pixel of an image.
Special tokens and padding belong to no feature, so they are never removed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.engine.patches import number_cells
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.model.inputs import Inputs, Item
from clearhead.model.model import Model
from clearhead.model.text_units import SENTENCE_PATTERN
from clearhead.model.unspaced import find_word_spans
from clearhead.validation import require_choice

TEXT_UNITS = ("sub-word", "word", "sentence", "source")
IMAGE_UNITS = ("patch", "grid", "slic", "segment", "pixel")
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
    tokens = _main_tensor(inputs)
    # Without a mask there is no padding on the left: `collate` pads on the right.
    return torch.arange(tokens.shape[1], device=tokens.device) < _count_tokens(inputs, tokens.device)[:, None]


def _count_tokens(inputs: Inputs, device: torch.device) -> Tensor:
    """Return the number of tokens of each text (E)."""
    return torch.tensor([len(item.tokens) for item in inputs.items], device=device)


def _main_tensor(inputs: Inputs) -> Tensor:
    """Return the token ids, or the embeddings given instead."""
    if "input_ids" in inputs.tensors:
        return inputs.tensors["input_ids"]
    return inputs.tensors["inputs_embeds"]


def holds_images(inputs: Inputs) -> bool:
    """Return whether the batch holds images rather than texts."""
    return "pixel_values" in inputs.tensors


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
    if holds_images(inputs):
        unit = _check_unit(unit, IMAGE_UNITS)
        return _group_pixels(model, inputs.tensors["pixel_values"], unit, grid, segments)
    return _group_texts(inputs, _check_unit(unit, TEXT_UNITS))


def _group_texts(inputs: Inputs, unit: str) -> list[Features]:
    # On the CPU: positions are read one by one.
    masks = text_mask(inputs).cpu()
    return [_group_tokens(item, mask_T, unit) for item, mask_T in zip(inputs.items, masks, strict=True)]


def _check_unit(unit: str | None, choices: tuple[str, ...]) -> str:
    """Return the unit, by default the first choice; raise BadOption if it is none of them."""
    unit = unit or choices[0]
    require_choice("unit", unit, choices, " for this input")
    return unit


def _group_tokens(item: Item, mask_T: Tensor, unit: str) -> Features:
    # The item lists real tokens only, the row of the batch also holds padding, on either side.
    positions = mask_T.nonzero().flatten()
    numbers = _number_tokens(item, unit)[: len(positions)]
    count = max(numbers, default=0)
    if not count:
        raise _nothing_to_hide(item)
    return Features(unit, label_positions(len(mask_T), positions, torch.tensor(numbers)), count)


def _nothing_to_hide(item: Item) -> BadInput:
    return BadInput(f"The input {' '.join(item.tokens)!r} holds special tokens only: there is nothing to hide.")


def label_positions(width: int, positions: Tensor, labels: Tensor) -> Tensor:
    """Return the labels at their positions (T), and 0, for what is never removed, everywhere else."""
    labels_T = torch.zeros(width, dtype=torch.long)
    labels_T[positions] = labels
    return labels_T


def _number_tokens(item: Item, unit: str) -> list[int]:
    """Return for each token the number of its unit, from 1 in the order of the text; 0 for what is never removed."""
    keys = _unit_keys(item, unit)
    units: dict[Any, int] = {}
    numbers = []
    for key, is_special in zip(keys, _list_fixed(item), strict=True):
        if is_special or key is None:
            numbers.append(0)
        else:
            numbers.append(units.setdefault(key, len(units) + 1))
    return numbers


def _list_fixed(item: Item) -> list[bool]:
    """Return which tokens are never removed: the special ones, but for those that stand for a part of a picture."""
    fixed = list(item.special)
    for span in item.pictures:
        for token in span.tokens:
            fixed[token] = False
    return fixed


def _unit_keys(item: Item, unit: str) -> list[Any]:
    """Return a key per token, equal for tokens of one unit.

    A token outside all words or sentences is its own unit; outside all sources it has none. Every part of a picture is
    a unit, unless sources are: of these a picture is one.
    """
    if unit == "sub-word":
        return list(range(len(item.tokens)))
    keys = _span_keys(item, unit)
    for number, span in enumerate(item.pictures):
        for token in span.tokens:
            keys[token] = ("picture", number if unit == "source" else token)
    return keys


def _span_keys(item: Item, unit: str) -> list[Any]:
    if item.text is None or item.offsets is None:
        raise _needs_text(unit)
    if unit == "source":
        return _source_keys(item, item.offsets)
    texts = as_segments(item.text)
    spans = _find_sentences(texts) if unit == "sentence" else _find_words(texts, item.offsets)
    return [_span_key(offset, spans, index) for index, offset in enumerate(item.offsets)]


def _source_keys(item: Item, offsets: Sequence[tuple[int, ...]]) -> list[Span | None]:
    if not item.sources:
        raise BadOption("unit='source' needs a prompt of a language model: use unit='sentence'.")
    spans = [(0, source.start, source.end) for source in item.sources]
    return [_span_key(offset, spans, None) for offset in offsets]


def _needs_text(unit: str) -> BadOption:
    return BadOption(f"unit={unit!r} needs the original text and a fast tokenizer: use unit='sub-word'.")


def as_segments(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return a pair of texts as it is, a single text as a tuple of one."""
    if isinstance(text, tuple):
        return text
    return (text,)


def _find_sentences(texts: tuple[str, ...]) -> list[Span]:
    spans: list[Span] = []
    for segment, text in enumerate(texts):
        # A sentence may go on after a line break.
        spans.extend((segment, *match.span()) for match in re.finditer(SENTENCE_PATTERN, text, re.S))
    return spans


def _find_words(texts: tuple[str, ...], offsets: Sequence[tuple[int, ...]]) -> list[Span]:
    """Return the words between blanks; in scripts without them, tokens."""
    spans: list[Span] = []
    for segment, text in enumerate(texts):
        words = find_word_spans(text, _list_starts(offsets, segment))
        spans.extend((segment, *word) for word in words)
    return spans


def _list_starts(offsets: Sequence[tuple[int, ...]], segment: int) -> list[int]:
    """Return the first characters of the tokens of a text, in ascending order."""
    spans = map(as_span, offsets)
    return sorted(start for own, start, end in spans if own == segment and start < end)


def _span_key(offset: tuple[int, ...], spans: list[Span], otherwise: int | None) -> Any:
    """Return the span in which a token starts; where it starts in none, a key that no span equals."""
    token = as_span(offset)
    for span in spans:
        if _starts_in(token, span):
            return span
    return otherwise


def _starts_in(token: Span, span: Span) -> bool:
    return token[0] == span[0] and span[1] <= token[1] < span[2]


def as_span(offset: tuple[int, ...]) -> Span:
    """Return a token's segment, start and end; the offsets of a single text have no segment."""
    if len(offset) == 3:
        return offset
    start, end = offset
    return 0, start, end


def restrict_features(features: Features, visible_T: Tensor) -> Features:
    """Return the features with a visible token, renumbered without gaps; what is not visible is never removed."""
    labels_T = torch.where(visible_T, features.labels, 0)
    # Label 0 first, which may not occur.
    numbers, inverse = torch.unique(torch.cat([labels_T.new_zeros(1), labels_T]), return_inverse=True)
    return Features(features.kind, inverse[1:], len(numbers) - 1)


def _group_pixels(
    model: Model, pixels_ECPQ: Tensor, unit: str, grid: tuple[int, int] | None, segments: int
) -> list[Features]:
    if unit == "segment":
        unit = _segment_unit()
    # Superpixels follow the image; cells are the same for all images of a batch.
    if unit == "slic":
        return [_superpixels(image_CPQ, segments) for image_CPQ in pixels_ECPQ]
    height, width = pixels_ECPQ.shape[-2:]
    cells = _count_cells(model, (height, width), unit, grid, segments)
    labels = grid_labels(height, width, cells)
    return [Features(unit, labels, math.prod(cells))] * len(pixels_ECPQ)


def _segment_unit() -> str:
    if _load_slic() is None:
        return "grid"
    return "slic"


def _count_cells(
    model: Model, size: tuple[int, int], unit: str, grid: tuple[int, int] | None, segments: int
) -> tuple[int, int]:
    """Return rows and columns of pixels, grid cells or patches."""
    if unit == "pixel":
        return size
    if unit == "grid":
        return _square_grid(segments)
    return grid or patch_grid(model, *size)


def _square_grid(cells: int) -> tuple[int, int]:
    """Return rows and columns of the square grid that has about so many cells."""
    side = max(1, round(cells**0.5))
    return side, side


def patch_grid(model: Model, height: int, width: int) -> tuple[int, int]:
    """Return rows and columns of patches, from the configuration's patch size."""
    patch_height, patch_width = _patch_size(model)
    return height // patch_height, width // patch_width


def _patch_size(model: Model) -> tuple[int, ...]:
    """Return height and width of a patch; raise UnsupportedModel if the configuration does not name them."""
    size = getattr(model.config, "patch_size", None)
    if size is None:
        raise UnsupportedModel(f"The configuration of {model.name} names no patch size: choose unit='grid' or 'slic'.")
    if isinstance(size, int):
        return size, size
    # A longer sequence, such as (depth, height, width), ends with the two.
    return tuple(size)[-2:]


def grid_labels(height: int, width: int, cells: tuple[int, int]) -> Tensor:
    """Number cells from 1, row by row, for each pixel (P,Q)."""
    row_P = number_cells(height, cells[0])
    column_Q = number_cells(width, cells[1])
    return row_P[:, None] * cells[1] + column_Q[None, :] + 1


def _load_slic() -> Any:
    # Imported late: scikit-image is optional, and slow to import.
    try:
        from skimage.segmentation import slic
    except ImportError:
        return None
    return slic


def _superpixels(image_CPQ: Tensor, segments: int) -> Features:
    slic = _require_slic()
    segments_PQ = slic(_scale_colours(image_CPQ), n_segments=segments, compactness=10, start_label=0)
    # SLIC may skip numbers, features are numbered without gaps.
    numbers, labels_PQ = torch.unique(torch.from_numpy(segments_PQ).long(), return_inverse=True)
    return Features("slic", labels_PQ + 1, len(numbers))


def _require_slic() -> Any:
    slic = _load_slic()
    if slic is None:
        raise BadOption("unit='slic' needs scikit-image: pip install 'clearhead[segments]', or use unit='grid'.")
    return slic


def _scale_colours(image_CPQ: Tensor) -> Array:
    """Return the image scaled to 0–1, channels last, as SLIC takes it."""
    return _scale_to_unit(image_CPQ).permute(1, 2, 0).double().cpu().numpy()


def _scale_to_unit(image_CPQ: Tensor) -> Tensor:
    lowest = image_CPQ.amin()
    # A constant image has no range; without the clamp it would divide by zero.
    spread = (image_CPQ.amax() - lowest).clamp(min=1e-12)
    return (image_CPQ - lowest) / spread
