"""Validate tensors that the user passes: names, dtypes, shapes and values."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import BadInput, ClearheadError
from clearhead.model.model import Model, input_embedding

MAIN_TENSORS = ("input_ids", "inputs_embeds", "pixel_values")
# Integer tensors with one index per token into an embedding table.
INDEX_TENSORS = ("input_ids", "token_type_ids", "position_ids")
# Matches the errors of networks that take images of one size only.
SIZE_ERROR = re.compile(r"\b(size|shape)", re.IGNORECASE)


def validate_tensors(model: Model, tensors: Mapping[str, Any]) -> str:
    """Validate names, dtypes and shapes; return the name of the main tensor."""
    main = _find_main(model, tensors)
    for name, value in tensors.items():
        _validate_tensor(name, value)
    _validate_main_shape(model, main, tuple(tensors[main].shape))
    for name, value in tensors.items():
        _validate_shape(name, tuple(value.shape), main, tuple(tensors[main].shape))
    return main


def validate_indices(model: Model, name: str, values: Array) -> None:
    """Raise BadInput if an index of `INDEX_TENSORS` is outside its embedding table."""
    offset = 0
    if name == "position_ids":
        # OPT adds an offset to the positions before it looks them up.
        offset = min((getattr(table, "offset", 0) for table in model.position_tables), default=0)
    rows = _count_table_rows(model, name)
    low = values.min(initial=0) + offset
    high = values.max(initial=0) + offset
    if not rows or 0 <= low <= high < rows:
        return
    invalid = high - offset
    if low < 0:
        invalid = low - offset
    raise BadInput(f"Invalid {name} {invalid}: {model.name} has {-offset} … {rows - offset - 1}.")


@contextmanager
def explain_size_errors(model: Model, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Re-raise shape errors of the network as BadInput on an image-size mismatch."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        message = _describe_size_mismatch(model, tensors)
        is_own_error = isinstance(error, ClearheadError | torch.OutOfMemoryError)
        if message is None or is_own_error or not SIZE_ERROR.search(str(error)):
            raise
        raise BadInput(message) from error


def _find_main(model: Model, tensors: Mapping[str, Any]) -> str:
    names = [name for name in MAIN_TENSORS if name in tensors]
    if not names:
        expected = f"{', '.join(MAIN_TENSORS[:-1])} or {MAIN_TENSORS[-1]}"
        raise BadInput(f"The tensors {sorted(map(str, tensors))} hold none of {expected}.")
    if len(names) > 1:
        raise BadInput(f"Both {' and '.join(names)} were given: leave one of them out.")
    main = names[0]
    if model.takes_images and main != "pixel_values":
        raise BadInput(f"{model.name} takes images: give pixel_values, not {main}.")
    if not model.takes_images and main == "pixel_values":
        raise BadInput(f"{model.name} takes text: give input_ids, not {main}.")
    return main


def _validate_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise BadInput(f"'{name}' is a {type(value).__name__}, not a tensor: tokenise with return_tensors='pt'.")
    if value.layout != torch.strided:
        raise BadInput(f"'{name}' is sparse: make it dense with .to_dense().")
    if name in INDEX_TENSORS and value.dtype not in (torch.int64, torch.int32):
        raise BadInput(f"'{name}' has dtype {value.dtype}, but integers are needed: int64 or int32.")
    if name in ("inputs_embeds", "pixel_values") and not value.is_floating_point():
        raise BadInput(f"'{name}' has dtype {value.dtype}, but a floating-point type is needed.")


def _validate_main_shape(model: Model, main: str, shape: tuple[int, ...]) -> None:
    expected = _expected_shape(model, main)
    fits = len(shape) == len(expected)
    for expected_size, size in zip(expected, shape, strict=False):
        if isinstance(expected_size, int) and expected_size != size:
            fits = False
    if not fits:
        raise BadInput(f"'{main}' has shape {shape}, but {model.name} takes ({', '.join(map(str, expected))}).")


def _expected_shape(model: Model, main: str) -> tuple[int | str, ...]:
    """Return the size of each axis of the main tensor, or the axis name where any size is accepted."""
    if main == "pixel_values":
        return ("inputs", _find_setting(model, "num_channels") or "channels", "rows", "columns")
    if main == "input_ids":
        return ("inputs", "tokens")
    embedding = input_embedding(model.network)
    if embedding is None:
        return ("inputs", "tokens", "width")
    return ("inputs", "tokens", embedding.shape[1])


def _validate_shape(name: str, shape: tuple[int, ...], main: str, main_shape: tuple[int, ...]) -> None:
    if shape[:1] != main_shape[:1] or shape[0] == 0:
        raise BadInput(f"'{name}' has shape {shape}, which does not match {main} {main_shape}.")
    is_per_token = name in INDEX_TENSORS or name == "attention_mask"
    if main == "pixel_values" or not is_per_token:
        return
    # Tapas has several token types for each token: a third axis.
    token_shape = shape[:2] if name == "token_type_ids" else shape
    if token_shape != main_shape[:2]:
        raise BadInput(f"'{name}' has shape {shape}, which does not match {main} {main_shape}.")


def _count_table_rows(model: Model, name: str) -> int | None:
    """Return the number of rows of the embedding table of an index tensor; None if it is unknown."""
    if name == "token_type_ids":
        return getattr(model.config, "type_vocab_size", None)
    if name == "position_ids":
        return min((table.num_embeddings for table in model.position_tables), default=None)
    embedding = input_embedding(model.network)
    if embedding is None:
        return None
    return len(embedding)


def _describe_size_mismatch(model: Model, tensors: Mapping[str, Tensor]) -> str | None:
    """Return a message if the images differ from the size in the model's config, else None."""
    if "pixel_values" not in tensors:
        return None
    size = _find_setting(model, "image_size")
    if isinstance(size, int):
        size = (size, size)
    expected = tuple(size or ())
    actual = tuple(tensors["pixel_values"].shape[-2:])
    if len(expected) != 2 or actual == expected:
        return None
    return (
        f"{model.name} takes images of {expected[0]} × {expected[1]} pixels, not {actual[0]} × {actual[1]}: "
        "resize them."
    )


def _find_setting(model: Model, name: str) -> Any:
    """Return a setting of the config or of its vision config; None if neither has it."""
    setting = getattr(model.config, name, None)
    if setting is None:
        vision_config = getattr(model.config, "vision_config", None)
        setting = getattr(vision_config, name, None)
    return setting
