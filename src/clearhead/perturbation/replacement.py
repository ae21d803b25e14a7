"""How removed features are represented (mask, pad, delete, no attention, blur): masks become the network's tensors."""

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
ROWS_PER_CHUNK = 1024


@dataclass(frozen=True)
class Rows:
    """Masks of all examples stacked (R rows of U features).

    Column 0 of `present_RU` stands for what is never removed; features that an example does not have are present.
    """

    example_R: Tensor
    present_RU: Tensor
    labels_EX: Tensor

    def keep(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the examples of some rows (N), and which of their tokens or pixels stay (N,X)."""
        example_N = self.example_R[rows]
        # Labels of an image are large: each example's are moved to the device once, not once per row.
        examples, inverse_N = torch.unique(example_N, return_inverse=True)
        labels_NX = self.labels_EX[examples].to(device)[inverse_N.to(device)]
        keep_NX = self.present_RU[rows].to(device).gather(1, labels_NX)
        return example_N, keep_NX


def chunk_rows(count: int) -> list[Tensor]:
    """Return the row numbers 0 … count − 1 in chunks, so that what is built of a chunk fits into memory."""
    starts = range(0, count, ROWS_PER_CHUNK)
    return [torch.arange(start, min(start + ROWS_PER_CHUNK, count)) for start in starts]


class Replacement(Protocol):
    """Builds the network's input from rows of masks."""

    @property
    def removes_attention(self) -> bool:
        """Return whether removed features are removed from attention."""

    def lengths(self, rows: Rows) -> Tensor:
        """Return how many tokens each row costs."""

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        """Return a digest per row, equal for equal inputs of the network."""

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """Return the network's input for some rows, no wider than the longest of them."""

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        """Return the logits in a shape that all batches share."""


def resolve_replacement(model: Model, inputs: Inputs, replacement: str | None) -> str:
    """Return the replacement that will be used: by default [MASK], no attention without a mask token, or black."""
    is_image = "pixel_values" in inputs.tensors
    if replacement is None:
        return _default_replacement(model, inputs)
    if is_image and replacement == "black":
        return "zero"
    choices = IMAGE_REPLACEMENTS if is_image else TEXT_REPLACEMENTS
    if replacement not in choices:
        raise BadOption(f"Invalid replacement={replacement!r} for this input. Available: {', '.join(choices)}.")
    return replacement


def _default_replacement(model: Model, inputs: Inputs) -> str:
    if "pixel_values" in inputs.tensors:
        return "zero"
    has_mask = "input_ids" in inputs.tensors and token_id(model, "mask") is not None
    return "mask" if has_mask else "attention"


def token_id(model: Model, name: str) -> int | None:
    """Return the id of the 'mask' or 'pad' token, None if the model has none."""
    for source in (model.processor, model.config):
        number = getattr(source, f"{name}_token_id", None)
        if number is not None:
            return int(number)
    return None


def make_replacement(model: Model, batch: Inputs, replacement: str) -> Replacement:
    """Return the object that removes features from these inputs."""
    if "pixel_values" in batch.tensors:
        digests = [_digest([image.cpu().float().numpy()]) for image in batch.tensors["pixel_values"]]
        return PixelReplacement(model, batch, replacement, digests)
    _check_supported(model, replacement)
    fill = _fill_id(model, batch, replacement)
    mask_ET = text_mask(batch).cpu()
    # A mask also for networks that take none: lengths and deleted tokens are read from it.
    tensors = {"attention_mask": mask_ET.long()}
    # Rows are built on the CPU, where texts are small, and moved to the device as full batches.
    for name, tensor in batch.tensors.items():
        tensors[name] = tensor.cpu()
    return TokenReplacement(model, tensors, mask_ET, replacement, fill)


def _check_supported(model: Model, replacement: str) -> None:
    """Raise UnsupportedModel if tokens cannot be removed from this model's input in this way."""
    if replacement == "delete" and model.problem == "span":
        raise UnsupportedModel("Deleting tokens moves the answer span: use replacement='mask' or 'attention' instead.")
    if replacement.endswith("attention") and not model.takes_mask:
        raise UnsupportedModel(f"{model.name} takes no attention_mask that could hide tokens: use replacement='mask'.")


def _fill_id(model: Model, batch: Inputs, replacement: str) -> int | None:
    """Return the token id that stands for a removed token, None where no token does."""
    if replacement in ("delete", "attention"):
        return None
    name = replacement.removesuffix("-attention")
    fill = token_id(model, name)
    if fill is None or "input_ids" not in batch.tensors:
        raise BadOption(
            f"replacement={replacement!r} needs input_ids and a {name} token, which {model.name} does not have here. "
            "Use replacement='attention' or 'delete', or load the model with its tokenizer."
        )
    return fill


def _digest(arrays: Sequence[Any]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()


@dataclass(frozen=True)
class TokenReplacement:
    """Texts with tokens replaced by `fill`, deleted, or removed from attention."""

    model: Model
    tensors: dict[str, Tensor]
    mask_ET: Tensor
    replacement: str
    fill: int | None

    @property
    def removes_attention(self) -> bool:
        return self.replacement.endswith("attention")

    def lengths(self, rows: Rows) -> Tensor:
        # The position after the last real token: padding may also stand on the left.
        last_E = (self.mask_ET * torch.arange(1, self.mask_ET.shape[1] + 1)).amax(1)
        if self.replacement != "delete":
            return last_E[rows.example_R]
        deleted = [self._count_deleted(rows, chunk) for chunk in chunk_rows(len(rows.example_R))]
        return (last_E[rows.example_R] - torch.cat(deleted)).clamp(min=1)

    def _count_deleted(self, rows: Rows, chosen: Tensor) -> Tensor:
        _, keep_NT = rows.keep(chosen, self.mask_ET.device)
        return (~keep_NT).sum(1)

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        tensors = self._replace(rows, chosen, self.mask_ET.shape[1])
        arrays = [_as_numpy(tensor) for tensor in tensors.values()]
        digests = []
        for row, length in enumerate(lengths):
            # Rows are cut to their own length, so that equal texts match whatever the padding of the batch.
            digests.append(_digest([array[row][:length] for array in arrays]))
        return digests

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        tensors = self._replace(rows, chosen, width)
        if not self.model.takes_mask:
            del tensors["attention_mask"]
        return {name: tensor.to(self.model.device) for name, tensor in tensors.items()}

    def _replace(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        example_N, keep_NT = rows.keep(chosen, self.mask_ET.device)
        tensors = {name: tensor[example_N] for name, tensor in self.tensors.items()}
        if self.fill is not None:
            tensors["input_ids"] = torch.where(keep_NT, tensors["input_ids"], self.fill)
        if self.removes_attention:
            tensors["attention_mask"] = tensors["attention_mask"] * keep_NT
        if self.replacement == "delete":
            tensors = _delete_tokens(tensors, keep_NT, token_id(self.model, "pad") or 0)
        tokens = self.mask_ET.shape[1]
        return {name: _truncate(tensor, tokens, width) for name, tensor in tensors.items()}

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        if logits.dim() == 2:
            return logits
        # Answer spans: batches differ in width, and padding can be no answer.
        real_NT = self.mask_ET[example_N].to(logits.device)
        padded = F.pad(logits, (0, real_NT.shape[1] - logits.shape[-1]))
        return padded.masked_fill(~real_NT[:, None], -torch.inf)


def _as_numpy(tensor: Tensor) -> Any:
    # NumPy has no bfloat16.
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy()


def _delete_tokens(tensors: dict[str, Tensor], keep_NT: Tensor, pad: int) -> dict[str, Tensor]:
    """Delete tokens and close the gaps; an input with nothing left becomes one padding token."""
    order_NT = torch.argsort(~keep_NT, dim=1, stable=True)
    compacted = {}
    for name, tensor in tensors.items():
        filler = pad if name == "input_ids" else 0
        compacted[name] = _compact(tensor, order_NT, keep_NT, filler)
    # Attention over no token at all would be NaN.
    mask_NT = compacted["attention_mask"]
    mask_NT[mask_NT.sum(1) == 0, 0] = 1
    return compacted


def _compact(tensor: Tensor, order_NT: Tensor, keep_NT: Tensor, filler: int) -> Tensor:
    """Move kept tokens to the front and fill the rest; tensors without a token axis stay."""
    if tensor.shape[:2] != keep_NT.shape:
        return tensor
    trailing = (1,) * (tensor.dim() - 2)
    kept = keep_NT.gather(1, order_NT).reshape(*keep_NT.shape, *trailing)
    index = order_NT.reshape(*order_NT.shape, *trailing).expand(tensor.shape)
    return tensor.gather(1, index).masked_fill(~kept, filler)


def _truncate(tensor: Tensor, tokens: int, width: int) -> Tensor:
    has_token_axis = tensor.dim() > 1 and tensor.shape[1] == tokens
    return tensor[:, :width] if has_token_axis else tensor


@dataclass(frozen=True)
class PixelReplacement:
    """Images with pixels replaced by a background; `digests` are equal for equal images."""

    model: Model
    batch: Inputs
    replacement: str
    digests: list[bytes]
    removes_attention = False

    def lengths(self, rows: Rows) -> Tensor:
        # Images cost about as much as their patches of 16 × 16 pixels.
        pixels = self.batch.tensors["pixel_values"][0, 0].numel()
        return torch.full((len(rows.example_R),), max(1, pixels // PIXELS_PER_TOKEN))

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        # Image, labels and mask determine the input, and are far smaller than the pixels of every row.
        examples = rows.example_R[chosen].tolist()
        prefixes = {}
        for example in set(examples):
            prefixes[example] = self.digests[example] + _digest([rows.labels_EX[example].numpy()])
        masks = rows.present_RU[chosen].numpy()
        return [prefixes[example] + _digest([mask]) for example, mask in zip(examples, masks, strict=True)]

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        pixels_ECPQ = self.batch.tensors["pixel_values"]
        example_N, keep_NX = rows.keep(chosen, pixels_ECPQ.device)
        # The background is computed once per image, not once per row.
        examples, inverse_N = torch.unique(example_N, return_inverse=True)
        background = _background(self.model, pixels_ECPQ[examples], self.replacement)[inverse_N]
        keep = keep_NX.reshape(len(chosen), 1, *pixels_ECPQ.shape[-2:])
        tensors = {name: tensor[example_N] for name, tensor in self.batch.tensors.items()}
        tensors["pixel_values"] = torch.where(keep, tensors["pixel_values"], background)
        return tensors

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        return logits


def _background(model: Model, pixels_ECPQ: Tensor, replacement: str) -> Tensor:
    """Return what a removed pixel shows: black, the image's mean colour, or the blurred image."""
    if replacement == "mean":
        return pixels_ECPQ.mean((2, 3), keepdim=True)
    if replacement == "blur":
        return blur(pixels_ECPQ)
    return black_pixels(model, pixels_ECPQ).expand(len(pixels_ECPQ), -1, 1, 1)


def black_pixels(model: Model, pixels_ECPQ: Tensor) -> Tensor:
    """Return 0 in [0, 1] space as the network sees it (1,C,1,1); without a processor, a pixel value of 0."""
    processor = model.processor
    mean = getattr(processor, "image_mean", None)
    deviation = getattr(processor, "image_std", None)
    if mean is None or deviation is None or not getattr(processor, "do_normalize", True):
        return pixels_ECPQ.new_zeros(1, pixels_ECPQ.shape[1], 1, 1)
    return -(pixels_ECPQ.new_tensor(mean) / pixels_ECPQ.new_tensor(deviation)).reshape(1, -1, 1, 1)


def blur(pixels_ECPQ: Tensor) -> Tensor:
    """Blur with a Gaussian whose deviation is a sixteenth of the image's shorter side."""
    side = min(pixels_ECPQ.shape[-2:])
    sigma = side / 16
    # Replicated padding cannot reach further than the image.
    reach = min(int(3 * sigma) + 1, side - 1)
    offsets = torch.arange(-reach, reach + 1, dtype=pixels_ECPQ.dtype, device=pixels_ECPQ.device)
    weights = torch.exp(-offsets.square() / (2 * sigma**2))
    channels = pixels_ECPQ.shape[1]
    kernel = (weights / weights.sum()).expand(channels, 1, 1, -1)
    padded = F.pad(pixels_ECPQ, (reach, reach, reach, reach), mode="replicate")
    # A Gaussian is separable: along rows, then along columns.
    horizontal = F.conv2d(padded, kernel, groups=channels)
    return F.conv2d(horizontal, kernel.transpose(2, 3), groups=channels)
