"""What hidden looks like: rows of masks become the tensors a network takes, with hidden tokens or pixels in them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.features import text_mask

TEXT_REPLACEMENTS = ("mask", "pad", "delete", "attention", "mask-attention")
IMAGE_REPLACEMENTS = ("zero", "mean", "blur")
PIXELS_PER_TOKEN = 256
PART = 1024


@dataclass(frozen=True)
class Rows:
    """Masks of all examples stacked; column 0 stands for what is never hidden, missing units count as present."""

    example_R: Tensor
    present_RU: Tensor
    labels_EX: Tensor

    def keep(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """The examples of some rows, and which of their tokens or pixels stay (rows, X)."""
        example_N = self.example_R[rows]
        own, again_N = torch.unique(example_N, return_inverse=True)
        keep_NX = self.present_RU[rows].to(device).gather(1, self.labels_EX[own].to(device)[again_N.to(device)])
        return example_N, keep_NX


def parts(count: int) -> list[Tensor]:
    """The places of so many rows, some at a time, so that what is made of them fits."""
    return [torch.arange(start, min(start + PART, count)) for start in range(0, count, PART)]


class Replacement(Protocol):
    """How rows become tensors."""

    @property
    def removes_attention(self) -> bool:
        """Whether what is hidden is removed from attention."""

    def lengths(self, rows: Rows) -> Tensor:
        """How many tokens each row costs."""

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        """What tells rows apart: equal for equal inputs of the network."""

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """The network's input, no wider than the longest row."""

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        """The logits in a shape that all batches share."""


def resolve_replacement(model: Model, inputs: Inputs, absent: str | None) -> str:
    """The meaning of absent that will be used: by default [MASK], attention where there is none, or a black patch."""
    image = "pixel_values" in inputs.tensors
    choices = IMAGE_REPLACEMENTS if image else TEXT_REPLACEMENTS
    if absent is None:
        masks = "input_ids" in inputs.tensors and token_id(model, "mask") is not None
        return "zero" if image else "mask" if masks else "attention"
    absent = "zero" if absent == "black" and image else absent
    if absent not in choices:
        raise BadOption(f"absent={absent!r} is not a choice here. Use one of {', '.join(choices)}.")
    return absent


def token_id(model: Model, name: str) -> int | None:
    """The id of the 'mask' or 'pad' token, if the model has one."""
    for source in (model.processor, model.config):
        found = getattr(source, f"{name}_token_id", None)
        if found is not None:
            return int(found)
    return None


def make_replacement(model: Model, batch: Inputs, absent: str) -> Replacement:
    """The way to hide in these inputs."""
    if "pixel_values" in batch.tensors:
        content = [_digest([picture.cpu().float().numpy()]) for picture in batch.tensors["pixel_values"]]
        return PixelReplacement(model, batch, absent, content)
    if absent == "delete" and model.problem == "span":
        raise UnsupportedModel("Deleting tokens moves the answer span: use absent='mask' or 'attention' instead.")
    if absent.endswith("attention") and not model.takes_mask:
        raise UnsupportedModel(f"{model.name} takes no attention_mask that could hide tokens: use absent='mask'.")
    mask_ET = text_mask(batch).cpu()
    tensors = {"attention_mask": mask_ET.long(), **{name: value.cpu() for name, value in batch.tensors.items()}}
    return TokenReplacement(model, tensors, mask_ET, absent, _fill(model, batch, absent))


def _fill(model: Model, batch: Inputs, absent: str) -> int | None:
    """The token that stands for a hidden one, where one does."""
    if absent in ("delete", "attention"):
        return None
    name = absent.removesuffix("-attention")
    found = token_id(model, name)
    if found is None or "input_ids" not in batch.tensors:
        raise BadOption(
            f"absent={absent!r} needs input_ids and a {name} token, which {model.name} does not have here. Use "
            "absent='attention' or 'delete', or load the model with its tokenizer."
        )
    return found


