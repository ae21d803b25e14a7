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
from clearhead.model.focus_networks import CONTINUES, FOCUS, STARTS, MaskedWordNetwork, TokenNetwork
from clearhead.model.model import Model
from clearhead.model.word_focus import TokenRow, find_labelled_word, find_masked_word, list_masks

Finder = Callable[[Model, TokenRow, Any], FocusedOutput]
FINDERS: dict[type, Finder] = {TokenNetwork: find_labelled_word, MaskedWordNetwork: find_masked_word}
# Threads that prepare images take turns: the mode of a network is that of all of them.
_MODE_LOCK = threading.Lock()


def split_focus(source: Any) -> tuple[Any, Any]:
    """Return an input and the focus that came with it."""
    if isinstance(source, FocusedInput):
        return source.source, source.focus
    return source, None


def attach_focus(model: Model, inputs: Inputs | list[Any], focus: Any) -> Inputs | list[Any]:
    """Return inputs with the part of the output to explain: `focus` is that of all, or a list with one per input."""
    if focus is None:
        return inputs
    if not model.has_focus:
        raise BadOption(f"{model.name} has one output per input: leave out focus.")
    if isinstance(inputs, Inputs):
        return focus_batch(model, inputs, list_focus(focus, len(inputs)))
    pairs = zip(inputs, list_focus(focus, len(inputs)), strict=True)
    return [FocusedInput(source, own_focus) for source, own_focus in pairs]


def list_focus(focus: Any, count: int) -> list[Any]:
    """Return one focus per input, from one for all or a list."""
    if not isinstance(focus, list):
        return [focus] * count
    if len(focus) != count:
        raise BadInput(f"{len(focus)} values of focus were given for {count} inputs: give one for all, or one each.")
    return focus


def focus_encoded(model: Model, encoded: Encoded, focus: Any) -> Encoded:
    """Return an encoded input with the part of the output to explain; an input of other networks as it is."""
    if not model.has_focus:
        return encoded
    ids = encoded.values["input_ids"]
    row = TokenRow(encoded.item, ids, lambda: _predict_row(model, encoded))
    output = _find_output(model, row, focus)
    item = replace(encoded.item, focus=output, special=_mark_masks(model, encoded.item, ids))
    return Encoded(item, {**encoded.values, FOCUS: mark_tokens(output.tokens, encoded.length)})


def _find_output(model: Model, row: TokenRow, focus: Any) -> FocusedOutput:
    return FINDERS[type(model.network)](model, row, focus)


def _mark_masks(model: Model, item: Item, ids: Sequence[int]) -> tuple[bool, ...]:
    """Return which tokens are special: masked words are no evidence, and stay when words are hidden."""
    if not model.names_words:
        return item.special
    masks = list_masks(model, ids)
    return tuple(is_special or index in masks for index, is_special in enumerate(item.special))


def mark_tokens(tokens: Sequence[int], length: int) -> list[int]:
    """Return the values of `FOCUS` for a text: the first token of what is explained, and those that continue it."""
    marks = [0] * length
    for token in tokens:
        marks[token] = CONTINUES
    marks[tokens[0]] = STARTS
    return marks


def _predict_row(model: Model, encoded: Encoded) -> Tensor:
    """Return the logits of all parts of the output for one input."""
    return predict_all(model, collate(model, [encoded]).tensors)[0]


def predict_all(model: Model, tensors: dict[str, Tensor]) -> Tensor:
    """Return the logits of all parts of the output, on the CPU."""
    with torch.inference_mode(), _evaluation_mode(model.network):
        logits: Tensor = model.network.read_all(**tensors)
    return logits.cpu()


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


def focus_batch(model: Model, inputs: Inputs, focus: Sequence[Any]) -> Inputs:
    """Return a batch of tensors with the part of the output to explain in each row."""
    if not model.has_focus or FOCUS in inputs.tensors:
        return inputs
    tensors = inputs.tensors
    logits = predict_all(model, tensors)
    rows = [_focus_row(model, inputs, row, logits[row], own_focus) for row, own_focus in enumerate(focus)]
    marks = torch.tensor([own_marks for _, own_marks in rows])
    return Inputs({**tensors, FOCUS: marks.to(model.device)}, [item for item, _ in rows])


def _focus_row(model: Model, inputs: Inputs, row: int, logits_TC: Tensor, focus: Any) -> tuple[Item, list[int]]:
    """Return the item of a row with its focus, and what marks it in the padded row."""
    item = inputs.items[row]
    positions = _list_positions(inputs, row, len(logits_TC))
    ids = inputs.tensors["input_ids"][row, positions].tolist() if "input_ids" in inputs.tensors else []
    output = _find_output(model, TokenRow(item, ids, lambda: logits_TC[positions]), focus)
    marks = mark_tokens([positions[token] for token in output.tokens], len(logits_TC))
    return replace(item, focus=output, special=_mark_masks(model, item, ids)), marks


def _list_positions(inputs: Inputs, row: int, width: int) -> list[int]:
    """Return the positions of the real tokens of a row."""
    mask = inputs.tensors.get("attention_mask")
    if mask is None:
        return list(range(width))
    positions: list[int] = mask[row].nonzero().flatten().tolist()
    return positions
