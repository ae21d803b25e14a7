"""How removed features are represented (mask, pad, delete, no attention, blur): masks become the network's tensors."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.answer_replacement import make_answer_replacement
from clearhead.perturbation.features import holds_images, text_mask
from clearhead.perturbation.rows import Replacement, Rows, digest_arrays, move_tensors, select_rows
from clearhead.perturbation.token_replacement import TokenReplacement, token_id
from clearhead.validation import require_choice

TEXT_REPLACEMENTS = ("mask", "pad", "delete", "attention", "mask-attention")
IMAGE_REPLACEMENTS = ("zero", "mean", "blur")
PIXELS_PER_TOKEN = 256


def resolve_replacement(model: Model, inputs: Inputs, replacement: str | None) -> str:
    """Return the replacement that will be used.

    By default [MASK], no attention without a mask token or to a prompt with pictures, deletion from other prompts, or
    black.
    """
    if replacement is None:
        return _default_replacement(model, inputs)
    if holds_images(inputs):
        return _resolve_background(replacement)
    return _check_choice(replacement, TEXT_REPLACEMENTS)


def _resolve_background(replacement: str) -> str:
    if replacement == "black":
        return "zero"
    return _check_choice(replacement, IMAGE_REPLACEMENTS)


def _check_choice(replacement: str, choices: tuple[str, ...]) -> str:
    """Return the replacement; raise BadOption if it is none of the choices."""
    require_choice("replacement", replacement, choices, " for this input")
    return replacement


def _default_replacement(model: Model, inputs: Inputs) -> str:
    if holds_images(inputs):
        return "zero"
    if model.writes:
        return _default_for_prompts(inputs)
    if _takes_mask_token(model, inputs):
        return "mask"
    return "attention"


def _default_for_prompts(inputs: Inputs) -> str:
    # The positions of a picture's tokens tell where they lie, so that no gap can be closed.
    if "inputs_embeds" in inputs.tensors:
        return "attention"
    # A gap in a prompt is unlike anything that a language model has read.
    return "delete"


def _takes_mask_token(model: Model, inputs: Inputs) -> bool:
    # Embeddings given instead of ids have no position where a token id could be put.
    return "input_ids" in inputs.tensors and token_id(model, "mask") is not None


def make_replacement(model: Model, batch: Inputs, replacement: str) -> Replacement:
    """Return the object that removes features from these inputs."""
    if holds_images(batch):
        return PixelReplacement(model, batch, replacement)
    return _make_token_replacement(model, batch, replacement)


def _make_token_replacement(model: Model, batch: Inputs, replacement: str) -> TokenReplacement:
    _check_supported(model, batch, replacement)
    fill = _fill_id(model, batch, replacement)
    mask_ET = text_mask(batch).cpu()
    texts = TokenReplacement(model, _tensors_on_cpu(batch, mask_ET), mask_ET, replacement, fill)
    return make_answer_replacement(texts) if model.writes else texts


def _tensors_on_cpu(batch: Inputs, mask_ET: Tensor) -> dict[str, Tensor]:
    # Rows are built on the CPU, where texts are small, and moved to the device as full batches. They have a mask
    # also for networks that take none: lengths and deleted tokens are read from it.
    return {"attention_mask": mask_ET.long(), **move_tensors(batch.tensors, "cpu")}


def _check_supported(model: Model, batch: Inputs, replacement: str) -> None:
    """Raise UnsupportedModel if tokens cannot be removed from this model's input in this way."""
    if (
        (model.reads_pictures or model.reads_jointly)
        and "inputs_embeds" in batch.tensors
        and replacement != "attention"
    ):
        raise UnsupportedModel("Words and parts of pictures are hidden from attention: use replacement='attention'.")
    if replacement == "delete" and model.is_positional:
        raise UnsupportedModel("Deleting tokens moves what is explained: use replacement='mask' or 'attention'.")
    if replacement.endswith("attention") and not model.takes_mask:
        raise UnsupportedModel(f"{model.name} takes no attention_mask that could hide tokens: use replacement='mask'.")


def _fill_id(model: Model, batch: Inputs, replacement: str) -> int | None:
    """Return the token id that stands for a removed token, None where no token does."""
    if replacement in ("delete", "attention"):
        return None
    return _require_fill(model, batch, replacement)


