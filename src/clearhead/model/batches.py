"""Encoded inputs and the batches they are padded and stacked into."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import Argument, BadInput, UnsupportedModel
from clearhead.model.focus import FocusedOutput
from clearhead.model.joined_networks import TEXT_LENGTH
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.model.model import Model, input_embedding
from clearhead.model.picture_span import PictureSpan
from clearhead.model.source_span import SourceSpan

Box = tuple[float, float, float, float]
# Smaller tensors are copied to a GPU faster than they are pinned.
MIN_PINNED_BYTES = 2**20


@dataclass(frozen=True)
class Answer:
    """The answer of a language model: its text, its tokens, and where in the text they stand.

    `start` counts the tokens of the prompt, which those that the decoder of an encoder–decoder starts with follow.
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    start: int


@dataclass(frozen=True)
class Item:
    """One input as a person sees it.

    `offsets` are (start, end) in `text`, or (segment, start, end) for a pair; special tokens have the empty span
    (0, 0). `box` is where the network's input lies on the original image, in its pixels. A prompt has the `answer` that
    a language model gave, or could give; its tokens are followed by those of the answer, but for the last. `sources`
    are parts of a prompt, such as documents or sentences; `pictures` those among its words. `focus` is the part of the
    output that is explained, where a network has several; `text_span` where the words stand, if those of a picture are
    tokens of the same sequence.
    """

    tokens: tuple[str, ...] = ()
    special: tuple[bool, ...] = ()
    text: str | tuple[str, str] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    image: Image.Image | None = None
    box: Box | None = None
    answer: Answer | None = None
    sources: tuple[SourceSpan, ...] = ()
    pictures: tuple[PictureSpan, ...] = ()
    focus: FocusedOutput | None = None
    text_span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Encoded:
    """One input ready to be put into a batch.

    A prompt of a model that reads pictures has also what was `processed` of it, which generation starts from.
    """

    item: Item
    values: dict[str, Any]
    processed: Mapping[str, Tensor] | None = None

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


class EncodedRows(Sequence[Encoded]):
    """Encoded inputs that batches are made of."""

    @property
    @abstractmethod
    def lengths(self) -> Array:
        """The number of tokens of each input."""

    @abstractmethod
    def collate(self, model: Model, indices: Sequence[int]) -> Inputs:
        """Put some of the inputs into a batch (see `collate`)."""


@dataclass(frozen=True)
class EncodedList(EncodedRows):
    """Inputs that were encoded one by one."""

    rows: Sequence[Encoded]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    @property
    def lengths(self) -> Array:
        return np.array([row.length for row in self.rows], np.int64)

    def collate(self, model: Model, indices: Sequence[int]) -> Inputs:
        return collate(model, [self.rows[index] for index in indices])


def collate(model: Model, batch: Sequence[Encoded]) -> Inputs:
    """Pad encoded inputs on the right and stack them; an input gives the same numbers in any batch."""
    items = [encoded.item for encoded in batch]
    return move_to_model(Inputs(_make_tensors(model, batch), tuple(items)), model)


def _make_tensors(model: Model, batch: Sequence[Encoded]) -> dict[str, Tensor]:
    if model.takes_images:
        return _stack_all_images(batch)
    return _pad_texts(model, batch)


def _stack_all_images(batch: Sequence[Encoded]) -> dict[str, Tensor]:
    return {name: _stack_images(name, batch) for name in batch[0].values}


def move_to_model(inputs: Inputs, model: Model) -> Inputs:
    """Return the batch on the model's device, with floating-point tensors in its dtype."""
    tensors = {name: _move_tensor(tensor, model) for name, tensor in inputs.tensors.items()}
    return Inputs(tensors, inputs.items)


def _dtype_in(model: Model, tensor: Tensor) -> torch.dtype:
    # Ids and masks keep their integer or boolean dtype.
    if tensor.is_floating_point():
        return model.dtype
    return tensor.dtype


def longest_text(batch: Inputs) -> int:
    """Return the number of tokens of the longest text in a batch; 0 for images."""
    if "pixel_values" in batch.tensors:
        return 0
    return max(_token_counts(batch), default=0)


def _token_counts(batch: Inputs) -> list[int]:
    return [tensor.shape[1] for tensor in batch.tensors.values() if tensor.dim() > 1]


def _pad_texts(model: Model, batch: Sequence[Encoded]) -> dict[str, Tensor]:
    if model.is_encoder_decoder:
        batch = _align_sources(model, batch)
    width = _longest(batch)
    tensors = {name: _pad_rows(model, name, batch, width) for name in list_tensor_names(model, batch[0].values)}
    validate_vocabulary(model, tensors)
    return tensors


