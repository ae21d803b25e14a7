"""Encoded inputs and the batches they are padded and stacked into."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model

Box = tuple[float, float, float, float]
# Smaller tensors are copied to a GPU faster than they are pinned.
MIN_PINNED_BYTES = 2**20


@dataclass(frozen=True)
class Answer:
    """The answer of a language model: its text, its tokens, and where in the text they stand.

    `start` counts the tokens of the prompt.
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
    a language model gave, or could give; its tokens are followed by those of the answer, but for the last.
    """

    tokens: tuple[str, ...] = ()
    special: tuple[bool, ...] = ()
    text: str | tuple[str, str] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    image: Image.Image | None = None
    box: Box | None = None
    answer: Answer | None = None


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


def collate(model: Model, batch: Sequence[Encoded]) -> Inputs:
    """Pad encoded inputs on the right and stack them; an input gives the same numbers in any batch."""
    if model.takes_images:
        tensors = {name: _stack_images(name, batch) for name in batch[0].values}
    else:
        tensors = _pad_texts(model, batch)
    items = tuple(encoded.item for encoded in batch)
    return move_to_model(Inputs(tensors, items), model)


def move_to_model(inputs: Inputs, model: Model) -> Inputs:
    """Return the batch on the model's device, with floating-point tensors in its dtype."""
    tensors = {}
    for name, tensor in inputs.tensors.items():
        # Ids and masks keep their integer or boolean dtype.
        dtype = tensor.dtype
        if tensor.is_floating_point():
            dtype = model.dtype
        tensors[name] = _move_tensor(tensor, model.device, dtype)
    return Inputs(tensors, inputs.items)


def longest_text(batch: Inputs) -> int:
    """Return the number of tokens of the longest text in a batch; 0 for images."""
    if "pixel_values" in batch.tensors:
        return 0
    lengths = [tensor.shape[1] for tensor in batch.tensors.values() if tensor.dim() > 1]
    return max(lengths, default=0)


def _pad_texts(model: Model, batch: Sequence[Encoded]) -> dict[str, Tensor]:
    names = list(batch[0].values)
    # Padding must be masked out even if the tokenizer returns no mask.
    if model.takes_mask and "attention_mask" not in names:
        names.append("attention_mask")
    width = max(encoded.length for encoded in batch)
    return {name: _pad_rows(model, name, batch, width) for name in names}


def _stack_images(name: str, batch: Sequence[Encoded]) -> Tensor:
    images = [encoded.values[name] for encoded in batch]
    _validate_sizes(images)
    return torch.stack(images)


def _validate_sizes(images: Sequence[Tensor]) -> None:
    sizes = {f"{image.shape[-1]}×{image.shape[-2]}" for image in images}
    if len(sizes) > 1:
        listed = ", ".join(sorted(sizes))
        message = f"The image processor returns images of different sizes ({listed}): let it resize, or use "
        raise BadInput(message, Argument("batch_size", 1), ".")


def _pad_rows(model: Model, name: str, batch: Sequence[Encoded], width: int) -> Tensor:
    fill = _padding_value(model, name)
    rows = []
    if name == ANSWER_POSITIONS:
        # The last position again, so that the network need not look at others.
        return pad_positions([encoded.values[name] for encoded in batch])
    for encoded in batch:
        # Tokenizers that return no attention mask mean that every token is real.
        row = encoded.values.get(name, [1] * encoded.length)
        rows.append(row + [fill] * (width - len(row)))
    return torch.tensor(rows)


def pad_positions(rows: Sequence[Sequence[int]]) -> Tensor:
    """Stack positions of answers of different lengths; shorter ones repeat their last position."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])


def _padding_value(model: Model, name: str) -> Any:
    if name == "input_ids":
        return getattr(model.config, "pad_token_id", None) or 0
    if name == "token_type_ids":
        return getattr(model.processor, "pad_token_type_id", 0)
    return 0


def _move_tensor(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    is_upload = device.type == "cuda" and tensor.device.type == "cpu"
    if is_upload and tensor.nbytes >= MIN_PINNED_BYTES:
        # From pinned memory the GPU copies by itself while the CPU goes on.
        return tensor.pin_memory().to(device, dtype, non_blocking=True)
    return tensor.to(device, dtype)
