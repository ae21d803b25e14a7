"""Functions from texts or images to probabilities as networks, of which only the outputs are known."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from clearhead.arrays import Array
from clearhead.errors import BadOption, UnsupportedModel, first_line
from clearhead.model.custom_network import number_labels, sums_to_one
from clearhead.model.word_tokenizer import WordTokenizer

TEXTS = "texts"
IMAGES = "images"
READS = (TEXTS, IMAGES)
PROBE_TEXT = "text"
PROBE_SIZE = 64
# Far enough from 0 and 1 that logarithms are finite, and much closer than a function's float32 can be.
SMALLEST = 1e-12
SUM_TOLERANCE = 1e-3


class FunctionNetwork(nn.Module):
    """A function from a list of texts, or an array of images, to probabilities (n × classes, or n).

    Its logits are the logarithms of probabilities; values that are none are those of a regression.
    """

    config: Any

    def __init__(self, function: Callable[..., Any], processor: Any) -> None:
        super().__init__()
        self.function = function
        self.processor = processor
        # Networks have weights, by which their device and precision are known.
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def __deepcopy__(self, memo: dict[int, Any]) -> "FunctionNetwork":
        # The function may hold a whole model: a copy in another precision would not change what it returns.
        return self

    def call(self, inputs: Any) -> Tensor:
        """Return what the function returns for inputs, one row for each, in float64."""
        values = _as_rows(self.function(inputs))
        _require_rows(self.function, values, len(inputs))
        return values

    def convert(self, values: Tensor) -> Tensor:
        """Return logits from what the function returned."""
        problem = self.config.problem_type
        if problem == "regression":
            return values
        if problem == "multi_label_classification":
            return values.clamp(SMALLEST, 1 - SMALLEST).logit()
        return self._complete(values).clamp(min=SMALLEST).log()

    def _complete(self, probabilities: Tensor) -> Tensor:
        """Add the probability of the first of two classes if the function returns that of the second alone."""
        if probabilities.shape[1] == 1:
            return torch.cat([1 - probabilities, probabilities], 1)
        return probabilities


class TextFunction(FunctionNetwork):
    """A function that reads a list of texts, or of pairs of texts."""

    main_input_name = "input_ids"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows = zip(input_ids.cpu(), attention_mask.cpu().bool(), strict=True)
        texts = [self._decode(ids_T[real_T].tolist()) for ids_T, real_T in rows]
        return self.convert(self.call(texts)).to(input_ids.device)

    def _decode(self, ids: list[int]) -> Any:
        if isinstance(self.processor, WordTokenizer):
            return self.processor.decode(ids)
        return self.processor.decode(self._drop_special(ids))

    def _drop_special(self, ids: list[int]) -> list[int]:
        special = self._list_special()
        return [index for index in ids if index not in special]

    def _list_special(self) -> set[int]:
        # Masks stay: they stand for words that are hidden.
        return set(self.processor.all_special_ids) - {self.processor.mask_token_id}


class ImageFunction(FunctionNetwork):
    """A function that reads an array of images, n × height × width × 3, with colours from 0 to 255."""

    main_input_name = "pixel_values"

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits = self.convert(self.call(_as_colours(pixel_values)))
        return logits.to(pixel_values.device)


def _as_colours(pixels_NCPQ: Tensor) -> Array:
    """Return images as people store them: colours last, from 0 to 255."""
    colours = (pixels_NCPQ * 255).round().clamp(0, 255).to(torch.uint8)
    images: Array = colours.permute(0, 2, 3, 1).cpu().numpy()
    return images


def _require_rows(function: Any, values: Tensor, count: int) -> None:
    if len(values) != count:
        raise UnsupportedModel(
            f"{name_function(function)} returned values of shape {tuple(values.shape)} for {count} inputs: return a "
            "row of probabilities per input, or a number."
        )


class PixelProcessor:
    """Images as they are, with colours from 0 to 1, in place of an image processor."""

    def __call__(self, images: Image.Image, **options: Any) -> dict[str, Tensor]:
        pixels = torch.from_numpy(np.array(images.convert("RGB")))
        return {"pixel_values": pixels.permute(2, 0, 1)[None].double() / 255}


def wrap_function(
    function: Callable[..., Any], processor: Any, reads: str, labels: Sequence[str] | None
) -> tuple[FunctionNetwork, Any]:
    """Return a network around a function, and what prepares its inputs; the function is called once."""
    _validate_reads(reads)
    network = _make_network(function, processor, reads)
    values = _probe(network, reads)
    network.config = _describe_values(values, labels)
    _validate_range(network, values)
    return network.eval(), network.processor


def _validate_reads(reads: str) -> None:
    if reads not in READS:
        raise BadOption(f"Invalid reads={reads!r}: a function reads {TEXTS!r} or {IMAGES!r}.")


def _make_network(function: Callable[..., Any], processor: Any, reads: str) -> FunctionNetwork:
    if reads == IMAGES:
        return ImageFunction(function, processor or PixelProcessor())
    return TextFunction(function, processor or WordTokenizer())


def name_function(function: Any) -> str:
    """Return the name of a function, or the class of an object that can be called."""
    return getattr(function, "__name__", type(function).__name__)


def _probe(network: FunctionNetwork, reads: str) -> Tensor:
    """Return what a function returns for a small input."""
    try:
        return network.call(_make_probe(reads))
    except UnsupportedModel:
        raise
    # Whatever the user's function raises.
    except Exception as error:
        raise _probe_failed(network.function, reads, error) from error


def _probe_failed(function: Any, reads: str, error: Exception) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name_function(function)} failed when it was tried with {reads}: {first_line(error).rstrip('.')}. A function "
        f"takes a list of texts, or with reads={IMAGES!r} an array of images (n × height × width × 3), and returns "
        "probabilities (n × classes)."
    )


def _make_probe(reads: str) -> Any:
    # Grey: in the middle of the range.
    if reads == IMAGES:
        return np.full((1, PROBE_SIZE, PROBE_SIZE, 3), 127, np.uint8)
    return [PROBE_TEXT]


def _as_rows(values: Any) -> Tensor:
    """Return the values of a function as a matrix; one number per input is a column."""
    rows = _as_float64(values)
    if rows.dim() == 1:
        return rows[:, None]
    return rows.reshape(len(rows), -1)


def _as_float64(values: Any) -> Tensor:
    # Functions return arrays, lists, or tensors on any device.
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    return torch.from_numpy(np.array(values, dtype=np.float64))


def _describe_values(values: Tensor, labels: Sequence[str] | None) -> SimpleNamespace:
    """Return a config for a function with this output: how many classes there are, and what they exclude."""
    count = _count_classes(values.shape[1], labels)
    problem = _find_problem(values, count)
    return SimpleNamespace(id2label=number_labels(count), problem_type=problem, pad_token_id=0)


def _count_classes(columns: int, labels: Sequence[str] | None) -> int:
    # The probability of the second of two classes.
    if columns == 1 and labels is not None and len(labels) == 2:
        return 2
    return columns


def _find_problem(values: Tensor, classes: int) -> str:
    if classes == 1:
        return "regression"
    if values.shape[1] == 1 or sums_to_one(values[0], SUM_TOLERANCE):
        return "single_label_classification"
    return "multi_label_classification"


def _validate_range(network: FunctionNetwork, values: Tensor) -> None:
    if network.config.problem_type != "regression" and not _are_shares(values):
        raise _no_probability(network.function, values.flatten()[0])


def _no_probability(function: Any, value: Tensor) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name_function(function)} returned {value:.4g}, which is no probability: return values from 0 to 1 for each "
        "class (apply softmax), or a single number per input."
    )


def _are_shares(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())
