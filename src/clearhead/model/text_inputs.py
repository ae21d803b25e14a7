"""Encode texts and pairs of texts with the model's tokenizer."""

from collections.abc import Sequence
from typing import Any

from clearhead.errors import Argument, BadInput, BadOption, TooLong
from clearhead.model.batches import Encoded, Item
from clearhead.model.model import Model, max_tokens
from clearhead.model.piece_offsets import place_pieces

Text = str | tuple[str, str]
Advice = Sequence[str | Argument]
OVERFLOW_CHOICES = ("error", "truncate", "windows")
TRUNCATE = Argument("overflow", "truncate")
OVERFLOW_ADVICE = (
    " Use ",
    TRUNCATE,
    " to explain the beginning, or ",
    Argument("overflow", "windows"),
    " to explain overlapping windows and stitch them together.",
)
# What has no windows.
PAIR_ADVICE = (" A pair of texts cannot be cut into windows: use ", TRUNCATE, ", or explain shorter texts.")
POSITION_ADVICE = (
    " Windows are not defined for what stands at one position (answer spans, labels of words, masked words): use ",
    TRUNCATE,
    ", or give the passage around it.",
)
JOINT_ADVICE = (
    " A text beside another input cannot be cut into windows: use ",
    TRUNCATE,
    ", or explain shorter texts.",
)
# A part of a prompt would have another answer.
PROMPT_ADVICE = (" Shorten the prompt.",)
# What is kept of a tokenizer's result: some return more than the network takes.
NETWORK_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def encode_text(
    model: Model, text: Text, overflow: str, *, add_special_tokens: bool = True, advice: Advice | None = None
) -> Encoded:
    """Tokenise a text or pair; `overflow` is what to do with too many tokens (`OVERFLOW_CHOICES`).

    `advice` ends the message about too many tokens; only a text without it has windows.
    """
    _validate_text(text)
    values = tokenise(model, _split_pair(text), overflow, add_special_tokens=add_special_tokens)
    if advice or not may_be_longer(model, text, overflow):
        validate_length(model, len(values["input_ids"]), advice or _advise_on_length(model, text))
    item = _make_item(model, text, values)
    _require_content(item)
    return Encoded(item, select_inputs(values))


def may_be_longer(model: Model, text: Text, overflow: str) -> bool:
    """Return whether a text may have more tokens than the model takes, because it is explained in windows."""
    return overflow == "windows" and _advise_on_length(model, text) is OVERFLOW_ADVICE


def _advise_on_length(model: Model, text: Text) -> Advice:
    if model.is_positional:
        return POSITION_ADVICE
    return OVERFLOW_ADVICE if isinstance(text, str) else PAIR_ADVICE


def select_inputs(values: Any) -> dict[str, Any]:
    """Return what the network takes of a tokenizer's result."""
    # Plain lists: the batch pads them before it makes tensors.
    return {name: list(values[name]) for name in values if name in NETWORK_INPUTS}


def _require_content(item: Item) -> None:
    if all(item.special):
        raise BadInput(f"The tokenizer finds no token in {item.text!r}: there is nothing to explain.")


def validate_overflow(overflow: str) -> None:
    """Raise BadOption unless `overflow` is one of `OVERFLOW_CHOICES`."""
    if overflow not in OVERFLOW_CHOICES:
        raise BadOption(Argument("overflow", overflow), f" is not a choice. Use one of {', '.join(OVERFLOW_CHOICES)}.")


def validate_length(model: Model, length: int, advice: Advice = OVERFLOW_ADVICE) -> None:
    """Raise TooLong if the model takes fewer tokens; `advice` ends the message."""
    limit = max_tokens(model)
    if limit is not None and length > limit:
        raise TooLong(f"The input has {length} tokens, but {model.name} takes at most {limit}.", *advice)


def _validate_text(text: Text) -> None:
    segments = _split_pair(text)
    _refuse_empty(segments)
    _validate_encoding("".join(segments))


def _refuse_empty(segments: Sequence[str]) -> None:
    if not all(map(str.strip, segments)):
        raise BadInput("The text is empty: there is nothing to explain.")


def _validate_encoding(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes that were not UTF-8 as lone surrogates, which tokenizers cannot read.
        raise BadInput(f"Invalid UTF-8 at character {error.start + 1} (lone surrogate).") from error


def _split_pair(text: Text) -> tuple[str, ...]:
    if isinstance(text, tuple):
        return text
    return (text,)


def tokenise(
    model: Model, segments: Sequence[Any], overflow: str, *, add_special_tokens: bool = True, inputs_only: bool = False
) -> Any:
    """Call the tokenizer with a text, or the two of a pair; with lists of them it returns lists.

    With `inputs_only` it is not asked where the tokens come from and which are special.
    """
    return model.processor(
        *segments,
        add_special_tokens=add_special_tokens,
        # The length is validated afterwards: no warning about it.
        verbose=False,
        **_list_results(model, inputs_only=inputs_only),
        **_truncation_options(model, overflow),
    )


def _list_results(model: Model, *, inputs_only: bool) -> dict[str, bool]:
    """Return what the tokenizer is asked for besides the network's inputs."""
    if inputs_only:
        return {}
    return {"return_special_tokens_mask": True, "return_offsets_mapping": knows_offsets(model.processor)}


def knows_offsets(tokenizer: Any) -> bool:
    """Return whether a tokenizer tells which characters its tokens come from."""
    # Slow tokenizers, written in Python, do not know where a token comes from.
    return bool(getattr(tokenizer, "is_fast", False))


def _truncation_options(model: Model, overflow: str) -> dict[str, Any]:
    validate_overflow(overflow)
    limit = max_tokens(model)
    if overflow == "truncate" and limit:
        return {"truncation": True, "max_length": limit}
    return {"truncation": False}


def _make_item(model: Model, text: Text, values: Any) -> Item:
    tokens = tuple(model.processor.convert_ids_to_tokens(values["input_ids"]))
    special = tuple(map(bool, values["special_tokens_mask"]))
    if isinstance(text, str) and not knows_offsets(model.processor):
        return Item(tokens, special, text, place_pieces(text, tokens, special))
    return Item(tokens, special, text, _find_offsets(text, values))


def _find_offsets(text: Text, values: Any) -> tuple[tuple[int, ...], ...] | None:
    """Return the characters of each token; None if the tokenizer does not tell them."""
    if "offset_mapping" not in values:
        return None
    spans = zip(values.sequence_ids(), values["offset_mapping"], strict=True)
    return tuple(_convert_offset(text, segment, *span) for segment, span in spans)


def _convert_offset(text: Text, segment: int | None, start: int, end: int) -> tuple[int, ...]:
    """Return the characters of a token: (start, end), or (segment, start, end) in a pair."""
    if isinstance(text, str):
        return (_skip_spaces(text, start, end), end)
    # Special tokens belong to no segment; their span is empty.
    index = segment or 0
    return (index, *_convert_offset(text[index], None, start, end))


def _skip_spaces(text: str, start: int, end: int) -> int:
    """Return the start of a token without the leading spaces that byte-level tokenizers count to it."""
    while start < end and text[start].isspace():
        start += 1
    return start
