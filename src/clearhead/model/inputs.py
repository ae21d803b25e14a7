"""Encode inputs of any kind (texts, pairs, images, tensors) into batches for the network."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.errors import BadInput, TooLong
from clearhead.model.batches import (
    Box,
    Encoded,
    EncodedList,
    EncodedRows,
    Inputs,
    Item,
    collate,
    longest_text,
    move_to_model,
)
from clearhead.model.focused_inputs import focus_encoded, split_focus
from clearhead.model.image_inputs import encode_image, open_image
from clearhead.model.joined_inputs import encode_joined
from clearhead.model.model import Model
from clearhead.model.tensor_inputs import from_tensors
from clearhead.model.text_columns import TextEncoder, go_on
from clearhead.model.text_inputs import encode_text, validate_overflow

__all__ = [
    "Box",
    "Encoded",
    "EncodedList",
    "EncodedRows",
    "Inputs",
    "Item",
    "as_input_list",
    "as_inputs",
    "collate",
    "encode",
    "encode_all",
    "encode_chunks",
    "from_tensors",
    "is_single",
    "join_words",
    "longest_text",
    "open_image",
    "validate_overflow",
]

MAX_THREADS = 8
MAX_NAMED_WORDS = 5
IMAGE_BATCH_AXES = 4
CHARACTERS_PER_CHUNK = 2**20
"""Two full batches of a GPU, at four characters a token: each chunk is encoded while another is explained."""
LEAST_CHARACTERS = 128
"""As many as a short text counts, so that a chunk has no more than some thousands of them."""
IMAGES_PER_CHUNK = 512
FIRST_CHUNK_SHARE = 16
"""How much smaller than the others the first chunk is: a GPU waits for it."""


def as_inputs(model: Model, inputs: Any) -> Inputs:
    """Encode anything that can be explained as one batch."""
    _refuse_pairs(model)
    if isinstance(inputs, Inputs):
        return move_to_model(inputs, model)
    if model.reads_jointly:
        return encode_joined(model, inputs, "error")
    if isinstance(inputs, Mapping):
        return from_tensors(model, inputs)
    return collate(model, [encode(model, source) for source in as_input_list(inputs)])


def as_input_list(inputs: Any) -> list[Any]:
    """Return one input or a sequence of inputs as a list; raise BadInput if it is empty."""
    if is_single(inputs):
        return [inputs]
    if isinstance(inputs, np.ndarray) and inputs.ndim == IMAGE_BATCH_AXES:
        return list(inputs)
    _validate_list(inputs)
    return list(inputs)


def _validate_list(inputs: Any) -> None:
    if not isinstance(inputs, Sequence) or isinstance(inputs, bytes):
        raise BadInput(
            f"A {type(inputs).__name__} cannot be explained: give a text, a pair of texts, an image, a path to one, "
            "a dict of tensors, or a list of these."
        )
    if not inputs:
        raise BadInput("The list of inputs is empty: there is nothing to explain.")


def is_single(inputs: Any) -> bool:
    """Return whether this is one input rather than a list or a batch of tensors."""
    # Arrays of one axis are columns, of two or three images, of four several images.
    if isinstance(inputs, np.ndarray):
        return inputs.ndim != IMAGE_BATCH_AXES
    return isinstance(inputs, str | Path | Image.Image) or _is_pair(inputs)


def join_words(inputs: Any) -> str | list[str]:
    """Return the text of a list of words, or the texts of a list of such lists; words are joined by blanks."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes) or not inputs:
        raise BadInput(f"is_split_into_words=True takes a list of words, or a list of such lists, not {inputs!r:.60}.")
    if isinstance(inputs[0], str):
        return _join_words(inputs)
    return list(map(_join_words, inputs))


def _join_words(words: Sequence[Any]) -> str:
    for word in words:
        # A blank inside a word would make two of it.
        if not _is_word(word):
            raise BadInput(f"{word!r} is no word: give texts without blanks, which are not empty.")
    return " ".join(words)


def _is_word(word: Any) -> bool:
    return isinstance(word, str) and len(word.split()) == 1


def encode(model: Model, source: Any, *, overflow: str = "error") -> Encoded:
    """Tokenise a text or pair, or prepare an image; with `overflow="windows"` a text of any length."""
    _refuse_pairs(model)
    _require_processor(model)
    raw, focus = split_focus(source)
    return focus_encoded(model, _encode_raw(model, raw, overflow), focus)


def _encode_raw(model: Model, source: Any, overflow: str) -> Encoded:
    if model.takes_images:
        return encode_image(model, source)
    _require_text(model, source)
    return encode_text(model, source, overflow)


def _require_text(model: Model, source: Any) -> None:
    if not isinstance(source, str) and not _is_pair(source):
        raise BadInput(f"{model.name} takes text, not {_describe_type(source)}.{_advise_on(source)}")


def _refuse_pairs(model: Model) -> None:
    # Its towers have inputs of their own; only `explain` and `compare` join them.
    if model.reads_pairs:
        raise BadInput(
            f"{model.name} compares two inputs, which only explain and compare take: use clearhead.zero_shot(model, "
            "texts) to make it a classifier of pictures."
        )


def _require_processor(model: Model) -> None:
    # Allowed when loading: such a model explains tensors.
    if model.processor is None:
        raise BadInput(
            f"{model.name} was loaded without a tokenizer or image processor: give a dict of tensors, "
            "or load it with one."
        )


