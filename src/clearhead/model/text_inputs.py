"""Encode texts and pairs of texts with the model's tokenizer."""

from collections.abc import Sequence
from typing import Any

from clearhead.errors import Argument, BadInput, BadOption, TooLong
from clearhead.model.batches import Encoded, Item
from clearhead.model.model import Model, max_tokens

Text = str | tuple[str, str]
OVERFLOW_CHOICES = ("error", "truncate", "windows")
OVERFLOW_ADVICE = (
    " Use ",
    Argument("overflow", "truncate"),
    " to explain the beginning, or ",
    Argument("overflow", "windows"),
    " to explain overlapping windows and stitch them together.",
)
# What is kept of a tokenizer's result: some return more than the network takes.
NETWORK_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def encode_text(model: Model, text: Text, overflow: str, *, add_special_tokens: bool = True) -> Encoded:
    """Tokenise a text or pair; `overflow` is what to do with too many tokens (`OVERFLOW_CHOICES`)."""
    _validate_text(text)
    values = _tokenise(model, text, overflow, add_special_tokens)
    if overflow != "windows":
        validate_length(model, len(values["input_ids"]))
    item = _make_item(model, text, values)
    if all(item.special):
        raise BadInput(f"The tokenizer finds no token in {text!r}: there is nothing to explain.")
    kept = {name: list(values[name]) for name in values if name in NETWORK_INPUTS}
    return Encoded(item, kept)


def validate_overflow(overflow: str) -> None:
    """Raise BadOption unless `overflow` is one of `OVERFLOW_CHOICES`."""
    if overflow not in OVERFLOW_CHOICES:
        raise BadOption(Argument("overflow", overflow), f" is not a choice. Use one of {', '.join(OVERFLOW_CHOICES)}.")


def validate_length(model: Model, length: int, advice: Sequence[str | Argument] = OVERFLOW_ADVICE) -> None:
    """Raise TooLong if the model takes fewer tokens; `advice` ends the message."""
    limit = max_tokens(model)
    if limit is not None and length > limit:
        raise TooLong(f"The input has {length} tokens, but {model.name} takes at most {limit}.", *advice)


def _validate_text(text: Text) -> None:
    segments = _split_pair(text)
    if not all(segment.strip() for segment in segments):
        raise BadInput("The text is empty: there is nothing to explain.")
    try:
        "".join(segments).encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes that were not UTF-8 as lone surrogates, which tokenizers cannot read.
        raise BadInput(f"Invalid UTF-8 at character {error.start + 1} (lone surrogate).") from error


def _split_pair(text: Text) -> tuple[str, ...]:
    if isinstance(text, tuple):
        return text
    return (text,)


def _tokenise(model: Model, text: Text, overflow: str, add_special_tokens: bool) -> Any:
    validate_overflow(overflow)
    limit = max_tokens(model)
    truncation: dict[str, Any] = {"truncation": False}
    if overflow == "truncate" and limit:
        truncation = {"truncation": True, "max_length": limit}
    return model.processor(
        *_split_pair(text),
        add_special_tokens=add_special_tokens,
        return_special_tokens_mask=True,
        # Slow tokenizers, written in Python, do not know where a token comes from.
        return_offsets_mapping=bool(getattr(model.processor, "is_fast", False)),
        # The length is validated afterwards: no warning about it.
        verbose=False,
        **truncation,
    )


def _make_item(model: Model, text: Text, values: Any) -> Item:
    tokens = tuple(model.processor.convert_ids_to_tokens(values["input_ids"]))
    special = tuple(bool(flag) for flag in values["special_tokens_mask"])
    offsets = None
    if "offset_mapping" in values:
        offsets = _convert_offsets(text, values.sequence_ids(), values["offset_mapping"])
    return Item(tokens, special, text, offsets)


def _convert_offsets(
    text: Text, segments: Sequence[int | None], spans: Sequence[tuple[int, int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the characters of each token: (start, end), or (segment, start, end) in a pair."""
    offsets: list[tuple[int, ...]] = []
    for segment, (start, end) in zip(segments, spans, strict=True):
        # Special tokens belong to no segment; their span is empty.
        if isinstance(text, tuple):
            index = segment or 0
            offsets.append((index, _skip_spaces(text[index], start, end), end))
        else:
            offsets.append((_skip_spaces(text, start, end), end))
    return tuple(offsets)


def _skip_spaces(text: str, start: int, end: int) -> int:
    """Return the start of a token without the leading spaces that byte-level tokenizers count to it."""
    while start < end and text[start].isspace():
        start += 1
    return start
