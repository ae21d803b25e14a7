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
FLOAT_TENSORS = ("inputs_embeds", "pixel_values")
# What torch looks up in an embedding table.
INDEX_DTYPES = (torch.int64, torch.int32)
# Matches the errors of networks that take images of one size only.
SIZE_ERROR = re.compile(r"\b(size|shape)", re.IGNORECASE)


def validate_tensors(model: Model, tensors: Mapping[str, Any]) -> str:
    """Validate names, dtypes and shapes; return the name of the main tensor."""
    main = _find_main(model, tensors)
    for name, value in tensors.items():
        _validate_tensor(name, value)
    # First, because the shapes of the others are compared with it.
    _validate_main_shape(model, main, tuple(tensors[main].shape))
    _validate_shapes(main, tensors)
    return main


def _validate_shapes(main: str, tensors: Mapping[str, Tensor]) -> None:
    main_shape = tuple(tensors[main].shape)
    for name, tensor in tensors.items():
        _validate_shape(name, tuple(tensor.shape), main, main_shape)


def validate_indices(model: Model, name: str, values: Array) -> None:
    """Raise BadInput if an index of `INDEX_TENSORS` is outside its embedding table."""
    allowed = _allowed_indices(model, name)
    if not allowed:
        return
    # An initial value, because a tensor without tokens has no minimum.
    for index in (values.min(initial=0), values.max(initial=0)):
        # A Python integer: a range compares others with each of its numbers.
        if int(index) not in allowed:
            raise _invalid_index(model, name, index, allowed)


def _allowed_indices(model: Model, name: str) -> range:
    """Return the indices of an embedding table; an empty range if its size is unknown."""
    rows = _count_table_rows(model, name) or 0
    offset = _lookup_offset(model, name)
    return range(-offset, rows - offset)