def encode_all(model: Model, inputs: Sequence[Any], *, overflow: str = "error") -> EncodedRows:
    """Encode every input in order: texts many at a time, images in several threads."""
    _refuse_pairs(model)
    return _encode_together(TextEncoder(model, overflow), inputs)


def encode_chunks(
    model: Model, inputs: Sequence[Any], *, overflow: str = "error", pause: Callable[[], None] = go_on
) -> Iterator[tuple[int, EncodedRows]]:
    """Yield the index of the first input and the encoded inputs of every chunk: on a GPU, which works meanwhile, many.

    Inputs of similar length within a chunk can share batches. On a CPU there is one chunk, so that an invalid input is
    reported before anything is computed. `pause` is called before every few texts.
    """
    _refuse_pairs(model)
    encoder = TextEncoder(model, overflow, pause)
    for start, end in _cut_chunks(model, inputs):
        yield start, _encode_together(encoder, inputs[start:end], start)


def _cut_chunks(model: Model, inputs: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield where chunks begin and end."""
    if model.device.type != "cuda":
        return iter([(0, len(inputs))])
    if model.takes_images:
        return cut_growing([1] * len(inputs), IMAGES_PER_CHUNK)
    return cut_growing(list(map(_count_characters, inputs)), CHARACTERS_PER_CHUNK)


def _count_characters(source: Any) -> int:
    """Return the characters of a text, or of both texts of a pair, but not less than a chunk has room for."""
    raw, _ = split_focus(source)
    texts = raw if _is_pair(raw) else [raw]
    return max(LEAST_CHARACTERS, sum(len(text) for text in texts if isinstance(text, str)))


def cut_growing(sizes: Sequence[int], largest: int) -> Iterator[tuple[int, int]]:
    """Yield where parts of a sequence begin and end, each twice as large as the one before, up to the largest."""
    before = np.concatenate([[0], np.cumsum(sizes)])
    size = max(1, largest // FIRST_CHUNK_SHARE)
    start = 0
    while start < len(sizes):
        # At least one item, however large.
        end = max(start + 1, int(np.searchsorted(before, before[start] + size, side="right")) - 1)
        yield start, end
        start = end
        # Encoding is faster than the passes, so that the next chunk is ready when this one is explained.
        size = min(2 * size, largest)


def _encode_together(encoder: TextEncoder, inputs: Sequence[Any], start: int = 0) -> EncodedRows:
    """Encode inputs, of which the first has the number `start` among all of a call."""
    columns = encoder.encode(inputs)
    if columns is not None:
        return columns
    model = encoder.model
    # One by one, the first invalid input raises its error; a single text needs no number.
    prepare = partial(_encode_numbered, model, encoder.overflow, has_number=start + len(inputs) > 1)
    numbers = range(start + 1, start + 1 + len(inputs))
    if not _can_use_threads(model, inputs):
        return EncodedList(list(map(prepare, inputs, numbers)))
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        return EncodedList(list(pool.map(prepare, inputs, numbers)))


def _encode_numbered(model: Model, overflow: str, source: Any, number: int, *, has_number: bool) -> Encoded:
    raw, _ = split_focus(source)
    if has_number:
        _refuse_empty(raw, number)
    try:
        return encode(model, source, overflow=overflow)
    except TooLong as error:
        raise (_name_text(error, raw) if has_number else error) from None


def _refuse_empty(source: Any, number: int) -> None:
    """Raise BadInput with the number of an input that is an empty text, or a pair with one."""
    texts = source if _is_pair(source) else [source]
    if any(isinstance(text, str) and not text.strip() for text in texts):
        name = "A text of input" if _is_pair(source) else "Input"
        raise BadInput(f"{name} {number} is empty: there is nothing to explain. Leave it out.")


def _name_text(error: TooLong, source: Any) -> TooLong:
    """Return the error with the beginning of the text: among many inputs, it tells which one is meant."""
    if _is_pair(source):
        source = " ".join(source)
    fact = error.fact.replace("The input", f"The input '{_clip(source)} …'", 1)
    return TooLong(fact, *error.args[1:])


def _clip(text: str) -> str:
    return " ".join(text.split()[:MAX_NAMED_WORDS])


def _can_use_threads(model: Model, inputs: Sequence[Any]) -> bool:
    # Threads help with images only, which Pillow and torch process without the GIL.
    return model.takes_images and len(inputs) > 1 and not _has_duplicates(inputs)


def _has_duplicates(inputs: Sequence[Any]) -> bool:
    # Pillow loads an image object lazily and not thread-safely, so threads must not share one.
    return len(set(map(id, inputs))) < len(inputs)


def _is_pair(source: Any) -> bool:
    return isinstance(source, tuple) and len(source) == 2 and all(isinstance(text, str) for text in source)


def _are_words(source: Any) -> bool:
    return isinstance(source, list) and all(isinstance(word, str) for word in source)


def _advise_on(source: Any) -> str:
    if _are_words(source):
        return " For texts that are split into words, give is_split_into_words=True."
    if isinstance(source, float) or source is None:
        return " Leave out missing values."
    return ""


def _describe_type(source: Any) -> str:
    if isinstance(source, Image.Image):
        return "an image"
    if isinstance(source, Path):
        return "a path"
    return type(source).__name__
