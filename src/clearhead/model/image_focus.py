"""Which part of a picture's output is explained: a box that is found, or the pixels of a class."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput
from clearhead.model.batches import Item
from clearhead.model.focus import FocusedOutput, find_index, is_index
from clearhead.model.model import Model
from clearhead.model.target import class_index

Corners = tuple[float, float, float, float]
UNIT_BOX = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class ImageRow:
    """One picture with the network's output for it: logits of its boxes (N,C) or pixels (C,P,Q), and boxes (N,4)."""

    item: Item
    logits: Tensor
    boxes_N4: Tensor | None = None


def find_box(model: Model, row: ImageRow, focus: Any) -> tuple[FocusedOutput, Tensor]:
    """Return the box whose class is explained, and its index (1); None stands for the box that is surest."""
    index, note = _find_index(model, row, focus)
    return _describe_box(row, index, note), torch.tensor([index])


def _describe_box(row: ImageRow, index: int, note: str) -> FocusedOutput:
    return FocusedOutput(f"in box {index}", box=_place_box(row, index), note=note)


def _find_index(model: Model, row: ImageRow, focus: Any) -> tuple[int, str]:
    if is_index(focus):
        return find_index(focus, len(row.logits), "boxes"), ""
    _require_label(focus)
    return _choose_box(model, row.logits, focus)


def _require_label(focus: Any) -> None:
    if focus is not None and not isinstance(focus, str):
        raise BadInput(f"Invalid focus={focus!r}: give the index of a box, or the label of one that is found.")


def _choose_box(model: Model, logits_NC: Tensor, label: str | None) -> tuple[int, str]:
    """Return the surest box of a label, or of any, and how many are found."""
    probability_NC = _box_probabilities(model, logits_NC)
    is_object_N = _is_object(model, probability_NC.argmax(1), label)
    if not is_object_N.any():
        raise _nothing_found(model, label, probability_NC)
    return _find_surest(probability_NC, is_object_N), _count_boxes(int(is_object_N.sum()))


def _find_surest(probability_NC: Tensor, is_object_N: Tensor) -> int:
    # Below every probability, so that a box without an object is never chosen.
    sureness_N = probability_NC.amax(1).masked_fill(~is_object_N, -1)
    return int(sureness_N.argmax())


def _is_object(model: Model, best_N: Tensor, label: str | None) -> Tensor:
    """Return which boxes have an object, of a label if there is one."""
    if label is not None:
        return best_N == class_index(label, model.labels)
    # Detectors that decide by a sigmoid per class have no background: any box counts.
    if model.background is None:
        return torch.ones_like(best_N, dtype=torch.bool)
    return best_N != model.background


def _count_boxes(count: int) -> str:
    if count == 1:
        return ""
    return f"the surest of {count} boxes"


def _box_probabilities(model: Model, logits_NC: Tensor) -> Tensor:
    # In float64, so that boxes of nearly the same probability are told apart.
    if model.problem == "single-label":
        return logits_NC.double().softmax(-1)
    return logits_NC.double().sigmoid()


def _nothing_found(model: Model, label: str | None, probability_NC: Tensor) -> BadInput:
    noun = "object" if label is None else f"'{label}'"
    return BadInput(
        f"{model.name} finds no {noun} in the picture: choose a box by its index, focus=0 … {len(probability_NC) - 1}."
    )


def _place_box(row: ImageRow, index: int) -> Corners | None:
    """Return the corners of a box on the original image; None if the network does not tell them."""
    if row.boxes_N4 is None:
        return None
    x, y, width, height = row.boxes_N4[index].tolist()
    left, top, right, bottom = row.item.box or UNIT_BOX
    # Boxes are given by their centre and size, as shares of the network's input.
    left, right = _place_side(x, width, left, right)
    top, bottom = _place_side(y, height, top, bottom)
    return left, top, right, bottom


