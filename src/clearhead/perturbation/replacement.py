"""How removed features are represented (mask, pad, delete, no attention, blur): masks become the network's tensors."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.features import holds_images, text_mask

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
        labels_NX = self._labels(example_N, device)
        keep_NX = self.present_RU[rows].to(device).gather(1, labels_NX)
        return example_N, keep_NX

    def _labels(self, example_N: Tensor, device: torch.device) -> Tensor:
        # Labels of an image are large: each example's are moved to the device once, not once per row.
        examples, inverse_N = torch.unique(example_N, return_inverse=True)
        return self.labels_EX[examples].to(device)[inverse_N.to(device)]


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
    if replacement is None:
        return _default_replacement(model, inputs)
    if not holds_images(inputs):
        return _check_choice(replacement, TEXT_REPLACEMENTS)
    if replacement == "black":
        return "zero"
    return _check_choice(replacement, IMAGE_REPLACEMENTS)


def _check_choice(replacement: str, choices: tuple[str, ...]) -> str:
    """Return the replacement; raise BadOption if it is none of the choices."""
    if replacement not in choices:
        raise BadOption(f"Invalid replacement={replacement!r} for this input. Available: {', '.join(choices)}.")
    return replacement


def _default_replacement(model: Model, inputs: Inputs) -> str:
    if holds_images(inputs):
        return "zero"
    # Embeddings given instead of ids have no position where a token id could be put.
    if "input_ids" in inputs.tensors and token_id(model, "mask") is not None:
        return "mask"
    return "attention"


def token_id(model: Model, name: str) -> int | None:
    """Return the id of the 'mask' or 'pad' token, None if the model has none."""
    # The tokenizer first: configurations often leave these ids out.
    for source in (model.processor, model.config):
        number = getattr(source, f"{name}_token_id", None)
        if number is not None:
            return int(number)
    return None


def make_replacement(model: Model, batch: Inputs, replacement: str) -> Replacement:
    """Return the object that removes features from these inputs."""
    if holds_images(batch):
        return PixelReplacement(model, batch, replacement, _digest_images(batch))
    _check_supported(model, replacement)
    fill = _fill_id(model, batch, replacement)
    mask_ET = text_mask(batch).cpu()
    return TokenReplacement(model, _tensors_on_cpu(batch, mask_ET), mask_ET, replacement, fill)


def _digest_images(batch: Inputs) -> list[bytes]:
    """Return a digest of the pixels of every image."""
    # As float32, since NumPy has no bfloat16.
    return [_digest([image.cpu().float().numpy()]) for image in batch.tensors["pixel_values"]]


def _tensors_on_cpu(batch: Inputs, mask_ET: Tensor) -> dict[str, Tensor]:
    # A mask also for networks that take none: lengths and deleted tokens are read from it.
    tensors = {"attention_mask": mask_ET.long()}
    # Rows are built on the CPU, where texts are small, and moved to the device as full batches.
    for name, tensor in batch.tensors.items():
        tensors[name] = tensor.cpu()
    return tensors


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
        raise _no_fill_token(model, replacement, name)
    return fill


def _no_fill_token(model: Model, replacement: str, name: str) -> BadOption:
    return BadOption(
        f"replacement={replacement!r} needs input_ids and a {name} token, which {model.name} does not have here. "
        "Use replacement='attention' or 'delete', or load the model with its tokenizer."
    )


def _select_rows(tensors: Mapping[str, Tensor], example_N: Tensor) -> dict[str, Tensor]:
    """Return the rows of some examples, an example once per row of masks."""
    return {name: tensor[example_N] for name, tensor in tensors.items()}


def _digest(arrays: Iterable[Any]) -> bytes:
    # 16 bytes: short keys for many rows, and a collision is out of reach.
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
        length_R = self._ends()[rows.example_R]
        if self.replacement != "delete":
            return length_R
        # An input with nothing left still has one padding token.
        return (length_R - self._count_deleted(rows)).clamp(min=1)

    def _ends(self) -> Tensor:
        """Return the position after the last real token of every example (E)."""
        # Not the number of real tokens: padding may also stand on the left.
        position_T = torch.arange(1, self.mask_ET.shape[1] + 1)
        return (self.mask_ET * position_T).amax(1)

    def _count_deleted(self, rows: Rows) -> Tensor:
        counts = []
        for chunk in chunk_rows(len(rows.example_R)):
            _, keep_NT = rows.keep(chunk, self.mask_ET.device)
            counts.append((~keep_NT).sum(1))
        return torch.cat(counts)

    def keys(self, rows: Rows, chosen: Tensor, lengths: list[int]) -> list[bytes]:
        tensors = self._replace(rows, chosen, self.mask_ET.shape[1])
        arrays = list(map(_as_numpy, tensors.values()))
        return [_digest_row(arrays, row, length) for row, length in enumerate(lengths)]

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        tensors = self._replace(rows, chosen, width)
        # The mask was added for lengths, but the network would not accept it.
        if not self.model.takes_mask:
            del tensors["attention_mask"]
        return {name: tensor.to(self.model.device) for name, tensor in tensors.items()}

    def _replace(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """Return the tensors of some rows with removed tokens replaced, cut to a width."""
        example_N, keep_NT = rows.keep(chosen, self.mask_ET.device)
        tensors = _select_rows(self.tensors, example_N)
        if self.replacement == "delete":
            tensors = _delete_tokens(tensors, keep_NT, token_id(self.model, "pad") or 0)
        else:
            self._mark_removed(tensors, keep_NT)
        tokens = self.mask_ET.shape[1]
        return {name: _truncate(tensor, tokens, width) for name, tensor in tensors.items()}

    def _mark_removed(self, tensors: dict[str, Tensor], keep_NT: Tensor) -> None:
        """Fill removed tokens, and take them from the attention mask, where the replacement does."""
        if self.fill is not None:
            tensors["input_ids"] = torch.where(keep_NT, tensors["input_ids"], self.fill)
        if self.removes_attention:
            tensors["attention_mask"] = tensors["attention_mask"] * keep_NT

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        if logits.dim() == 2:
            return logits
        # Answer spans: batches differ in width, and padding can be no answer.
        real_NT = self.mask_ET[example_N].to(logits.device)
        missing = real_NT.shape[1] - logits.shape[-1]
        return F.pad(logits, (0, missing)).masked_fill(~real_NT[:, None], -torch.inf)


def _digest_row(arrays: Sequence[Any], row: int, length: int) -> bytes:
    # Cut to the row's own length, so that equal texts match whatever the padding of the batch.
    return _digest(array[row][:length] for array in arrays)


def _as_numpy(tensor: Tensor) -> Any:
    # NumPy has no bfloat16.
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy()


def _delete_tokens(tensors: dict[str, Tensor], keep_NT: Tensor, pad: int) -> dict[str, Tensor]:
    """Delete tokens and close the gaps; an input with nothing left becomes one padding token."""
    # Stable, so that kept tokens stay in order in front of deleted ones.
    order_NT = torch.argsort(~keep_NT, dim=1, stable=True)
    compacted = {}
    for name, tensor in tensors.items():
        filler = pad if name == "input_ids" else 0
        compacted[name] = _compact(tensor, order_NT, keep_NT, filler)
    _attend_to_something(compacted["attention_mask"])
    return compacted


def _attend_to_something(mask_NT: Tensor) -> None:
    """Let rows of nothing but padding attend to their first token, in place."""
    # Attention over no token at all would be NaN.
    mask_NT[mask_NT.sum(1) == 0, 0] = 1


def _compact(tensor: Tensor, order_NT: Tensor, keep_NT: Tensor, filler: int) -> Tensor:
    """Move kept tokens to the front and fill the rest; tensors without a token axis stay."""
    if tensor.shape[:2] != keep_NT.shape:
        return tensor
    is_kept = _add_axes(keep_NT.gather(1, order_NT), tensor)
    index = _add_axes(order_NT, tensor).expand(tensor.shape)
    return tensor.gather(1, index).masked_fill(~is_kept, filler)


def _add_axes(values_NT: Tensor, tensor: Tensor) -> Tensor:
    """Add an axis of size 1 for every axis that `tensor` has beyond rows and tokens (embeddings, say)."""
    trailing = (1,) * (tensor.dim() - 2)
    return values_NT.reshape(*values_NT.shape, *trailing)


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
        prefixes = self._digest_examples(rows, set(examples))
        masks = rows.present_RU[chosen].numpy()
        return [prefixes[example] + _digest([mask]) for example, mask in zip(examples, masks, strict=True)]

    def _digest_examples(self, rows: Rows, examples: Iterable[int]) -> dict[int, bytes]:
        """Return a digest of image and labels of each of these examples."""
        digests = {}
        for example in examples:
            labels_X = rows.labels_EX[example].numpy()
            digests[example] = self.digests[example] + _digest([labels_X])
        return digests

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        pixels_ECPQ = self.batch.tensors["pixel_values"]
        example_N, keep_NX = rows.keep(chosen, pixels_ECPQ.device)
        keep = keep_NX.reshape(len(chosen), 1, *pixels_ECPQ.shape[-2:])
        tensors = _select_rows(self.batch.tensors, example_N)
        tensors["pixel_values"] = torch.where(keep, tensors["pixel_values"], self._backgrounds(example_N))
        return tensors

    def _backgrounds(self, example_N: Tensor) -> Tensor:
        """Return the background of each row's image."""
        # Computed once per image, not once per row.
        examples, inverse_N = torch.unique(example_N, return_inverse=True)
        pixels_ECPQ = self.batch.tensors["pixel_values"][examples]
        return _background(self.model, pixels_ECPQ, self.replacement)[inverse_N]

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
    if not _normalises(processor):
        return pixels_ECPQ.new_zeros(1, pixels_ECPQ.shape[1], 1, 1)
    mean_C = pixels_ECPQ.new_tensor(processor.image_mean)
    deviation_C = pixels_ECPQ.new_tensor(processor.image_std)
    # (0 − mean) / deviation: the network reads normalised pixels.
    return -(mean_C / deviation_C).reshape(1, -1, 1, 1)


