"""Encode sources and answers for encoder–decoders, whose decoder reads the answer's own beginning."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadOption
from clearhead.model.batches import Answer, Encoded, Item
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH, keep_positions
from clearhead.model.model import Model
from clearhead.model.source_span import SourceSpan
from clearhead.model.text_inputs import validate_length

LENGTH_ADVICE = (" Shorten the answer.",)
# What every text is written with.
OWN_SETTINGS = {"max_new_tokens", "do_sample"}
# In the order in which generation looks for the token that a decoder starts with.
START_SETTINGS = ("decoder_start_token_id", "bos_token_id")
# A shortened prompt keeps some words, as methods that hide words need.
MIN_PROMPT_TOKENS = 8
# Other values than those of tokens and their positions cannot be shortened.
SHORTENED_VALUES = {"input_ids", "attention_mask", ANSWER_POSITIONS, SOURCE_LENGTH}
Offsets = Sequence[tuple[int, ...]]


def tokenise_target(model: Model, text: str) -> list[int]:
    """Return the tokens of an answer, in the vocabulary that the decoder writes in, without special tokens."""
    ids: list[int] = model.processor(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def find_start(model: Model, options: Mapping[str, Any]) -> list[int]:
    """Return the tokens that the decoder reads before an answer: its start token, and what must follow it.

    `options` are those of a generation, which may name another language to write in.
    """
    settings = _merge_settings(model, options)
    start = _start_token(model, settings)
    forced = settings.get("forced_bos_token_id")
    if forced is None:
        return [start, *_leading_special_ids(model)]
    return [start, forced]


def _merge_settings(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the model's own settings where they say nothing."""
    return {**model.network.language_model.generation_config.to_dict(), **options}


def _start_token(model: Model, settings: Mapping[str, Any]) -> int:
    for name in START_SETTINGS:
        token_id = settings.get(name)
        if isinstance(token_id, int):
            return token_id
    raise BadOption(
        f"{model.name} does not say which token its decoder starts with: give decoder_start_token_id in the options of "
        "the generation."
    )


def _leading_special_ids(model: Model) -> list[int]:
    """Return the special tokens that the tokenizer puts before an answer, such as BART's <s>."""
    # What encloses an empty answer; what follows its end, such as mBART's language, does not lead.
    enclosing = model.processor(text_target="", verbose=False)["input_ids"]
    return list(takewhile(lambda token_id: token_id != model.processor.eos_token_id, enclosing))