def validate_vocabulary(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Raise UnsupportedModel if the tokenizer returned ids that the network has no embeddings for."""
    ids = tensors.get("input_ids")
    embedding = input_embedding(model.network)
    # Some tokenizers have more tokens than the network, but never return them.
    if ids is None or embedding is None or int(ids.max()) < len(embedding):
        return
    raise UnsupportedModel(
        f"The tokenizer of {model.name} does not fit: it returned token {int(ids.max())}, but the model has "
        f"{len(embedding)}. Load the tokenizer that the model was trained with."
    )


def _longest(batch: Sequence[Encoded]) -> int:
    return max(map(_count_tokens, batch))


def _count_tokens(encoded: Encoded) -> int:
    # Prompts with pictures are embedded already.
    values = encoded.values
    return len(values["input_ids"] if "input_ids" in values else values["inputs_embeds"])


def _align_sources(model: Model, batch: Sequence[Encoded]) -> list[Encoded]:
    """Pad the sources of an encoder–decoder, so that the decoder's input begins at the same position in every row."""
    width = max(encoded.values[SOURCE_LENGTH][0] for encoded in batch)
    return [_pad_source(model, encoded, width) for encoded in batch]


def _pad_source(model: Model, encoded: Encoded, width: int) -> Encoded:
    values = dict(encoded.values)
    (length,) = values[SOURCE_LENGTH]
    for name in ("input_ids", "attention_mask"):
        row = values[name]
        values[name] = row[:length] + [padding_value(model, name)] * (width - length) + row[length:]
    values[ANSWER_POSITIONS] = [position + width - length for position in values[ANSWER_POSITIONS]]
    values[SOURCE_LENGTH] = [width]
    return Encoded(encoded.item, values)


def list_tensor_names(model: Model, values: Iterable[str]) -> list[str]:
    """Return the names of the tensors that the network gets, from those of the tokenizer's values."""
    names = [name for name in values if _is_taken(model, name)]
    # Padding must be masked out even if the tokenizer returns no mask.
    if model.takes_mask and "attention_mask" not in names:
        names.append("attention_mask")
    return names


def _is_taken(model: Model, name: str) -> bool:
    # A tokenizer may return more than a custom network takes, often token types.
    return name != "token_type_ids" or model.takes_anything or name in model.input_names


def _stack_images(name: str, batch: Sequence[Encoded]) -> Tensor:
    images = [encoded.values[name] for encoded in batch]
    # What else the network gets of a picture is as large as these are.
    if name == "pixel_values":
        _validate_sizes(images)
    return torch.stack(images)


def _validate_sizes(images: Sequence[Tensor]) -> None:
    # torch.stack would fail without a hint at the processor.
    sizes = set(map(_format_size, images))
    if len(sizes) > 1:
        raise _different_sizes(sizes)


def _format_size(image: Tensor) -> str:
    height, width = image.shape[-2:]
    return f"{width}×{height}"


def _different_sizes(sizes: set[str]) -> BadInput:
    listed = ", ".join(sorted(sizes))
    message = f"The image processor returns images of different sizes ({listed}): let it resize, or use "
    return BadInput(message, Argument("batch_size", 1), ".")


def _pad_rows(model: Model, name: str, batch: Sequence[Encoded], width: int) -> Tensor:
    fill = padding_value(model, name)
    if name == ANSWER_POSITIONS:
        # The last position again, so that the network need not look at others.
        return pad_positions([encoded.values[name] for encoded in batch])
    if name in (SOURCE_LENGTH, TEXT_LENGTH):
        width = 1
    if isinstance(batch[0].values.get(name), Tensor):
        return _pad_tensors([encoded.values[name] for encoded in batch], width)
    rows = [_pad_row(encoded, name, fill, width) for encoded in batch]
    return torch.tensor(rows)


def _pad_tensors(tensors: Sequence[Tensor], width: int) -> Tensor:
    """Stack tensors of tokens × features; zeros follow shorter ones."""
    padded = tensors[0].new_zeros(len(tensors), width, *tensors[0].shape[1:])
    for row, tensor in enumerate(tensors):
        padded[row, : len(tensor)] = tensor
    return padded


def pad_positions(rows: Sequence[Sequence[int]]) -> Tensor:
    """Stack positions of answers of different lengths; shorter ones repeat their last position."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])


def _pad_row(encoded: Encoded, name: str, fill: int, width: int) -> list[int]:
    row = _row_values(encoded, name)
    return row + [fill] * (width - len(row))


def _row_values(encoded: Encoded, name: str) -> list[int]:
    # Tokenizers that return no attention mask mean that every token is real.
    values: list[int] = encoded.values.get(name, [1] * encoded.length)
    return values


def padding_value(model: Model, name: str) -> Any:
    """Return what stands at the padding of a tensor of the network."""
    if name == "input_ids":
        return getattr(model.config, "pad_token_id", None) or 0
    if name == "token_type_ids":
        return getattr(model.processor, "pad_token_type_id", 0)
    return 0


def _move_tensor(tensor: Tensor, model: Model) -> Tensor:
    dtype = _dtype_in(model, tensor)
    if _is_large_upload(tensor, model.device):
        # From pinned memory the GPU copies by itself while the CPU goes on.
        return tensor.pin_memory().to(model.device, dtype, non_blocking=True)
    return tensor.to(model.device, dtype)


def _is_large_upload(tensor: Tensor, device: torch.device) -> bool:
    return device.type == "cuda" and tensor.device.type == "cpu" and tensor.nbytes >= MIN_PINNED_BYTES
