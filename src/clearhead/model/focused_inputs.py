"""Inputs of networks with an output for every word, box or pixel: which part of the output is explained."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import BadInput, BadOption
from clearhead.model.batches import Encoded, Inputs, Item, collate
from clearhead.model.focus import FocusedInput, FocusedOutput
from clearhead.model.focus_networks import (
    CONTINUES,
    FOCUS,
    STARTS,
    BoxNetwork,
    MaskedWordNetwork,
    PixelNetwork,
    TokenNetwork,
)
from clearhead.model.image_focus import ImageRow, find_box, find_pixels
from clearhead.model.model import Model
from clearhead.model.word_focus import TokenRow, find_labelled_word, find_masked_word, list_masks

WordFinder = Callable[[Model, TokenRow, Any], FocusedOutput]
ImageFinder = Callable[[Model, ImageRow, Any], tuple[FocusedOutput, Tensor]]
WORD_FINDERS: dict[type, WordFinder] = {TokenNetwork: find_labelled_word, MaskedWordNetwork: find_masked_word}
IMAGE_FINDERS: dict[type, ImageFinder] = {BoxNetwork: find_box, PixelNetwork: find_pixels}
DESCRIPTIONS = {
    TokenNetwork: "A word or phrase of the text, #N for a token, or START:END for characters; empty: the first entity.",
    MaskedWordNetwork: "#N for a mask, counted from 0, or START:END for characters; empty: the first mask.",
    BoxNetwork: "A label, or #N for a box; empty: the surest box.",
    PixelNetwork: "A label, or LEFT,TOP,RIGHT,BOTTOM in pixels; empty: the class of most pixels.",
}
"""What can be chosen of the output of a network, as `parse_focus` reads it."""
FocusedRow = tuple[Item, Tensor]
"""The item of an input with its focus, and the row of `FOCUS` for it."""
# Threads that prepare images take turns: the mode of a network is that of all of them.
_MODE_LOCK = threading.Lock()


def describe_focus(model: Model) -> str:
    """Return what can be chosen of a model's output, in a sentence; "" if it has a single one."""
    return DESCRIPTIONS.get(type(model.network), "")


def split_focus(source: Any) -> tuple[Any, Any]:
    """Return an input and the focus that came with it."""
    if isinstance(source, FocusedInput):
        return source.source, source.focus
    return source, None


def attach_focus(model: Model, inputs: Inputs | list[Any], focus: Any) -> Inputs | list[Any]:
    """Return inputs with the part of the output to explain: `focus` is that of all, or a list with one per input."""
    # Without a choice of the caller, the focus is found when an input is encoded.
    if focus is None:
        return inputs
    require_focus(model)
    listed = list_focus(focus, len(inputs))
    if isinstance(inputs, Inputs):
        return focus_batch(model, inputs, listed)
    return list(map(FocusedInput, inputs, listed))


def require_focus(model: Model) -> None:
    """Raise BadOption unless the model has several outputs, of which one can be chosen."""
    if not model.has_focus:
        raise BadOption(f"{model.name} has one output per input: leave out focus.")


def list_focus(focus: Any, count: int) -> list[Any]:
    """Return one focus per input, from one for all or a list."""
    # A tuple is one focus: characters, or the corners of a box.
    if not isinstance(focus, list):
        return [focus] * count
    _require_one_each(focus, count)
    return focus


def _require_one_each(focus: Sequence[Any], count: int) -> None:
    if len(focus) != count:
        raise BadInput(f"{len(focus)} values of focus were given for {count} inputs: give one for all, or one each.")


def focus_encoded(model: Model, encoded: Encoded, focus: Any) -> Encoded:
    """Return an encoded input with the part of the output to explain; an input of other networks as it is."""
    if not model.has_focus:
        return encoded
    item, marks = _focus_row(model, collate(model, [encoded]), 0, focus)
    # Texts are lists until a batch pads them, images are tensors.
    return Encoded(item, {**encoded.values, FOCUS: marks if model.takes_images else marks.tolist()})