def _place_side(centre: float, size: float, start: float, end: float) -> tuple[float, float]:
    scale = end - start
    return start + (centre - size / 2) * scale, start + (centre + size / 2) * scale


def find_pixels(model: Model, row: ImageRow, focus: Any) -> tuple[FocusedOutput, Tensor]:
    """Return the pixels whose class is explained, and their mask (P,Q).

    They are the pixels predicted as a label, those inside of (left, top, right, bottom) on the original image, or, for
    None, those of the class that covers most of it.
    """
    best_PQ = row.logits.argmax(0)
    if focus is None:
        return _select_class(model, best_PQ, _find_most(best_PQ), "the class of most pixels")
    if isinstance(focus, str):
        return _select_class(model, best_PQ, class_index(focus, model.labels))
    return _select_inside(best_PQ, _parse_corners(focus), row.item)


def _find_most(best_PQ: Tensor) -> int:
    """Return the class of most pixels."""
    return int(best_PQ.flatten().mode().values)


def _select_inside(best_PQ: Tensor, corners: Corners, item: Item) -> tuple[FocusedOutput, Tensor]:
    mask_PQ = _fill_box(best_PQ, corners, item)
    return FocusedOutput(f"in {_count_pixels(mask_PQ)}", box=corners), mask_PQ


def _parse_corners(focus: Any) -> Corners:
    _require_corners(focus)
    left, top, right, bottom = map(float, focus)
    return left, top, right, bottom


def _require_corners(focus: Any) -> None:
    if not _is_box(focus):
        raise BadInput(f"Invalid focus={focus!r}: give a label, or a box (left, top, right, bottom) in pixels.")


def _is_box(focus: Any) -> bool:
    return isinstance(focus, tuple | list) and len(focus) == 4


def _select_class(model: Model, best_PQ: Tensor, number: int, note: str = "") -> tuple[FocusedOutput, Tensor]:
    mask_PQ = (best_PQ == number).long()
    if not mask_PQ.any():
        raise _no_pixels(model, best_PQ, number)
    return FocusedOutput(f"in its {_count_pixels(mask_PQ)}", note=note), mask_PQ


def _no_pixels(model: Model, best_PQ: Tensor, number: int) -> BadInput:
    label, shown = model.labels[number], ", ".join(_list_classes(model, best_PQ))
    return BadInput(f"{model.name} finds no '{label}' in the picture, but {shown}: choose one of these, or a box.")


def _list_classes(model: Model, best_PQ: Tensor) -> list[str]:
    labels = model.labels
    return [labels[index] for index in sorted(set(best_PQ.flatten().tolist()))]


def _count_pixels(mask_PQ: Tensor) -> str:
    # Of the output, which is often smaller than the picture.
    rows, columns = mask_PQ.shape
    return f"{int(mask_PQ.sum())} of {rows} × {columns} output pixels"


def _fill_box(best_PQ: Tensor, corners: Corners, item: Item) -> Tensor:
    """Return a mask over the output's pixels of a box on the original image."""
    left, top, right, bottom = corners
    rows, columns = best_PQ.shape
    start_x, start_y, end_x, end_y = item.box or (0, 0, columns, rows)
    inside_P = _is_between(rows, (start_y, end_y), (top, bottom))
    inside_Q = _is_between(columns, (start_x, end_x), (left, right))
    mask_PQ = inside_P[:, None] & inside_Q
    _require_pixels(corners, mask_PQ)
    return mask_PQ.long()


def _require_pixels(corners: Corners, mask_PQ: Tensor) -> None:
    if not mask_PQ.any():
        raise BadInput(f"The box {corners} holds no pixel of the output: give (left, top, right, bottom) in pixels.")


def _is_between(count: int, side: tuple[float, float], box: tuple[float, float]) -> Tensor:
    """Return which of the output's rows or columns along a side of the image have their centre in a box."""
    start, end = side
    centre = start + (torch.arange(count) + 0.5) * (end - start) / count
    return (centre >= box[0]) & (centre < box[1])
