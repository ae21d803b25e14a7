"""Encode a picture, or regions of one, together with a text, for networks that read both in one sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clearhead.errors import BadInput, BadOption
from clearhead.model.batches import Box, Encoded, Inputs, Item, collate, move_to_model
from clearhead.model.image_inputs import input_box, open_image
from clearhead.model.joined_networks import TEXT_LENGTH, JoinedEmbeddings
from clearhead.model.language import SOURCE_LENGTH
from clearhead.model.model import Model
from clearhead.model.picture_embedding import evaluation_mode
from clearhead.model.picture_span import Area, PictureSpan
from clearhead.model.tensor_inputs import describe_ids
from clearhead.model.text_inputs import JOINT_ADVICE, encode_text

TEXT_TENSORS = ("input_ids", "token_type_ids", "position_ids")


def encode_joined(model: Model, inputs: Any, overflow: str) -> Inputs:
    """Return a batch of pictures with their texts, from pairs or from the tensors of the network."""
    encoded = _encode_all(model, inputs, overflow)
    _require_same_sources(encoded)
    return collate(model, encoded)


def _require_same_sources(encoded: Sequence[Encoded]) -> None:
    # Words begin at the same position in every row.
    counts = {row.values[SOURCE_LENGTH][0] for row in encoded if SOURCE_LENGTH in row.values}
    if len(counts) > 1:
        raise BadInput(f"The inputs have {sorted(counts)} regions or patches: explain those with as many together.")


def is_joined_pair(inputs: Any) -> bool:
    """Return whether this is one picture with its text."""
    return isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], str)


def _encode_all(model: Model, inputs: Any, overflow: str) -> list[Encoded]:
    # A mapping is a batch of tensors, with an axis for inputs.
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
    _require_processor(model)
    picture, text = pair
    encoded = _encode_words(model, text, overflow)
    words = {name: torch.tensor([encoded.values[name]]) for name in TEXT_TENSORS if name in encoded.values}
    if not model.network.takes_images:
        return _finish(model, {**words, **_read_regions(model, picture)}, encoded.item)
    image = open_image(picture)
    pixels = model.processor.image_processor(images=image, return_tensors="pt")
    return _finish(model, {**words, **pixels}, _add_image(model, encoded.item, image, pixels["pixel_values"]))


def _require_processor(model: Model) -> None:
    if model.processor is None:
        raise BadInput(f"{model.name} was loaded without its processor: load it with one, or give its tensors.")


def _encode_words(model: Model, text: str, overflow: str) -> Encoded:
    # Limits of a text are those of the stock network, whose positions count words only.
    reader = Model(model.network.network, model.processor.tokenizer, name=model.name)
    _refuse_windows(overflow)
    return encode_text(reader, text, overflow, advice=JOINT_ADVICE)


def _refuse_windows(overflow: str) -> None:
    if overflow == "windows":
        raise BadOption("overflow='windows' is for texts alone: a picture has no windows. Use overflow='truncate'.")


def _add_image(model: Model, item: Item, image: Image.Image, pixels: Tensor) -> Item:
    height, width = pixels.shape[-2:]
    box = input_box(model.processor.image_processor, image.size, (width, height))
    return replace(item, image=image, box=box)


def _read_regions(model: Model, regions: Any) -> dict[str, Tensor]:
    """Return the features of regions with an axis for inputs, of which there is one."""
    features = model.network.features
    if not isinstance(regions, Mapping) or not isinstance(regions.get(features), Tensor):
        raise _no_pair(model, (regions, ""))
    # A picture has regions × features; as a batch of one it has another axis.
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
    _require_tensors(model, tensors)
    # Processors also return what is no tensor, and labels are no input.
    given = {name: value for name, value in tensors.items() if isinstance(value, Tensor) and name != "labels"}
    count = _count_inputs(given)
    return [_trim_text(_select_row(given, row)) for row in range(count)]


def _require_tensors(model: Model, tensors: Mapping[str, Any]) -> None:
    main = "pixel_values" if model.network.takes_images else model.network.features
    for name in ("input_ids", main):
        if not isinstance(tensors.get(name), Tensor):
            raise BadInput(f"The tensors {sorted(map(str, tensors))} need input_ids and {main} as tensors.")


def _count_inputs(tensors: Mapping[str, Tensor]) -> int:
    counts = set(map(len, tensors.values()))
    if len(counts) > 1:
        raise BadInput(f"The tensors have different numbers of inputs: {sorted(counts)}.")
    return counts.pop()


def _select_row(tensors: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    return {name: tensor[[row]] for name, tensor in tensors.items()}


def _trim_text(row: dict[str, Tensor]) -> dict[str, Tensor]:
    # Removed, since padding is added again where a batch needs it.
    mask_1T = row.pop("attention_mask", torch.ones_like(row["input_ids"])).bool()
    return {name: tensor[:, mask_1T[0]] if name in TEXT_TENSORS else tensor for name, tensor in row.items()}


def _encode_row(model: Model, row: dict[str, Tensor]) -> Encoded:
    tokenizer = getattr(model.processor, "tokenizer", None)
    item = describe_ids(replace(model, processor=tokenizer), row["input_ids"][0].tolist())
    return _finish(model, row, item)


def _finish(model: Model, tensors: Mapping[str, Tensor], item: Item) -> Encoded:
    """Embed an input, and add the tokens of its picture to those of its text."""
    joined = _embed(model, tensors)
    count = len(joined.embeddings_TD)
    values = {"inputs_embeds": joined.embeddings_TD, "attention_mask": [1] * count}
    # Families differ in which of the two they have to know.
    lengths = {TEXT_LENGTH: joined.words, SOURCE_LENGTH: count - joined.words}
    values.update({name: [length] for name, length in lengths.items() if name in model.input_names})
    return Encoded(_add_picture(item, joined, _find_box(item, tensors)), values)


def _embed(model: Model, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
    moved = move_to_model(Inputs(dict(tensors), ()), model).tensors
    with torch.inference_mode(False), torch.no_grad(), evaluation_mode(model.network):
        joined: JoinedEmbeddings = model.network.embed(moved)
    return joined


def _find_box(item: Item, tensors: Mapping[str, Tensor]) -> Box | None:
    if item.box is not None or "pixel_values" not in tensors:
        return item.box
    # Tensors without their picture are shown as they are.
    height, width = tensors["pixel_values"].shape[-2:]
    return (0, 0, width, height)


def _add_picture(item: Item, joined: JoinedEmbeddings, box: Box | None) -> Item:
    names = _name_picture(joined)
    special = [index < joined.leading for index in range(len(names))]
    return replace(
        item,
        tokens=_append(item.tokens, names, joined),
        special=_append(item.special, special, joined),
        offsets=_add_offsets(item, joined, len(names)),
        pictures=_make_spans(item, joined, box),
        text_span=joined.text_span,
    )


def _append(of_text: Sequence[Any], of_picture: Sequence[Any], joined: JoinedEmbeddings) -> tuple[Any, ...]:
    """Return what belongs to the tokens of both, in their order."""
    if joined.is_last:
        return (*of_picture, *of_text)
    return (*of_text, *of_picture)


def _add_offsets(item: Item, joined: JoinedEmbeddings, count: int) -> tuple[tuple[int, ...], ...] | None:
    if item.offsets is None:
        return None
    # Behind the text, where no word is.
    end = len(str(item.text))
    return _append(item.offsets, [(end, end)] * count, joined)


def _name_picture(joined: JoinedEmbeddings) -> list[str]:
    if joined.grid is None:
        return [f"region {number}" for number in range(len(joined.embeddings_TD) - joined.words)]
    names = [f"patch {row},{column}" for row, column in _find_cells(joined)]
    return ["[CLS]"] * joined.leading + names


def _find_cells(joined: JoinedEmbeddings) -> list[tuple[int, int]]:
    """Return row and column of each patch."""
    assert joined.grid is not None
    columns = joined.grid[1]
    return [divmod(cell, columns) for cell in joined.cells]


def _make_spans(item: Item, joined: JoinedEmbeddings, box: Box | None) -> tuple[PictureSpan, ...]:
    if joined.grid is None:
        return ()
    areas = tuple(_find_area(joined.grid, *cell) for cell in _find_cells(joined))
    start = joined.picture_start + joined.leading
    return (PictureSpan(tuple(range(start, start + len(areas))), areas, item.image, box),)


def _find_area(grid: tuple[int, int], row: int, column: int) -> Area:
    rows, columns = grid
    return (row / rows, column / columns, (row + 1) / rows, (column + 1) / columns)