def focus_batch(model: Model, inputs: Inputs, focus: Sequence[Any]) -> Inputs:
    """Return a batch of tensors with the part of the output to explain in each row."""
    if not model.has_focus or FOCUS in inputs.tensors:
        return inputs
    rows = [_focus_row(model, inputs, row, own_focus) for row, own_focus in enumerate(focus)]
    items, marks = zip(*rows, strict=True)
    return Inputs({**inputs.tensors, FOCUS: torch.stack(marks).to(model.device)}, items)


def _focus_row(model: Model, inputs: Inputs, row: int, focus: Any) -> FocusedRow:
    single = _select_row(inputs, row)
    if model.takes_images:
        return _focus_image(model, single, focus)
    return _focus_text(model, single, focus)


def _select_row(inputs: Inputs, row: int) -> Inputs:
    return Inputs({name: tensor[[row]] for name, tensor in inputs.tensors.items()}, [inputs.items[row]])


def _focus_image(model: Model, single: Inputs, focus: Any) -> FocusedRow:
    row = _read_image(model, single)
    focused, index = IMAGE_FINDERS[type(model.network)](model, row, focus)
    return replace(row.item, focus=focused), index


def _read_image(model: Model, single: Inputs) -> ImageRow:
    output = run_all(model, single.tensors)
    return ImageRow(single.items[0], output.logits[0].cpu(), _read_boxes(output))


def _read_boxes(output: Any) -> Tensor | None:
    # Networks that label pixels have none.
    boxes = getattr(output, "pred_boxes", None)
    return None if boxes is None else boxes[0].cpu()


def _focus_text(model: Model, single: Inputs, focus: Any) -> FocusedRow:
    """Return a text with its focus, and what marks it in its row, which may be padded."""
    item = single.items[0]
    positions = _list_positions(single)
    ids = _read_ids(single, positions)
    # The network runs only if the choice is left to it.
    row = TokenRow(item, ids, lambda: run_all(model, single.tensors).logits[0, positions].cpu())
    focused = WORD_FINDERS[type(model.network)](model, row, focus)
    marks = mark_tokens([positions[token] for token in focused.tokens], _count_tokens(single))
    return replace(item, focus=focused, special=_mark_masks(model, item, ids)), marks


def _count_tokens(single: Inputs) -> int:
    # Ids or embeddings.
    return next(iter(single.tensors.values())).shape[1]


def _read_ids(single: Inputs, positions: Sequence[int]) -> list[int]:
    ids_1T = single.tensors.get("input_ids")
    # Embeddings that are given have no ids.
    return [] if ids_1T is None else ids_1T[0, list(positions)].tolist()


def _list_positions(single: Inputs) -> list[int]:
    """Return the positions of the real tokens."""
    mask_1T = single.tensors.get("attention_mask")
    if mask_1T is None:
        return list(range(_count_tokens(single)))
    positions: list[int] = mask_1T[0].nonzero().flatten().tolist()
    return positions


def _mark_masks(model: Model, item: Item, ids: Sequence[int]) -> tuple[bool, ...]:
    """Return which tokens are special: masked words are no evidence, and stay when words are hidden."""
    if not model.names_words:
        return item.special
    masks = list_masks(model, ids)
    return tuple(is_special or index in masks for index, is_special in enumerate(item.special))


def mark_tokens(tokens: Sequence[int], length: int) -> Tensor:
    """Return the row of `FOCUS` for a text: the first token of what is explained, and those that continue it."""
    marks_T = torch.zeros(length, dtype=torch.long)
    marks_T[list(tokens)] = CONTINUES
    marks_T[tokens[0]] = STARTS
    return marks_T


def run_all(model: Model, tensors: dict[str, Tensor]) -> Any:
    """Return the whole output of a network that is reduced to a part of it otherwise."""
    with torch.inference_mode(), _evaluation_mode(model.network):
        return model.network.run(**tensors)


@contextmanager
def _evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Run a network as in use, without dropout; modules that were in training return to it."""
    with _MODE_LOCK:
        training = [module for module in network.modules() if module.training]
        try:
            _set_training(training, False)
            yield
        finally:
            _set_training(training, True)


def _set_training(modules: Sequence[nn.Module], value: bool) -> None:
    for module in modules:
        module.training = value
