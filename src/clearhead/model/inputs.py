"""Inputs: a batch of tensors for the network, and beside each row what a person sees of it."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

from clearhead.errors import Argument, BadInput, BadOption, TooLong
from clearhead.lazy import LazySequence
from clearhead.model import images as photo
from clearhead.model.model import Model, max_tokens
from clearhead.model.tensor_checks import WHOLE, check_values, validate_tensors

Box = tuple[float, float, float, float]
LONG = ("error", "truncate", "windows")
SHORTER = (
    " Use ",
    Argument("long", "truncate"),
    " to explain the beginning, or ",
    Argument("long", "windows"),
    " to explain overlapping parts and stitch them together.",
)
PINNED = 2**20
THREADS = 8
Found = TypeVar("Found")


@dataclass(frozen=True)
class Item:
    """One input as a person sees it.

    `offsets` are (start, end) in `text`, or (segment, start, end) for a pair; None for special tokens' empty spans
    is not used: those are (0, 0). `box` is where the network's picture lies on the original, in its pixels.
    """

    tokens: tuple[str, ...] = ()
    special: tuple[bool, ...] = ()
    text: str | tuple[str, str] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    image: Image.Image | None = None
    box: Box | None = None


@dataclass(frozen=True)
class Encoded:
    """One input ready to be put into a batch."""

    item: Item
    values: dict[str, Any]

    @property
    def length(self) -> int:
        return len(self.item.tokens)


@dataclass(frozen=True)
class Inputs:
    """A batch: the tensors the network is called with, and one Item per row."""

    tensors: dict[str, Tensor]
    items: Sequence[Item]

    def __len__(self) -> int:
        return len(self.items)


def is_single(inputs: Any) -> bool:
    """Whether this is one input rather than a list or a batch of tensors."""
    pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(part, str) for part in inputs)
    return pair or isinstance(inputs, str | Path | Image.Image)


def as_inputs(model: Model, inputs: Any) -> Inputs:
    """Anything that can be explained, as one batch."""
    if isinstance(inputs, Inputs):
        return _moved(inputs, model)
    if isinstance(inputs, Mapping):
        return from_tensors(model, inputs)
    return collate(model, [encode(model, one) for one in as_input_list(inputs)])


def as_input_list(inputs: Any) -> list[Any]:
    """One input or several, as a list that is not empty."""
    several = [inputs] if is_single(inputs) else list(inputs) if isinstance(inputs, Sequence) else None
    if several is None:
        raise BadInput(
            f"A {type(inputs).__name__} cannot be explained: give a text, a pair of texts, an image, a path to one, "
            "a dict of tensors, or a list of these."
        )
    if not several:
        raise BadInput("The list of inputs is empty: there is nothing to explain.")
    return several


def encode(model: Model, one: Any, *, long: str = "error") -> Encoded:
    """Tokenises a text or pair, or prepares an image; with `long="windows"` whole, however long it is."""
    if model.processor is None:
        raise BadInput(
            f"{model.name} was loaded without a tokenizer or image processor: give a dict of tensors, "
            "or load it with one."
        )
    if model.takes_images:
        return _encode_image(model, one)
    pair = isinstance(one, tuple)
    if isinstance(one, Path | Image.Image) or not (isinstance(one, str) or (pair and is_single(one))):
        raise BadInput(f"{model.name} reads text, but a {_kind(one)} was given.")
    return _encode_text(model, one, long)


def _kind(one: Any) -> str:
    """What was given, for people."""
    return "picture" if isinstance(one, Image.Image) else "path" if isinstance(one, Path) else type(one).__name__


def encode_all(model: Model, prepare: Callable[[Any], Found], inputs: Sequence[Any]) -> list[Found]:
    """Prepares every input, in order; pictures several at a time, since most of that is done outside Python."""
    if not model.takes_images or len(set(map(id, inputs))) < max(2, len(inputs)):
        return [prepare(one) for one in inputs]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(prepare, inputs))


# --- text ------------------------------------------------------------------------------------------------------


def _encode_text(model: Model, text: str | tuple[str, str], long: str) -> Encoded:
    segments = text if isinstance(text, tuple) else (text,)
    if not all(segment.strip() for segment in segments):
        raise BadInput("The text is empty: there is nothing to explain.")
    _check_characters("".join(segments))
    fast = bool(getattr(model.processor, "is_fast", False))
    values = model.processor(
        *segments,
        return_special_tokens_mask=True,
        return_offsets_mapping=fast,
        verbose=False,
        **_truncation(model, long),
    )
    special = tuple(bool(flag) for flag in values.pop("special_tokens_mask"))
    spans = values.pop("offset_mapping", None)
    ids = values["input_ids"]
    if long != "windows":
        _check_length(model, len(ids))
    if all(special):
        raise BadInput(f"The tokenizer finds no token in {text!r}: there is nothing to explain.")
    offsets = None if spans is None else tuple(map(partial(_offset, text), values.sequence_ids(), spans))
    item = Item(tuple(model.processor.convert_ids_to_tokens(ids)), special, text, offsets)
    names = [name for name in values if name in ("input_ids", "attention_mask", "token_type_ids")]
    return Encoded(item, {name: list(values[name]) for name in names})


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"Character {error.start + 1} of the text is half a character: it was not UTF-8.") from error


def validate_overflow(long: str) -> None:
    """Refuses what is no choice for inputs that are too long."""
    if long not in LONG:
        raise BadOption(Argument("long", long), f" is not a choice. Use one of {', '.join(LONG)}.")


def _truncation(model: Model, long: str) -> dict[str, Any]:
    validate_overflow(long)
    limit = max_tokens(model)
    return {"truncation": True, "max_length": limit} if long == "truncate" and limit else {"truncation": False}


def _offset(text: str | tuple[str, str], place: int | None, span: tuple[int, int]) -> tuple[int, ...]:
    """The characters of a token in the original text, without the blank some tokenizers count in."""
    segment = place or 0
    part = text[segment] if isinstance(text, tuple) else text
    start, end = span
    while start < end and part[start].isspace():
        start += 1
    return (segment, start, end) if isinstance(text, tuple) else (start, end)


def _check_length(model: Model, length: int, advice: Sequence[str | Argument] = SHORTER) -> None:
    limit = max_tokens(model)
    if limit is not None and length > limit:
        raise TooLong(f"The input has {length} tokens, but {model.name} takes at most {limit}.", *advice)


def collate(model: Model, batch: Sequence[Encoded]) -> Inputs:
    """Pads on the right and stacks; a sample gives the same numbers in any batch."""
    names = list(batch[0].values)
    if model.takes_images:
        tensors = {name: _stacked([one.values[name] for one in batch]) for name in names}
    else:
        width = max(one.length for one in batch)
        masks = ["attention_mask"] if model.takes_mask and "attention_mask" not in names else []
        tensors = {name: _padded(model, name, batch, width) for name in names + masks}
    return _moved(Inputs(tensors, tuple(one.item for one in batch)), model)


def _stacked(pictures: Sequence[Tensor]) -> Tensor:
    sizes = sorted({f"{one.shape[-1]}×{one.shape[-2]}" for one in pictures})
    if len(sizes) > 1:
        found = f"The image processor leaves pictures of different sizes ({', '.join(sizes)}): let it resize, or use "
        raise BadInput(found, Argument("batch_size", 1), ".")
    return torch.stack(list(pictures))


def _padded(model: Model, name: str, batch: Sequence[Encoded], width: int) -> Tensor:
    pad = getattr(model.config, "pad_token_id", None) or 0
    fill = {"input_ids": pad, "token_type_ids": getattr(model.processor, "pad_token_type_id", 0)}.get(name, 0)
    rows = (one.values.get(name, [1] * one.length) for one in batch)
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def _moved(inputs: Inputs, model: Model) -> Inputs:
    """On the model's device; floating inputs in its type."""
    tensors = {
        name: _sent(tensor, model.device, model.dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in inputs.tensors.items()
    }
    return Inputs(tensors, inputs.items)


def _sent(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """On a device; pictures on their way to a GPU are laid where it can fetch them by itself."""
    if device.type == "cuda" and tensor.device.type == "cpu" and tensor.nbytes >= PINNED:
        return tensor.pin_memory().to(device, dtype, non_blocking=True)
    return tensor.to(device, dtype)


# --- tensors ---------------------------------------------------------------------------------------------------


def from_tensors(model: Model, tensors: Mapping[str, Any]) -> Inputs:
    """A batch from tensors as the network takes them; labels are left out."""
    kept = {name: value for name, value in tensors.items() if name not in ("labels", "special_tokens_mask")}
    main = validate_tensors(model, kept)
    if main != "pixel_values":
        _check_length(model, kept[main].shape[1], (" Cut every tensor to that many tokens.",))
    return _moved(Inputs(dict(kept), _items(model, main, kept)), model)


def _items(model: Model, main: str, tensors: Mapping[str, Tensor]) -> Sequence[Item]:
    rows = len(tensors[main])
    if main == "pixel_values":
        height, width = tensors[main].shape[-2:]
        return [Item(box=(0, 0, width, height)) for _ in range(rows)]
    whole = {name: tensors[name] for name in WHOLE if name in tensors}
    own = _fetched({**whole, "mask": tensors.get("attention_mask", _ones(tensors[main])).bool()})
    real = own.pop("mask").astype(bool)
    if not real.any(1).all():
        raise BadInput("A row of attention_mask is all zero: that input has no tokens.")
    for name, values in own.items():
        check_values(model, name, values)
    if main == "inputs_embeds":
        return [Item(tuple(map(str, range(int(row.sum())))), (False,) * int(row.sum())) for row in real]
    ids = own[main]
    return LazySequence(rows, lambda: _id_items(model, [ids[row][real[row]].tolist() for row in range(rows)]))


def _ones(main: Tensor) -> Tensor:
    return torch.ones(main.shape[:2], dtype=torch.bool, device=main.device)


def _fetched(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Copies for the CPU, since what somebody writes later is not what was explained; a GPU is waited for once."""
    several = [one.long() for one in tensors.values()]
    if len({(one.device, one.shape) for one in several}) == 1:
        several = list(torch.stack(several).cpu())
    return {name: one.cpu().numpy().copy() for name, one in zip(tensors, several, strict=True)}


def _id_items(model: Model, rows: list[list[int]]) -> list[Item]:
    """Special is what stands around texts: not a word that the tokenizer does not know, nor a mask."""
    if model.processor is None:
        return [Item(tuple(map(str, ids)), (False,) * len(ids)) for ids in rows]
    own = (model.processor.unk_token_id, model.processor.mask_token_id)
    special = set(model.processor.all_special_ids).difference(own)
    return [Item(_tokens(model.processor, ids), tuple(one in special for one in ids)) for ids in rows]


def _tokens(tokenizer: Any, ids: list[int]) -> tuple[str, ...]:
    """The pieces of text that ids stand for; the id itself where the network knows more of them than the tokenizer."""
    found = tokenizer.convert_ids_to_tokens(ids)
    return tuple(str(one) if piece is None else piece for one, piece in zip(ids, found, strict=True))


# --- images ----------------------------------------------------------------------------------------------------


def _encode_image(model: Model, source: Any) -> Encoded:
    image = open_image(source)
    pixels = model.processor(images=image, return_tensors="pt")["pixel_values"][0]
    box = placement(model.processor, image.size, (pixels.shape[-1], pixels.shape[-2]))
    return Encoded(Item(image=image, box=box), {"pixel_values": pixels})


def open_image(source: Any) -> Image.Image:
    """A picture, or what lies at a path, as people see it."""
    if isinstance(source, Image.Image):
        return photo.to_rgb(photo.rotate_upright(photo.load_pixels(source)))
    if not isinstance(source, str | Path):
        raise BadInput(f"An image model was given a {type(source).__name__}: give a picture or the path to one.")
    return photo.to_rgb(photo.open_image_file(source, f"'{source}'"))


def placement(processor: Any, original: tuple[int, int], final: tuple[int, int]) -> Box:
    """Where the network's picture lies on the original: (left, top, right, bottom) in original pixels."""
    width, height = original
    resized_width, resized_height = _resized(processor, width, height)
    if not getattr(processor, "do_center_crop", False):
        return (0, 0, width, height)
    left, top = (resized_width - final[0]) // 2, (resized_height - final[1]) // 2
    across, down = width / resized_width, height / resized_height
    return (left * across, top * down, (left + final[0]) * across, (top + final[1]) * down)


def _resized(processor: Any, width: int, height: int) -> tuple[int, int]:
    size = getattr(processor, "size", None)
    size = dict(size) if size is not None else {}
    if not getattr(processor, "do_resize", True):
        return width, height
    if size.get("shortest_edge"):
        scale = size["shortest_edge"] / min(width, height)
        return max(1, int(width * scale)), max(1, int(height * scale))
    return size.get("width") or width, size.get("height") or height


def longest_text(batch: Inputs) -> int:
    """Tokens of the longest text in a batch; 0 for images."""
    lengths = [value.shape[1] for value in batch.tensors.values() if value.dim() > 1]
    return 0 if "pixel_values" in batch.tensors else max(lengths, default=0)
