"""Encode sources and answers for encoder–decoders, whose decoder reads the answer's own beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from clearhead.errors import BadOption
from clearhead.model.batches import Answer, Encoded, Item
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.model.model import Model
from clearhead.model.text_inputs import validate_length


def tokenise_target(model: Model, text: str) -> list[int]:
    """Return the tokens of an answer, in the vocabulary that the decoder writes in, without special tokens."""
    ids: list[int] = model.processor(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def find_start(model: Model, options: Mapping[str, Any]) -> list[int]:
    """Return the tokens that the decoder reads before an answer: its start token, and what must follow it.

    `options` are those of a generation, which may name another language to write in.
    """
    settings = model.network.language_model.generation_config.to_dict()
    settings.update(options)
    start = settings.get("decoder_start_token_id")
    if start is None:
        # As generation does.
        start = settings.get("bos_token_id")
    if start is None:
        raise BadOption(
            f"{model.name} does not say which token its decoder starts with: give "
            "generation={'decoder_start_token_id': …}."
        )
    forced = settings.get("forced_bos_token_id")
    following = _leading_special_ids(model) if forced is None else [forced]
    return [_first_id(start), *following]


def _first_id(ids: int | Sequence[int]) -> int:
    """Return the first of the ids, which a generation may name one for each row."""
    return ids if isinstance(ids, int) else int(ids[0])


def _leading_special_ids(model: Model) -> list[int]:
    """Return the special tokens that the tokenizer puts before an answer, such as BART's <s>."""
    ids = model.processor(text_target="", verbose=False)["input_ids"]
    # What an empty answer is enclosed in: the end of a text is its own, and may be followed by a language.
    ends = {model.processor.eos_token_id, None}
    leading = []
    for token_id in ids:
        if token_id in ends:
            break
        leading.append(token_id)
    return leading


def generate_target(model: Model, source: Encoded, settings: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Let the model answer a source; return the tokens it starts with, and those it writes."""
    ids = torch.tensor([source.values["input_ids"]], device=model.device)
    with torch.inference_mode():
        written = model.network.language_model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **settings
        )
    return _split_start(model, written[0].tolist())


def _split_start(model: Model, ids: list[int]) -> tuple[list[int], list[int]]:
    """Split generated tokens after the start token and the special tokens that follow it."""
    special = set(model.processor.all_special_ids)
    count = 1
    while count < len(ids) and ids[count] in special and ids[count] != model.processor.eos_token_id:
        count += 1
    return ids[:count], ids[count:]


def add_target(model: Model, source: Encoded, start: Sequence[int], answer: Answer) -> Encoded:
    """Return a source joined with the decoder's input, from which the model predicts each token of the answer."""
    decoder_ids = [*start, *answer.ids[:-1]]
    validate_length(model, len(decoder_ids), (" Shorten the answer.",))
    ids = [*source.values["input_ids"], *decoder_ids]
    values = {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        # The first token of the answer is predicted from the last of the start tokens.
        ANSWER_POSITIONS: list(range(source.length + len(start) - 1, len(ids))),
        SOURCE_LENGTH: [source.length],
    }
    return Encoded(_join_items(model, source.item, start, answer), values)


def _join_items(model: Model, item: Item, start: Sequence[int], answer: Answer) -> Item:
    """Return the item of a source with the tokens of the decoder's input, as a pair of texts."""
    start_tokens = model.processor.convert_ids_to_tokens(list(start))
    special_ids = set(model.processor.all_special_ids)
    special = [*item.special, *[True] * len(start)]
    special += [token_id in special_ids for token_id in answer.ids[:-1]]
    offsets = None
    if item.offsets is not None:
        in_answer = [*[(0, 0)] * len(start), *answer.offsets[:-1]]
        offsets = (*_in_segment(0, item.offsets), *_in_segment(1, in_answer))
    tokens = (*item.tokens, *start_tokens, *answer.tokens[:-1])
    return replace(item, tokens=tokens, special=tuple(special), text=(str(item.text), answer.text), offsets=offsets, answer=answer)


def _in_segment(segment: int, offsets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [(segment, *offset) for offset in offsets]