@contextmanager
def explain_size_errors(model: Model, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Re-raise shape errors of the network as BadInput on an image-size mismatch."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        message = _describe_size_mismatch(model, tensors)
        if message is None or not _is_size_error(error):
            raise
        raise BadInput(message) from error


def _is_size_error(error: Exception) -> bool:
    # Messages of Clearhead and of a full GPU may speak of sizes too, but are no news about the image.
    if isinstance(error, ClearheadError | torch.OutOfMemoryError):
        return False
    return SIZE_ERROR.search(str(error)) is not None


def _lookup_offset(model: Model, name: str) -> int:
    """Return what the network adds to an index before it looks it up: OPT shifts its positions."""
    if name != "position_ids":
        return 0
    offsets = [getattr(table, "offset", 0) for table in model.position_tables]
    return min(offsets, default=0)


def _invalid_index(model: Model, name: str, index: int, allowed: range) -> BadInput:
    return BadInput(f"Invalid {name} {index}: {model.name} has {allowed[0]} … {allowed[-1]}.")


def _find_main(model: Model, tensors: Mapping[str, Any]) -> str:
    names = [name for name in MAIN_TENSORS if name in tensors]
    _require_one_main(tensors, names)
    _validate_modality(model, names[0])
    return names[0]


def _require_one_main(tensors: Mapping[str, Any], names: list[str]) -> None:
    if len(names) != 1:
        raise _not_one_main(names, tensors)


def _not_one_main(names: list[str], tensors: Mapping[str, Any]) -> BadInput:
    if not names:
        return _missing_main(tensors)
    return BadInput(f"Both {' and '.join(names)} were given: leave one of them out.")


def _missing_main(tensors: Mapping[str, Any]) -> BadInput:
    *first, last = MAIN_TENSORS
    return BadInput(f"The tensors {sorted(map(str, tensors))} hold none of {', '.join(first)} or {last}.")


def _validate_modality(model: Model, main: str) -> None:
    is_image = main == "pixel_values"
    if is_image != model.takes_images:
        raise _wrong_modality(model, main)


def _wrong_modality(model: Model, main: str) -> BadInput:
    if model.takes_images:
        return BadInput(f"{model.name} takes images: give pixel_values, not {main}.")
    return BadInput(f"{model.name} takes text: give input_ids, not {main}.")


def _validate_tensor(name: str, value: Any) -> None:
    _require_tensor(name, value)
    _refuse_sparse(name, value)
    _validate_dtype(name, value)


def _refuse_sparse(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise BadInput(f"'{name}' is sparse: make it dense with .to_dense().")


def _require_tensor(name: str, value: Any) -> None:
    # Tokenizers return lists unless they are asked for tensors.
    if not isinstance(value, Tensor):
        raise BadInput(f"'{name}' is a {type(value).__name__}, not a tensor: tokenise with return_tensors='pt'.")


def _validate_dtype(name: str, tensor: Tensor) -> None:
    _require_integers(name, tensor)
    _require_floats(name, tensor)


def _require_integers(name: str, tensor: Tensor) -> None:
    if name in INDEX_TENSORS and tensor.dtype not in INDEX_DTYPES:
        raise _wrong_dtype(name, tensor, "integers are needed: int64 or int32")


def _require_floats(name: str, tensor: Tensor) -> None:
    if name in FLOAT_TENSORS and not tensor.is_floating_point():
        raise _wrong_dtype(name, tensor, "a floating-point type is needed")


def _wrong_dtype(name: str, tensor: Tensor, need: str) -> BadInput:
    return BadInput(f"'{name}' has dtype {tensor.dtype}, but {need}.")


def _validate_main_shape(model: Model, main: str, shape: tuple[int, ...]) -> None:
    expected = _expected_shape(model, main)
    if not _fits_shape(shape, expected):
        raise BadInput(f"'{main}' has shape {shape}, but {model.name} takes ({_format_axes(expected)}).")


def _format_axes(axes: tuple[int | str, ...]) -> str:
    return ", ".join(map(str, axes))


def _fits_shape(shape: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    if len(shape) != len(expected):
        return False
    return all(map(_fits_size, shape, expected))


def _fits_size(size: int, expected: int | str) -> bool:
    # A name stands for an axis of any size.
    return isinstance(expected, str) or size == expected


def _expected_shape(model: Model, main: str) -> tuple[int | str, ...]:
    """Return the size of each axis of the main tensor, or the axis name where any size is accepted."""
    if main == "pixel_values":
        return ("inputs", _find_setting(model, "num_channels") or "channels", "rows", "columns")
    if main == "input_ids":
        return ("inputs", "tokens")
    return ("inputs", "tokens", _embedding_width(model) or "width")


def _embedding_width(model: Model) -> int | None:
    embedding = input_embedding(model.network)
    if embedding is None:
        return None
    return embedding.shape[1]


def _validate_shape(name: str, shape: tuple[int, ...], main: str, main_shape: tuple[int, ...]) -> None:
    fits = _has_same_rows(shape, main_shape)
    if main != "pixel_values" and _is_per_token(name):
        fits = fits and _token_shape(name, shape) == main_shape[:2]
    if not fits:
        raise BadInput(f"'{name}' has shape {shape}, which does not match {main} {main_shape}.")


def _has_same_rows(shape: tuple[int, ...], main_shape: tuple[int, ...]) -> bool:
    # Slices, because a tensor may have no axis at all.
    return shape[:1] == main_shape[:1] and shape[0] > 0


def _is_per_token(name: str) -> bool:
    return name in INDEX_TENSORS or name == "attention_mask"


def _token_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    # Tapas has several token types for each token: a third axis.
    if name == "token_type_ids":
        return shape[:2]
    return shape


def _count_table_rows(model: Model, name: str) -> int | None:
    """Return the number of rows of the embedding table of an index tensor; None if it is unknown."""
    if name == "token_type_ids":
        return getattr(model.config, "type_vocab_size", None)
    if name == "position_ids":
        return _count_shortest_table(model)
    return _count_vocabulary(model)


def _count_shortest_table(model: Model) -> int | None:
    return min((table.num_embeddings for table in model.position_tables), default=None)


def _count_vocabulary(model: Model) -> int | None:
    embedding = input_embedding(model.network)
    if embedding is None:
        return None
    return len(embedding)


def _describe_size_mismatch(model: Model, tensors: Mapping[str, Tensor]) -> str | None:
    """Return a message if the images differ from the size in the model's config, else None."""
    if "pixel_values" not in tensors:
        return None
    expected = _expected_image_size(model)
    actual = tuple(tensors["pixel_values"].shape[-2:])
    if len(expected) != 2 or actual == expected:
        return None
    return _size_mismatch(model, expected, actual)


def _size_mismatch(model: Model, expected: tuple[int, ...], actual: tuple[int, ...]) -> str:
    return f"{model.name} takes images of {_format_size(expected)} pixels, not {_format_size(actual)}: resize them."


def _format_size(size: tuple[int, ...]) -> str:
    return " × ".join(map(str, size))


def _expected_image_size(model: Model) -> tuple[int, ...]:
    """Return (rows, columns) of the config; empty if it states no size."""
    size = _find_setting(model, "image_size")
    # One number stands for a square.
    if isinstance(size, int):
        return (size, size)
    return tuple(size or ())


def _find_setting(model: Model, name: str) -> Any:
    """Return a setting of the config or of its vision config; None if neither has it."""
    for config in (model.config, getattr(model.config, "vision_config", None)):
        setting = getattr(config, name, None)
        if setting is not None:
            return setting
    return None