def _normalises(processor: Any) -> bool:
    """Return whether an image processor shifts and scales pixels; None, for a model without one, does not."""
    for name in ("image_mean", "image_std"):
        if getattr(processor, name, None) is None:
            return False
    # Processors without the option normalise.
    return bool(getattr(processor, "do_normalize", True))


def blur(pixels_ECPQ: Tensor) -> Tensor:
    """Blur with a Gaussian whose deviation is a sixteenth of the image's shorter side."""
    side = min(pixels_ECPQ.shape[-2:])
    sigma = side / 16
    # Three deviations hold 99.7 % of a Gaussian; replicated padding cannot reach further than the image.
    reach = min(int(3 * sigma) + 1, side - 1)
    padded = F.pad(pixels_ECPQ, (reach, reach, reach, reach), mode="replicate")
    return _convolve(padded, _gaussian(pixels_ECPQ, sigma, reach))


def _gaussian(pixels_ECPQ: Tensor, sigma: float, reach: int) -> Tensor:
    """Return the weights of a Gaussian at −reach … reach, in the pixels' dtype and on their device."""
    offsets = torch.arange(-reach, reach + 1, dtype=pixels_ECPQ.dtype, device=pixels_ECPQ.device)
    weights = torch.exp(-offsets.square() / (2 * sigma**2))
    return weights / weights.sum()


def _convolve(pixels_ECPQ: Tensor, weights: Tensor) -> Tensor:
    """Convolve each channel by itself."""
    channels = pixels_ECPQ.shape[1]
    kernel = weights.expand(channels, 1, 1, -1)
    # A Gaussian is separable: along rows, then along columns.
    horizontal = F.conv2d(pixels_ECPQ, kernel, groups=channels)
    return F.conv2d(horizontal, kernel.transpose(2, 3), groups=channels)