def _require_fill(model: Model, batch: Inputs, replacement: str) -> int:
    """Return the token id that the replacement names; raise BadOption if these inputs have no such token."""
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


@dataclass(frozen=True)
class PixelReplacement:
    """Images with pixels replaced by a background."""

    model: Model
    batch: Inputs
    replacement: str
    removes_attention = False

    @property
    def pixels_ECPQ(self) -> Tensor:
        """The images as the network reads them."""
        return self.batch.tensors["pixel_values"]

    @cached_property
    def digests(self) -> list[bytes]:
        """A digest of the pixels of every image, equal for equal images."""
        # As float32, since NumPy has no bfloat16.
        return [digest_arrays([image.cpu().float().numpy()]) for image in self.pixels_ECPQ]

    def lengths(self, rows: Rows) -> Tensor:
        # Images cost about as much as their patches of 16 × 16 pixels.
        tokens = self.pixels_ECPQ[0, 0].numel() // PIXELS_PER_TOKEN
        return torch.full((len(rows.example_R),), max(1, tokens))

    def keys(self, rows: Rows, chosen: Tensor, lengths_N: Tensor) -> list[bytes]:
        # Image, labels and mask determine the input, and are far smaller than the pixels of every row.
        examples = rows.example_R[chosen].tolist()
        prefixes = self._digest_examples(rows, set(examples))
        masks = rows.present_RU[chosen].numpy()
        return [prefixes[example] + digest_arrays([mask]) for example, mask in zip(examples, masks, strict=True)]

    def _digest_examples(self, rows: Rows, examples: Iterable[int]) -> dict[int, bytes]:
        """Return a digest of image and labels of each of these examples."""
        return {example: self._digest_example(rows, example) for example in examples}

    def _digest_example(self, rows: Rows, example: int) -> bytes:
        return self.digests[example] + digest_arrays([rows.labels_EX[example].numpy()])

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        example_N = rows.example_R[chosen]
        tensors = select_rows(self.batch.tensors, example_N)
        is_kept = self._kept_pixels(rows, chosen)
        tensors["pixel_values"] = torch.where(is_kept, tensors["pixel_values"], self._backgrounds(example_N))
        return tensors

    def _kept_pixels(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return which pixels of some rows stay (N,1,P,Q), the same ones in all channels."""
        keep_NX = rows.keep(chosen, self.pixels_ECPQ.device)
        return keep_NX.reshape(len(chosen), 1, *self.pixels_ECPQ.shape[-2:])

    def _backgrounds(self, example_N: Tensor) -> Tensor:
        """Return the background of each row's image."""
        # Computed once per image, not once per row.
        examples, inverse_N = torch.unique(example_N, return_inverse=True)
        return _background(self.model, self.pixels_ECPQ[examples], self.replacement)[inverse_N]

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
    if not _normalises(model.processor):
        return pixels_ECPQ.new_zeros(1, pixels_ECPQ.shape[1], 1, 1)
    return _normalised_black(model.processor, pixels_ECPQ).reshape(1, -1, 1, 1)


def _normalised_black(processor: Any, pixels_ECPQ: Tensor) -> Tensor:
    """Return (0 − mean) / deviation of each channel (C): the network reads normalised pixels."""
    mean_C = pixels_ECPQ.new_tensor(processor.image_mean)
    deviation_C = pixels_ECPQ.new_tensor(processor.image_std)
    return -(mean_C / deviation_C)


def _normalises(processor: Any) -> bool:
    """Return whether an image processor shifts and scales pixels; None, for a model without one, does not."""
    # Processors without the option normalise.
    return _has_statistics(processor) and bool(getattr(processor, "do_normalize", True))


def _has_statistics(processor: Any) -> bool:
    return all(getattr(processor, name, None) is not None for name in ("image_mean", "image_std"))


def blur(pixels_ECPQ: Tensor) -> Tensor:
    """Blur with a Gaussian whose deviation is a sixteenth of the image's shorter side."""
    side = min(pixels_ECPQ.shape[-2:])
    reach = _blur_reach(side)
    padded = F.pad(pixels_ECPQ, (reach, reach, reach, reach), mode="replicate")
    return _convolve(padded, _gaussian(pixels_ECPQ, side / 16, reach))


def _blur_reach(side: int) -> int:
    # Three deviations hold 99.7 % of a Gaussian; replicated padding cannot reach further than the image.
    return min(int(3 * side / 16) + 1, side - 1)


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
