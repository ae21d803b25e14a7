"""Tensors that a user hands in: refused where the network could not take them, with what to do."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput, ClearheadError
from clearhead.model.model import Model, input_embedding

SIZE = re.compile(r"\b(size|shape)", re.IGNORECASE)
"""What networks complain of that take pictures of one size alone."""
MAIN = ("input_ids", "inputs_embeds", "pixel_values")
WHOLE = ("input_ids", "token_type_ids", "position_ids")
"""Whole numbers, one per token, that are looked up in a table."""


def validate_tensors(model: Model, tensors: Mapping[str, Any]) -> str:
    """The name of the one tensor that is the input; the others go with it."""
    main = _main(model, tensors)
    for name, value in tensors.items():
        _check_tensor(name, value)
    _check_shapes(model, main, tensors)
    return main


def _main(model: Model, tensors: Mapping[str, Any]) -> str:
    given = [name for name in MAIN if name in tensors]
    if not given:
        raise BadInput(f"The tensors {sorted(map(str, tensors))} hold none of {', '.join(MAIN[:2])} or {MAIN[2]}.")
    if len(given) > 1:
        raise BadInput(f"Both {' and '.join(given)} were given: leave one of them out.")
    if model.takes_images != (given[0] == "pixel_values"):
        reads = "pictures: give pixel_values" if model.takes_images else "text: give input_ids"
        raise BadInput(f"{model.name} reads {reads}, not {given[0]}.")
    return given[0]


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise BadInput(f"'{name}' is a {type(value).__name__}, not a tensor: tokenise with return_tensors='pt'.")
    if value.layout != torch.strided:
        raise BadInput(f"'{name}' is sparse: make it dense with .to_dense().")
    if name in WHOLE and value.dtype not in (torch.int64, torch.int32):
        raise BadInput(f"'{name}' has dtype {value.dtype}, but integers are needed: int64 or int32.")
    if name in MAIN and name not in WHOLE and not value.is_floating_point():
        raise BadInput(f"'{name}' has dtype {value.dtype}, but a floating type is needed.")


def _check_shapes(model: Model, main: str, tensors: Mapping[str, Tensor]) -> None:
    shape, wanted = tuple(tensors[main].shape), _shape(model, main)
    pairs = zip(wanted, shape, strict=False)
    if len(shape) != len(wanted) or any(isinstance(one, int) and one != size for one, size in pairs):
        raise BadInput(f"'{main}' has shape {shape}, but {model.name} takes ({', '.join(map(str, wanted))}).")
    for name, value in tensors.items():
        found = tuple(value.shape)
        if found[:1] != shape[:1] or found[0] == 0:
            raise BadInput(f"'{name}' has shape {found}, which does not go with {main} {shape}.")
        own = found[:2] if name == "token_type_ids" else found  # Tapas has several types for each token
        if main != "pixel_values" and name in (*WHOLE, "attention_mask") and own != shape[:2]:
            raise BadInput(f"{name} has shape {found}, but {main} {shape}.")


def _shape(model: Model, main: str) -> tuple[int | str, ...]:
    """What the axes of an input are, or how long they must be."""
    if main == "pixel_values":
        return ("inputs", _described(model, "num_channels") or "colours", "rows", "columns")
    words = input_embedding(model.network)
    width = () if main == "input_ids" else ("width" if words is None else words.shape[1],)
    return ("inputs", "tokens", *width)


def _described(model: Model, name: str) -> Any:
    """What the description of the network, or of its part that sees, says; None where it says nothing."""
    parts = (model.config, getattr(model.config, "vision_config", None))
    return next((found for part in parts if (found := getattr(part, name, None)) is not None), None)


def check_values(model: Model, name: str, values: Any) -> None:
    """Refuses numbers that the table they are looked up in does not have."""
    words, places = input_embedding(model.network), model.position_tables
    before = min((getattr(one, "offset", 0) for one in places), default=0) if name == "position_ids" else 0
    sizes = {
        "input_ids": None if words is None else len(words),
        "token_type_ids": getattr(model.config, "type_vocab_size", None),
        "position_ids": min((one.num_embeddings for one in places), default=None),
    }
    size, low, high = sizes[name], values.min(initial=0) + before, values.max(initial=0) + before
    if size and not 0 <= low <= high < size:
        found, known = (low if low < 0 else high) - before, f"{-before} … {size - before - 1}"
        raise BadInput(f"'{name}' holds {found}, but {model.name} knows {known}.")


@contextmanager
def explain_size_errors(model: Model, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, a network that fails on pictures of another size than it was made for is told to have that reason."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        size = _described(model, "image_size")
        wanted = (size, size) if isinstance(size, int) else tuple(size or ())
        found = tuple(tensors["pixel_values"].shape[-2:]) if "pixel_values" in tensors else wanted
        other = isinstance(error, ClearheadError | torch.OutOfMemoryError) or not SIZE.search(str(error))
        if other or len(wanted) != 2 or found == wanted:
            raise
        told = f"takes pictures of {wanted[0]} × {wanted[1]} pixels, not {found[0]} × {found[1]}"
        raise BadInput(f"{model.name} {told}: resize them.") from error