def generate_target(model: Model, source: Encoded, settings: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Let the model answer a source; return the tokens it starts with, and those it writes."""
    return _split_start(generate_tokens(model, source, settings), find_start(model, settings))


def generate_tokens(model: Model, encoded: Encoded, settings: Mapping[str, Any]) -> list[int]:
    """Let the model write; return all tokens of its output, for a decoder with those of the prompt."""
    tensors = _list_prompt_tensors(model, encoded)
    with torch.inference_mode(), keep_positions(model.network.language_model), _refuse_settings(settings):
        written = model.network.language_model.generate(**tensors, **settings)
    # Settings, of the caller or of the model, may ask for more than the tokens.
    tokens: list[int] = getattr(written, "sequences", written)[0].tolist()
    return tokens


@contextmanager
def _refuse_settings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Raise BadOption instead of the error of a setting that the user chose."""
    try:
        yield
    except ValueError as error:
        # Without any the error is of another kind.
        if not settings.keys() - OWN_SETTINGS:
            raise
        reason = " ".join(str(error).split())
        raise BadOption(f"The model refuses the options in generation: {reason}") from error


def _list_prompt_tensors(model: Model, encoded: Encoded) -> dict[str, Tensor]:
    if encoded.processed is not None:
        return dict(encoded.processed)
    ids = torch.tensor([encoded.values["input_ids"]], device=model.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _split_start(written: list[int], start: list[int]) -> tuple[list[int], list[int]]:
    count = len(start)
    # A tokenizer may put more before an answer than the model writes.
    if written[:count] != start:
        count = 1
    return written[:count], written[count:]


def add_target(model: Model, source: Encoded, start: Sequence[int], answer: Answer) -> Encoded:
    """Return a source joined with the decoder's input, from which the model predicts each token of the answer."""
    decoder_ids = [*start, *answer.ids[:-1]]
    validate_length(model, len(decoder_ids), LENGTH_ADVICE)
    ids = [*source.values["input_ids"], *decoder_ids]
    values = {**join_values(ids, source.length + len(start)), SOURCE_LENGTH: [source.length]}
    return Encoded(_join_items(source.item, _describe_decoder(model, start, answer)), values)


def join_values(ids: list[int], start: int) -> dict[str, list[int]]:
    """Return the values of a prompt's and an answer's tokens together; the answer begins at `start`."""
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        # The token at a position is predicted one position before.
        ANSWER_POSITIONS: list(range(start - 1, len(ids))),
    }


def shorten_prompt(encoded: Encoded, tokens: int) -> Encoded:
    """Return a prompt's end and its answer with about so many tokens; those with pictures as they are."""
    answer = encoded.item.answer
    assert answer is not None
    removed = min(encoded.length - tokens, answer.start - MIN_PROMPT_TOKENS)
    if removed <= 0 or encoded.item.pictures or encoded.values.keys() - SHORTENED_VALUES:
        return encoded
    values = {name: _remove_beginning(name, row, removed) for name, row in encoded.values.items()}
    return Encoded(_shorten_item(encoded.item, replace(answer, start=answer.start - removed), removed), values)


def _remove_beginning(name: str, row: list[int], removed: int) -> list[int]:
    if name in (ANSWER_POSITIONS, SOURCE_LENGTH):
        return [number - removed for number in row]
    return row[removed:]


def _shorten_item(item: Item, answer: Answer, removed: int) -> Item:
    offsets = None if item.offsets is None else item.offsets[removed:]
    shortened = replace(item, tokens=item.tokens[removed:], special=item.special[removed:], offsets=offsets)
    return replace(shortened, answer=answer, sources=_keep_sources(item.sources, offsets, answer.start))


def _keep_sources(sources: Sequence[SourceSpan], offsets: Offsets | None, length: int) -> tuple[SourceSpan, ...]:
    """Return the sources in the tokens that are left of a prompt, or its halves where fewer than two of several are."""
    if offsets is None or len(sources) < 2:
        return tuple(sources)
    first, middle, last = (offsets[index][-2] for index in (0, length // 2, length - 1))
    kept = tuple(source for source in sources if source.end > first)
    # To compare sources takes two.
    return kept if len(kept) > 1 else (SourceSpan("1", first, middle), SourceSpan("2", middle, last + 1))


def _describe_decoder(model: Model, start: Sequence[int], answer: Answer) -> Item:
    """Return the decoder's input as a person sees it: the start tokens, which are special, and the answer's own."""
    # The last token of an answer is predicted, but never read.
    return Item(
        tokens=(*model.processor.convert_ids_to_tokens(list(start)), *answer.tokens[:-1]),
        special=(*[True] * len(start), *find_special(model, answer.ids[:-1])),
        text=answer.text,
        offsets=(*[(0, 0)] * len(start), *answer.offsets[:-1]),
        answer=answer,
    )


def _join_items(source: Item, decoder: Item) -> Item:
    """Return a source and the decoder's input as a pair of texts."""
    return replace(
        source,
        tokens=source.tokens + decoder.tokens,
        special=source.special + decoder.special,
        text=(str(source.text), str(decoder.text)),
        offsets=join_offsets(source.offsets, decoder.offsets),
        answer=decoder.answer,
    )


def find_special(model: Model, ids: Sequence[int]) -> list[bool]:
    """Return which tokens are special."""
    return list(map(set(model.processor.all_special_ids).__contains__, ids))


def join_offsets(prompt: Offsets | None, answer: Offsets | None) -> tuple[tuple[int, ...], ...] | None:
    """Return the characters of the tokens of prompt and answer, in segments 0 and 1; None unless both have some."""
    if prompt is None or answer is None:
        return None
    return (*_in_segment(0, prompt), *_in_segment(1, answer))


def _in_segment(segment: int, offsets: Offsets) -> list[tuple[int, ...]]:
    return [(segment, *offset) for offset in offsets]
