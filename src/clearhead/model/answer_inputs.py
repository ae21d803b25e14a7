"""Encode prompts and answers for language models: texts or chats, answers that are given or generated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from clearhead.errors import BadInput
from clearhead.model.batches import Answer, Encoded, Item
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model
from clearhead.model.sequence_inputs import add_target, find_start, generate_target, tokenise_target
from clearhead.model.text_inputs import encode_text, validate_length

Chat = Sequence[Mapping[str, str]]
Prompt = str | Chat
DEFAULT_NEW_TOKENS = 64
LENGTH_ADVICE = (" Shorten the prompt or the answer.",)
# Punctuation that follows a word without a blank.
WORD_ENDS = tuple(".,;:!?)%")
# What decoders of bytes show for a character of which only some bytes are there.
UNFINISHED_CHARACTER = "\ufffd"


def is_chat(prompt: Any) -> bool:
    """Return whether this is one list of chat messages, each with a role and a content."""
    if isinstance(prompt, str | Mapping) or not isinstance(prompt, Sequence) or not prompt:
        return False
    return all(isinstance(message, Mapping) and "role" in message for message in prompt)


def encode_prompt(model: Model, prompt: Prompt) -> Encoded:
    """Tokenise a prompt; chat messages go through the tokenizer's template, whose own tokens are special."""
    if model.processor is None:
        raise BadInput(f"{model.name} was loaded without a tokenizer: load it with one to explain answers.")
    if is_chat(prompt):
        return _encode_chat(model, prompt)  # type: ignore[arg-type]
    if not isinstance(prompt, str):
        raise BadInput(f"A prompt is a text or a list of chat messages, not a {type(prompt).__name__}.")
    return encode_text(model, prompt, "error")


def _encode_chat(model: Model, messages: Chat) -> Encoded:
    rendered = _render_chat(model, messages)
    # The template contains the special tokens already.
    encoded = encode_text(model, rendered, "error", add_special_tokens=False)
    item = encoded.item
    if item.offsets is None:
        return encoded
    contents = _find_contents(rendered, messages)
    special = [flag or not _lies_in(offset, contents) for flag, offset in zip(item.special, item.offsets, strict=True)]
    return replace(encoded, item=replace(item, special=tuple(special)))


def _render_chat(model: Model, messages: Chat) -> str:
    if not getattr(model.processor, "chat_template", None):
        raise BadInput(f"The tokenizer of {model.name} has no chat template: give the prompt as one text.")
    try:
        rendered: str = model.processor.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except Exception as error:
        # Templates are programs of their own, with errors of many types.
        raise BadInput(f"The chat template of {model.name} refuses these messages: {error}") from error
    return rendered


def _find_contents(rendered: str, messages: Chat) -> list[tuple[int, int]]:
    """Return where the contents of the messages stand in the rendered chat."""
    contents = []
    position = 0
    for message in messages:
        content = str(message.get("content", "")).strip()
        start = rendered.find(content, position)
        # A template may change a content, or leave it out.
        if content and start >= 0:
            position = start + len(content)
            contents.append((start, position))
    return contents


def _lies_in(offset: tuple[int, ...], ranges: Sequence[tuple[int, int]]) -> bool:
    start, end = offset[-2:]
    # Blanks around a content are the template's: without them nothing is left of such a token.
    return start < end and any(first <= start and end <= last for first, last in ranges)


def answer_prompt(model: Model, prompt: Encoded, answer: str | None, generation: Mapping[str, Any]) -> Encoded:
    """Return a prompt with its answer; without one, with what the model writes under the options of `generation`."""
    if answer is not None:
        ids = tokenise_answer(model, prompt, answer)
        start = find_start(model, generation) if model.is_encoder_decoder else None
        return add_answer(model, prompt, ids, start)
    if not model.is_encoder_decoder:
        return add_answer(model, prompt, generate_answer(model, prompt, generation))
    start, written = generate_target(model, prompt, _complete_settings(generation))
    return add_answer(model, prompt, _keep_answer(model, written), start)


def add_answer(model: Model, prompt: Encoded, ids: Sequence[int], start: Sequence[int] | None = None) -> Encoded:
    """Return a prompt followed by an answer's tokens, the input from which the model predicts each of them.

    `start` are the tokens that the decoder of an encoder–decoder reads first, if they are not the usual ones.
    """
    answer = make_answer(model, ids, prompt.length)
    if model.is_encoder_decoder:
        return add_target(model, prompt, start or find_start(model, {}), answer)
    return _continue_prompt(model, prompt, answer)


def _continue_prompt(model: Model, prompt: Encoded, answer: Answer) -> Encoded:
    start = prompt.length
    ids = answer.ids
    values = {**prompt.values, "input_ids": [*prompt.values["input_ids"], *ids[:-1]]}
    length = len(values["input_ids"])
    validate_length(model, length, LENGTH_ADVICE)
    values["attention_mask"] = [1] * length
    values.pop("token_type_ids", None)
    # The token at a position is predicted one position before.
    values[ANSWER_POSITIONS] = list(range(start - 1, length))
    return Encoded(_extend_item(model, prompt.item, answer), values)


