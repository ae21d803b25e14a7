"""Encode a picture, or regions of one, together with a text, for networks that read both in one sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput
from clearhead.model.batches import Box, Encoded, Inputs, Item, collate, move_to_model
from clearhead.model.image_inputs import input_box, open_image
from clearhead.model.joined_networks import TEXT_LENGTH, JoinedEmbeddings
from clearhead.model.language import SOURCE_LENGTH
from clearhead.model.model import Model
from clearhead.model.picture_embedding import evaluation_mode
from clearhead.model.picture_span import PictureSpan
from clearhead.model.tensor_inputs import describe_ids
from clearhead.model.text_inputs import encode_text

TEXT_TENSORS = ("input_ids", "token_type_ids", "position_ids")


def encode_joined(model: Model, inputs: Any, overflow: str) -> Inputs:
    """Return a batch of pictures with their texts, from pairs or from the tensors of the network."""
    encoded = _encode_all(model, inputs, overflow)
    counts = {row.values[SOURCE_LENGTH][0] for row in encoded if SOURCE_LENGTH in row.values}
    # Words begin at the same position in every row.
    if len(counts) > 1:
        raise BadInput(f"The inputs have {sorted(counts)} regions or patches: explain those with as many together.")
    return collate(model, encoded)


def is_joined_pair(inputs: Any) -> bool:
    """Return whether this is one picture with its text."""
    return isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], str)


def _encode_all(model: Model, inputs: Any, overflow: str) -> list[Encoded]:
    if isinstance(inputs, Mapping):
        return [_encode_row(model, row) for row in _split_tensors(model, inputs)]
    if is_joined_pair(inputs):
        return [_encode_pair(model, inputs, overflow)]
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
        raise _no_pair(model, inputs)
    return [_encode_pair(model, pair, overflow) for pair in inputs]


def _encode_pair(model: Model, pair: Any, overflow: str) -> Encoded:
    if not is_joined_pair(pair):
        raise _no_pair(model, pair)
    if model.processor is None:
        raise BadInput(f"{model.name} was loaded without its processor: load it with one, or give its tensors.")
    picture, text = pair
    # Limits of a text are those of the stock network, whose positions count words only.
    reader = Model(model.network.network, model.processor.tokenizer, name=model.name)
    encoded = encode_text(reader, text, "truncate" if overflow == "windows" else overflow)
    words = {name: torch.tensor([encoded.values[name]]) for name in TEXT_TENSORS if name in encoded.values}
    if not model.network.takes_images:
        return _finish(model, {**words, **_read_regions(model, picture)}, encoded.item)
    image = open_image(picture)
    processor = model.processor.image_processor
    processed = processor(images=image, return_tensors="pt")
    height, width = processed["pixel_values"].shape[-2:]
    item = replace(encoded.item, image=image, box=input_box(processor, image.size, (width, height)))
    return _finish(model, {**words, **processed}, item)


def _read_regions(model: Model, regions: Any) -> dict[str, Tensor]:
    """Return the features of regions with an axis for inputs, of which there is one."""
    features = model.network.features
    if not isinstance(regions, Mapping) or not isinstance(regions.get(features), Tensor):
        raise _no_pair(model, (regions, ""))
    if regions[features].dim() == 3:
        return dict(regions)
    return {name: tensor[None] for name, tensor in regions.items()}


def _no_pair(model: Model, source: Any) -> BadInput:
    first = "picture" if model.network.takes_images else f"{{'{model.network.features}': tensor}}"
    return BadInput(
        f"{model.name} reads a picture and a text together: give ({first}, text), a list of such pairs, or the tensors "
        f"of the network, not a {type(source).__name__}."
    )


def _split_tensors(model: Model, tensors: Mapping[str, Any]) -> list[dict[str, Tensor]]:
    """Return the tensors of each input, its text without padding."""
    main = "pixel_values" if model.network.takes_images else model.network.features
    for name in ("input_ids", main):
        if not isinstance(tensors.get(name), Tensor):
            raise BadInput(f"The tensors {sorted(map(str, tensors))} need input_ids and {main} as tensors.")
    given = {name: value for name, value in tensors.items() if isinstance(value, Tensor) and name != "labels"}
    counts = {len(tensor) for tensor in given.values()}
    if len(counts) > 1:
        raise BadInput(f"The tensors have different numbers of inputs: {sorted(counts)}.")
    return [_trim_text({name: tensor[[row]] for name, tensor in given.items()}) for row in range(*counts)]


def _trim_text(row: dict[str, Tensor]) -> dict[str, Tensor]:
    mask_1T = row.pop("attention_mask", torch.ones_like(row["input_ids"])).bool()
    return {name: tensor[:, mask_1T[0]] if name in TEXT_TENSORS else tensor for name, tensor in row.items()}


def _encode_row(model: Model, row: dict[str, Tensor]) -> Encoded:
    tokenizer = getattr(model.processor, "tokenizer", None)
    item = describe_ids(replace(model, processor=tokenizer), row["input_ids"][0].tolist())
    return _finish(model, row, item)


def _finish(model: Model, tensors: Mapping[str, Tensor], item: Item) -> Encoded:
    """Embed an input, and add the tokens of its picture to those of its text."""
    moved = move_to_model(Inputs(dict(tensors), ()), model).tensors
    with torch.inference_mode(False), torch.no_grad(), evaluation_mode(model.network):
        joined = model.network.embed(moved)
    count = len(joined.embeddings_TD)
    values = {"inputs_embeds": joined.embeddings_TD, "attention_mask": [1] * count}
    lengths = {TEXT_LENGTH: joined.words, SOURCE_LENGTH: count - joined.words}
    values.update({name: [length] for name, length in lengths.items() if name in model.input_names})
    return Encoded(_add_picture(item, joined, _find_box(item, tensors)), values)


def _find_box(item: Item, tensors: Mapping[str, Tensor]) -> Box | None:
    if item.box is not None or "pixel_values" not in tensors:
        return item.box
    # Tensors without their picture are shown as they are.
    height, width = tensors["pixel_values"].shape[-2:]
    return (0, 0, width, height)


def _add_picture(item: Item, joined: JoinedEmbeddings, box: Box | None) -> Item:
    names = _name_picture(joined)
    special = [True] * joined.leading + [False] * (len(names) - joined.leading)
    offsets = item.offsets
    if offsets is not None:
        # Behind the text, where no word is.
        end = len(str(item.text))
        offsets = _append(offsets, [(end, end)] * len(names), joined)
    return replace(
        item,
        tokens=_append(item.tokens, names, joined),
        special=_append(item.special, special, joined),
        offsets=offsets,
        pictures=_make_spans(item, joined, box),
        text_span=joined.text_span,
    )


def _append(of_text: Sequence[Any], of_picture: Sequence[Any], joined: JoinedEmbeddings) -> tuple[Any, ...]:
    """Return what belongs to the tokens of both, in their order."""
    if joined.is_last:
        return (*of_picture, *of_text)
    return (*of_text, *of_picture)


def _name_picture(joined: JoinedEmbeddings) -> list[str]:
    if joined.grid is None:
        count = len(joined.embeddings_TD) - joined.words
        return list(map("region {}".format, range(count)))
    columns = joined.grid[1]
    names = ["patch {},{}".format(*divmod(cell, columns)) for cell in joined.cells]
    return ["[CLS]"] * joined.leading + names


def _make_spans(item: Item, joined: JoinedEmbeddings, box: Box | None) -> tuple[PictureSpan, ...]:
    if joined.grid is None:
        return ()
    rows, columns = joined.grid
    areas = []
    for cell in joined.cells:
        row, column = divmod(cell, columns)
        areas.append((row / rows, column / columns, (row + 1) / rows, (column + 1) / columns))
    start = joined.leading if joined.is_last else joined.words + joined.leading
    return (PictureSpan(tuple(range(start, start + len(areas))), tuple(areas), item.image, box),)
