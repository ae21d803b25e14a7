"""Batches from tensors that the user has prepared."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import BadInput
from clearhead.lazy import LazySequence
from clearhead.model.batches import Inputs, Item, move_to_model
from clearhead.model.focused_inputs import focus_batch, list_focus
from clearhead.model.model import Model
from clearhead.model.tensor_checks import INDEX_TENSORS, validate_indices, validate_tensors
from clearhead.model.text_inputs import validate_length

# Results of tokenizers and data loaders that are no input of the network's forward pass.
IGNORED_TENSORS = ("labels", "special_tokens_mask")
TENSOR_ADVICE = (" Cut every tensor to that many tokens.",)


def from_tensors(model: Model, tensors: Mapping[str, Any], focus: Any = None) -> Inputs:
    """Return a batch from the network's own input tensors; labels are ignored.

    `focus` is the part of the output to explain, of all inputs or in a list of one each.
    """
    kept = _drop_ignored(tensors)
    items = _make_items(model, validate_tensors(model, kept), kept)
    batch = move_to_model(Inputs(kept, items), model)
    return focus_batch(model, batch, list_focus(focus, len(batch)))


def _drop_ignored(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tensors.items() if name not in IGNORED_TENSORS}


def _make_items(model: Model, main: str, tensors: Mapping[str, Tensor]) -> Sequence[Item]:
    if main == "pixel_values":
        return _image_items(tensors[main])
    # Checked here, since the network would fail with an index error, on a GPU even without a message.
    validate_length(model, tensors[main].shape[1], TENSOR_ADVICE)
    return _text_items(model, main, tensors)


def _image_items(pixels: Tensor) -> list[Item]:
    height, width = pixels.shape[-2:]
    return [Item(box=(0, 0, width, height)) for _ in range(len(pixels))]


def _text_items(model: Model, main: str, tensors: Mapping[str, Tensor]) -> Sequence[Item]:
    """Return the tokens of every row without padding; raise BadInput on invalid indices or empty rows."""
    arrays = _copy_indices(main, tensors)
    mask_BT = arrays.pop("mask").astype(bool)
    _require_tokens(mask_BT)
    _validate_all_indices(model, arrays)
    if main == "inputs_embeds":
        return _embedding_items(mask_BT)
    ids_BT = arrays[main]
    # Names of tokens are needed only for explanations: look them up after the GPU has been given its work.
    return LazySequence(len(ids_BT), lambda: _id_items(model, ids_BT, mask_BT))


def _validate_all_indices(model: Model, arrays: Mapping[str, Array]) -> None:
    for name, values in arrays.items():
        validate_indices(model, name, values)


def _embedding_items(mask_BT: Array) -> list[Item]:
    return [_embedding_item(int(mask_T.sum())) for mask_T in mask_BT]


def _require_tokens(mask_BT: Array) -> None:
    if not mask_BT.any(1).all():
        raise BadInput("A row of attention_mask is all zero: that input has no tokens.")


def _copy_indices(main: str, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return integer copies on the CPU of ids, types, positions and, as "mask", of the attention mask."""
    sources = _select_indices(tensors)
    sources["mask"] = _read_mask(main, tensors).long()
    return dict(zip(sources, _copy_to_host(list(sources.values())), strict=True))


def _select_indices(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensors[name].long() for name in INDEX_TENSORS if name in tensors}


def _read_mask(main: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if "attention_mask" not in tensors:
        return _full_mask(tensors[main])
    # Any value but 0 means a real token.
    return tensors["attention_mask"].bool()


def _full_mask(main: Tensor) -> Tensor:
    """Return a mask of real tokens only, on the same device, so that it can be copied with the others."""
    return torch.ones(main.shape[:2], dtype=torch.bool, device=main.device)


def _copy_to_host(tensors: list[Tensor]) -> list[Array]:
    if _have_same_layout(tensors):
        # Stacked, so that a GPU is waited for once instead of once per tensor.
        tensors = list(torch.stack(tensors).cpu())
    # Copied, because the user may write to the tensors before the explanation names its tokens.
    return [tensor.cpu().numpy().copy() for tensor in tensors]


def _have_same_layout(tensors: list[Tensor]) -> bool:
    layouts = {(tensor.device, tensor.shape) for tensor in tensors}
    return len(layouts) == 1


def _embedding_item(length: int) -> Item:
    """Return an Item whose tokens are numbered: embeddings have no text."""
    return Item(tuple(map(str, range(length))), (False,) * length)


def _id_items(model: Model, ids_BT: Array, mask_BT: Array) -> list[Item]:
    special_ids = _find_special_ids(model)
    items = []
    for ids_T, mask_T in zip(ids_BT, mask_BT, strict=True):
        items.append(_id_item(model.processor, ids_T[mask_T].tolist(), special_ids))
    return items


def describe_ids(model: Model, ids: list[int]) -> Item:
    """Return the tokens of one text by its ids."""
    return _id_item(model.processor, ids, _find_special_ids(model))


def _id_item(tokenizer: Any, ids: list[int], special_ids: set[int]) -> Item:
    special = tuple(token_id in special_ids for token_id in ids)
    return Item(_name_tokens(tokenizer, ids), special)


def _find_special_ids(model: Model) -> set[int]:
    tokenizer = model.processor
    if tokenizer is None:
        return _find_end_ids(model.config)
    # [UNK] and [MASK] do not count as special tokens: they stand for words of the text.
    content_ids = (tokenizer.unk_token_id, tokenizer.mask_token_id)
    return set(tokenizer.all_special_ids).difference(content_ids)


def _find_end_ids(config: Any) -> set[int]:
    """Return the end token of an encoder–decoder, which classifies at it and fails without it."""
    end = getattr(config, "eos_token_id", None)
    if getattr(config, "is_encoder_decoder", False) and isinstance(end, int):
        return {end}
    return set()


def _name_tokens(tokenizer: Any, ids: list[int]) -> tuple[str, ...]:
    """Return the tokens of ids; an id itself where the tokenizer does not know it or is None."""
    if tokenizer is None:
        return tuple(map(str, ids))
    return tuple(map(_name_token, ids, tokenizer.convert_ids_to_tokens(ids)))


def _name_token(token_id: int, token: str | None) -> str:
    # The network's vocabulary may be larger than the tokenizer's.
    if token is None:
        return str(token_id)
    return token