def _extend_item(model: Model, item: Item, answer: Answer) -> Item:
    """Return the item of a prompt with the tokens of its answer, as a pair of texts."""
    tokens = (*item.tokens, *answer.tokens[:-1])
    special_ids = set(model.processor.all_special_ids)
    special = (*item.special, *(token_id in special_ids for token_id in answer.ids[:-1]))
    offsets = None
    if item.offsets is not None:
        in_prompt = [(0, *offset) for offset in item.offsets]
        in_answer = [(1, *offset) for offset in answer.offsets[:-1]]
        offsets = (*in_prompt, *in_answer)
    return Item(tokens, special, (str(item.text), answer.text), offsets, answer=answer)


def make_answer(model: Model, ids: Sequence[int], start: int) -> Answer:
    """Return an answer with its text and the characters of each token."""
    decoded, ends = _decode_progressively(model, ids)
    text = decoded.lstrip()
    blanks = len(decoded) - len(text)
    offsets = []
    previous = 0
    for end in ends:
        offsets.append(_trim(decoded, previous, end, blanks))
        previous = end
    tokens = tuple(model.processor.convert_ids_to_tokens(list(ids)))
    return Answer(text, tuple(ids), tokens, tuple(offsets), start)


def _trim(decoded: str, start: int, end: int, blanks: int) -> tuple[int, int]:
    """Return the characters of a token without its leading blanks, counted without those of the whole text."""
    while start < end and decoded[start].isspace():
        start += 1
    return max(0, start - blanks), max(0, end - blanks)


def _decode_progressively(model: Model, ids: Sequence[int]) -> tuple[str, list[int]]:
    """Return the text of some tokens, and its length after each of them."""
    ends: list[int] = []
    for count in range(1, len(ids) + 1):
        text = _decode(model, ids[:count]).rstrip(UNFINISHED_CHARACTER)
        # Tokenizers may drop blanks before punctuation once it follows.
        ends.append(max(len(text), *ends[-1:], 0))
    decoded = _decode(model, ids)
    return decoded, [min(end, len(decoded)) for end in ends]


def _decode(model: Model, ids: Sequence[int]) -> str:
    text: str = model.processor.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def tokenise_answer(model: Model, prompt: Encoded, answer: str, *, after: str = "", name: str = "answer") -> list[int]:
    """Return the tokens of an answer as they would follow the prompt, or words `after` which it goes on."""
    if not isinstance(answer, str):
        raise BadInput(f"The {name} is a {type(answer).__name__}: give a text.")
    if not answer.strip():
        raise BadInput(f"The {name} is empty: give a text, or leave it out to explain what the model writes.")
    ids = _tokenise_after(*_find_context(model, prompt, after), answer)
    if not ids:
        raise BadInput(f"The tokenizer finds no token in the {name} {answer!r}.")
    unknown = model.processor.unk_token_id
    if unknown is not None and unknown in ids:
        raise BadInput(f"The {name} {answer!r} contains characters that the vocabulary of {model.name} does not have.")
    return ids


def _find_context(model: Model, prompt: Encoded, after: str) -> tuple[Callable[[str], list[int]], str]:
    """Return what tokenises an answer, and the text that comes before it in its own sequence."""
    if model.is_encoder_decoder:
        return partial(tokenise_target, model), after
    return partial(_tokenise, model), f"{prompt.item.text} {after}".rstrip() if after else str(prompt.item.text)


def _tokenise(model: Model, text: str) -> list[int]:
    ids: list[int] = model.processor(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _tokenise_after(tokenise: Callable[[str], list[int]], before: str, answer: str) -> list[int]:
    """Tokenise an answer together with what comes before it, so that it begins as the model would write it."""
    ids = tokenise(before + _blank_between(before, answer) + answer)
    alone = tokenise(before)
    if ids[: len(alone)] == alone and len(ids) > len(alone):
        return ids[len(alone) :]
    # Tokens that straddle the border: the model reads the prompt's own tokens, so the answer stands alone.
    return tokenise(answer)


def _blank_between(prompt: str, answer: str) -> str:
    has_blank = prompt[-1:].isspace() or answer[:1].isspace()
    # After the markup of a chat, or an opening bracket, answers begin without a blank.
    ends_word = prompt[-1:].isalnum() or prompt[-1:] in WORD_ENDS
    if has_blank or not ends_word or answer[:1] in WORD_ENDS:
        return ""
    return " "


def generate_answer(model: Model, prompt: Encoded, options: Mapping[str, Any]) -> list[int]:
    """Let the model continue a prompt, greedily unless the options say otherwise; return the new tokens."""
    network = model.network.language_model
    ids = torch.tensor([prompt.values["input_ids"]], device=model.device)
    with torch.inference_mode():
        written = network.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **_complete_settings(options))
    return _keep_answer(model, written[0, ids.shape[1] :].tolist())


def _complete_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"max_new_tokens": DEFAULT_NEW_TOKENS, "do_sample": False, **options}


def _keep_answer(model: Model, ids: list[int]) -> list[int]:
    """Return generated tokens up to their end; raise BadInput if there are none."""
    answer = _drop_end(model.network.language_model, ids)
    if not answer:
        raise BadInput(f"{model.name} writes nothing after this prompt: give an answer, or another prompt.")
    return answer


def _drop_end(network: Any, ids: list[int]) -> list[int]:
    """Return the tokens before the first that ends an answer."""
    ends = network.generation_config.eos_token_id
    if isinstance(ends, int):
        ends = [ends]
    for index, token_id in enumerate(ids):
        if token_id in (ends or ()):
            return ids[:index]
    return ids