def _digest(arrays: Sequence[Any]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()


@dataclass(frozen=True)
class TokenReplacement:
    """Texts with tokens replaced by `fill`, taken out, or removed from attention."""

    model: Model
    tensors: dict[str, Tensor]
    mask_ET: Tensor
    absent: str
    fill: int | None

    @property
    def removes_attention(self) -> bool:
        return self.absent.endswith("attention")

    def lengths(self, rows: Rows) -> Tensor:
        last_E = (self.mask_ET * torch.arange(1, self.mask_ET.shape[1] + 1)).amax(1)
        if self.absent != "delete":
            return last_E[rows.example_R]
        kept = [rows.keep(part, self.mask_ET.device)[1] for part in parts(len(rows.example_R))]
        return (last_E[rows.example_R] - torch.cat([(~keep_NT).sum(1) for keep_NT in kept])).clamp(min=1)

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        arrays = [_bytes(value) for value in self.rows(rows, chosen, self.mask_ET.shape[1]).values()]
        return [_digest([array[row][:length] for array in arrays]) for row, length in enumerate(lengths)]

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        found = self.rows(rows, chosen, width)
        if not self.model.takes_mask:
            del found["attention_mask"]
        return {name: value.to(self.model.device) for name, value in found.items()}

    def rows(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        example_N, keep_NT = rows.keep(chosen, self.mask_ET.device)
        found = {name: value[example_N] for name, value in self.tensors.items()}
        if self.fill is not None:
            found["input_ids"] = torch.where(keep_NT, found["input_ids"], self.fill)
        if self.removes_attention:
            found["attention_mask"] = found["attention_mask"] * keep_NT
        if self.absent == "delete":
            found = _without(found, keep_NT, token_id(self.model, "pad") or 0)
        return {name: _cut(value, self.mask_ET.shape[1], width) for name, value in found.items()}

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        if logits.dim() == 2:
            return logits
        real_NT = self.mask_ET[example_N].to(logits.device)
        padded = F.pad(logits, (0, real_NT.shape[1] - logits.shape[-1]))
        return padded.masked_fill(~real_NT[:, None], -torch.inf)


def _bytes(value: Tensor) -> Any:
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _without(tensors: dict[str, Tensor], keep_NT: Tensor, pad: int) -> dict[str, Tensor]:
    """Hidden tokens taken out, the rest moved together; an input with nothing left becomes one padding token."""
    order_NT = torch.argsort(~keep_NT, dim=1, stable=True)
    found = {
        name: _moved(value, order_NT, keep_NT, pad if name == "input_ids" else 0) for name, value in tensors.items()
    }
    found["attention_mask"][found["attention_mask"].sum(1) == 0, 0] = 1
    return found


def _moved(value: Tensor, order_NT: Tensor, keep_NT: Tensor, empty: int) -> Tensor:
    if value.shape[:2] != keep_NT.shape:
        return value
    beyond = (1,) * (value.dim() - 2)
    shown = keep_NT.gather(1, order_NT).reshape(*keep_NT.shape, *beyond)
    index = order_NT.reshape(*order_NT.shape, *beyond).expand(value.shape)
    return value.gather(1, index).masked_fill(~shown, empty)


def _cut(value: Tensor, tokens: int, width: int) -> Tensor:
    return value[:, :width] if value.dim() > 1 and value.shape[1] == tokens else value


@dataclass(frozen=True)
class PixelReplacement:
    """Images with pixels replaced by a background; `content` tells equal pictures."""

    model: Model
    batch: Inputs
    absent: str
    content: list[bytes]
    removes_attention = False

    def lengths(self, rows: Rows) -> Tensor:
        pixels = self.batch.tensors["pixel_values"][0, 0].numel()
        return torch.full((len(rows.example_R),), max(1, pixels // PIXELS_PER_TOKEN))

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        examples = rows.example_R[chosen].tolist()
        own = {one: self.content[one] + _digest([rows.labels_EX[one].numpy()]) for one in set(examples)}
        masks = rows.present_RU[chosen].numpy()
        return [own[one] + _digest([mask]) for one, mask in zip(examples, masks, strict=True)]

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        pixels_ECPQ = self.batch.tensors["pixel_values"]
        example_N, keep_NX = rows.keep(chosen, pixels_ECPQ.device)
        own, again_N = torch.unique(example_N, return_inverse=True)
        background = _background(self.model, pixels_ECPQ[own], self.absent)[again_N]
        keep = keep_NX.reshape(len(chosen), 1, *pixels_ECPQ.shape[-2:])
        tensors = {name: value[example_N] for name, value in self.batch.tensors.items()}
        return {**tensors, "pixel_values": torch.where(keep, tensors["pixel_values"], background)}

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        return logits


def _background(model: Model, pixels_ECPQ: Tensor, absent: str) -> Tensor:
    """What a hidden pixel shows: black, the picture's mean colour, or the picture out of focus."""
    if absent == "mean":
        return pixels_ECPQ.mean((2, 3), keepdim=True)
    if absent == "blur":
        return blur(pixels_ECPQ)
    return black_pixels(model, pixels_ECPQ).expand(len(pixels_ECPQ), -1, 1, 1)


def black_pixels(model: Model, pixels_ECPQ: Tensor) -> Tensor:
    """0 in [0, 1] space as the network sees it (1,C,1,1); without a processor, a pixel value of 0."""
    processor = model.processor
    mean, deviation = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    if mean is None or deviation is None or not getattr(processor, "do_normalize", True):
        return pixels_ECPQ.new_zeros(1, pixels_ECPQ.shape[1], 1, 1)
    return -(pixels_ECPQ.new_tensor(mean) / pixels_ECPQ.new_tensor(deviation)).reshape(1, -1, 1, 1)


def blur(pixels_ECPQ: Tensor) -> Tensor:
    """A Gaussian blur whose width is a sixteenth of the picture's shorter side."""
    channels, height, width = pixels_ECPQ.shape[1:]
    sigma = min(height, width) / 16
    reach = min(int(3 * sigma) + 1, min(height, width) - 1)
    places = torch.arange(-reach, reach + 1, dtype=pixels_ECPQ.dtype, device=pixels_ECPQ.device)
    kernel = torch.exp(-places.square() / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(channels, 1, 1, -1)
    padded = F.pad(pixels_ECPQ, (reach, reach, reach, reach), mode="replicate")
    return F.conv2d(F.conv2d(padded, kernel, groups=channels), kernel.transpose(2, 3), groups=channels)
