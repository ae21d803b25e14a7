"""Encode prompts and answers for language models: texts or chats, answers that are given or generated."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeGuard

from clearhead.errors import BadInput, BadOption
from clearhead.model.batches import Answer, Encoded, Item
from clearhead.model.chats import Chat, find_contents, is_chat, mark_template, render_chat
from clearhead.model.model import Model, max_tokens
from clearhead.model.picture_inputs import continue_picture_prompt, encode_picture_prompt, needs_token_types
from clearhead.model.picture_prompts import PicturePrompt, has_pictures
from clearhead.model.sequence_inputs import (
    add_target,
    find_special,
    find_start,
    generate_target,
    generate_tokens,
    join_offsets,
    join_values,
    tokenise_target,
)
from clearhead.model.text_inputs import PROMPT_ADVICE, encode_text, validate_length
from clearhead.model.unspaced import UNSPACED
from clearhead.validation import require_integer

Tokenise = Callable[[str], list[int]]
DEFAULT_NEW_TOKENS = 64
LENGTH_ADVICE = (" Shorten the prompt or the answer.",)
# Punctuation that follows a word without a blank.
WORD_ENDS = tuple(".,;:!?)%")
# What is explained without an answer, or without a foil.
OMISSIONS = {"answer": "explain what the model writes", "foil": "explain the answer by itself"}
# What decoders of bytes show for a character of which only some bytes are there.
UNFINISHED_CHARACTER = "\ufffd"


@dataclass(frozen=True)
class Context:
    """Where an answer stands: the text before it, and the blank between them."""

    before: str
    blank: str


def encode_prompt(model: Model, prompt: PicturePrompt, *, embed: bool = False) -> Encoded:
    """Tokenise a prompt; chat messages go through the tokenizer's template, whose own tokens are special.

    `embed` prepares a prompt without pictures as those with pictures are, so that they can share a batch.
    """
    _require_tokenizer(model)
    if embed or has_pictures(prompt) or needs_token_types(model):
        return encode_picture_prompt(model, prompt)
    if is_chat(prompt):
        return _encode_chat(model, prompt)  # type: ignore[arg-type]
    if not isinstance(prompt, str):
        raise BadInput(f"A prompt is a text or a list of chat messages, not a {type(prompt).__name__}.")
    return encode_text(model, prompt, "error", advice=PROMPT_ADVICE)


def _require_tokenizer(model: Model) -> None:
    if model.processor is None:
        raise BadInput(f"{model.name} was loaded without a tokenizer: load it with one to explain answers.")


def _encode_chat(model: Model, messages: Chat) -> Encoded:
    rendered = render_chat(model.processor, model.name, messages)
    # The template contains the special tokens already.
    encoded = encode_text(model, rendered, "error", add_special_tokens=False, advice=PROMPT_ADVICE)
    if encoded.item.offsets is None:
        return encoded
    return replace(encoded, item=mark_template(encoded.item, find_contents(rendered, messages)))


def answer_prompt(
    model: Model, prompt: Encoded, answer: str | Sequence[int] | None, generation: Mapping[str, Any]
) -> Encoded:
    """Return a prompt with its answer, a text or token ids; without one, with what the model writes.

    `generation` are options of its writing.
    """
    if answer is None:
        return add_answer(model, prompt, *_write_answer(model, prompt, generation))
    ids = _read_answer(model, prompt, answer)
    if model.is_encoder_decoder:
        return add_answer(model, prompt, ids, find_start(model, generation))
    return add_answer(model, prompt, ids)


def _read_answer(model: Model, prompt: Encoded, answer: str | Sequence[int]) -> list[int]:
    if not is_token_ids(answer):
        return tokenise_answer(model, prompt, answer)  # type: ignore[arg-type]
    _require_known(model, [min(answer), max(answer)])
    return list(answer)


def _require_known(model: Model, token_ids: Sequence[int]) -> None:
    """Raise BadInput for numbers that are no tokens of the model."""
    last = _count_tokens(model) - 1
    for token_id in token_ids:
        if not 0 <= token_id <= last:
            raise BadInput(f"The answer has the token {token_id}, but {model.name} has tokens 0 … {last}.")


def _count_tokens(model: Model) -> int:
    count: int = model.network.language_model.get_input_embeddings().num_embeddings
    return count


def is_token_ids(answer: object) -> TypeGuard[Sequence[int]]:
    """Return whether an answer is a list of token ids rather than a text."""
    return isinstance(answer, list | tuple) and bool(answer) and all(map(_is_integer, answer))


def _is_integer(value: object) -> bool:
    # For Python a bool is an integer too.
    return isinstance(value, int) and not isinstance(value, bool)


def _write_answer(model: Model, prompt: Encoded, generation: Mapping[str, Any]) -> tuple[list[int], list[int] | None]:
    """Return the tokens that the model writes, and those that the decoder of an encoder–decoder starts with."""
    if not model.is_encoder_decoder:
        return generate_answer(model, prompt, generation), None
    start, written = generate_target(model, prompt, _complete_settings(generation, DEFAULT_NEW_TOKENS))
    return _keep_answer(model, written), start


def add_answer(model: Model, prompt: Encoded, ids: Sequence[int], start: Sequence[int] | None = None) -> Encoded:
    """Return a prompt followed by an answer's tokens, the input from which the model predicts each of them.

    `start` are the tokens that the decoder of an encoder–decoder reads first, if they are not the usual ones.
    """
    answer = make_answer(model, ids, prompt.length)
    if model.is_encoder_decoder:
        return add_target(model, prompt, start or find_start(model, {}), answer)
    return _continue_prompt(model, prompt, answer)


def _continue_prompt(model: Model, prompt: Encoded, answer: Answer) -> Encoded:
    # The last token of the answer is predicted, but never read.
    ids = [*prompt.values["input_ids"], *answer.ids[:-1]]
    validate_length(model, len(ids), LENGTH_ADVICE)
    if prompt.processed is not None:
        values = continue_picture_prompt(model, prompt, ids)
        return Encoded(_extend_item(model, prompt.item, answer), values)
    values = {**prompt.values, **join_values(ids, prompt.length)}
    values.pop("token_type_ids", None)
    return Encoded(_extend_item(model, prompt.item, answer), values)


def _extend_item(model: Model, item: Item, answer: Answer) -> Item:
    """Return the item of a prompt with the tokens of its answer, as a pair of texts."""
    return Item(
        tokens=(*item.tokens, *answer.tokens[:-1]),
        special=(*item.special, *find_special(model, answer.ids[:-1])),
        text=(str(item.text), answer.text),
        offsets=join_offsets(item.offsets, answer.offsets[:-1]),
        answer=answer,
        pictures=item.pictures,
    )


def make_answer(model: Model, ids: Sequence[int], start: int) -> Answer:
    """Return an answer with its text and the characters of each token."""
    decoded = _decode(model, ids)
    # The blank between prompt and answer belongs to neither.
    text = decoded.lstrip()
    offsets = _find_offsets(decoded, _decode_progressively(model, ids), len(decoded) - len(text))
    tokens = tuple(model.processor.convert_ids_to_tokens(list(ids)))
    return Answer(text, tuple(ids), tokens, tuple(offsets), start)


def _find_offsets(decoded: str, beginnings: Iterable[str], blanks: int) -> Iterator[tuple[int, int]]:
    """Yield the characters of each token, from the first that those before it had not finished."""
    finished = 0
    for text in beginnings:
        length = len(text.rstrip(UNFINISHED_CHARACTER))
        # Every token with bytes of a character has this character, as in prompts.
        end = min(length + text.endswith(UNFINISHED_CHARACTER), len(decoded))
        yield _trim(decoded, finished, end, blanks)
        # Tokenizers may drop blanks before punctuation once it follows.
        finished = min(max(finished, length), len(decoded))


def _trim(decoded: str, start: int, end: int, blanks: int) -> tuple[int, int]:
    """Return the characters of a token without its leading blanks, counted without those of the whole text."""
    while start < end and decoded[start].isspace():
        start += 1
    return max(0, start - blanks), max(0, start - blanks, end - blanks)


def _decode_progressively(model: Model, ids: Sequence[int]) -> Iterator[str]:
    """Yield the text of the first token, of the first two, and so on."""
    for count in range(1, len(ids) + 1):
        yield _decode(model, ids[:count])


def _decode(model: Model, ids: Sequence[int]) -> str:
    text: str = model.processor.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def tokenise_answer(model: Model, prompt: Encoded, answer: str, *, name: str = "answer") -> list[int]:
    """Return the tokens of an answer as they would follow the prompt."""
    _validate_text(answer, name)
    tokenise, before = _find_context(model, prompt)
    return _tokenise_known(model, tokenise, answer, Context(before, _blank_between(before, answer)), name)


def tokenise_foil(model: Model, prompt: Encoded, foil: str, answer: Answer, step: int) -> list[int]:
    """Return the tokens of a foil as they would replace a step of the answer and those after it."""
    # The prompt says how its answer begins: tokenizers of pieces do not tell the blank before their first.
    if step == 0:
        return tokenise_answer(model, prompt, foil, name="foil")
    _validate_text(foil, "foil")
    tokenise, start = _find_context(model, prompt)
    before, after = (_decode(model, answer.ids[:count]) for count in (step, step + 1))
    blank = "" if _begins_apart(foil[:1]) else _leading_blanks(after[len(before) :])
    context = Context(start + _blank_between(start, before) + before, blank)
    return _tokenise_known(model, tokenise, foil, context, "foil")


def _leading_blanks(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _tokenise_known(model: Model, tokenise: Tokenise, answer: str, context: Context, name: str) -> list[int]:
    """Return the tokens of an answer in its place; raise BadInput if there are none, or unknown ones."""
    ids = _tokenise_after(tokenise, context, answer)
    _require_token(answer, name, ids)
    _refuse_unknown(model, answer, name, ids)
    return ids


def _require_token(answer: str, name: str, ids: Sequence[int]) -> None:
    if not ids:
        raise BadInput(f"The tokenizer finds no token in the {name} {answer!r}.")


def _refuse_unknown(model: Model, answer: str, name: str, ids: list[int]) -> None:
    if _has_unknown(model, ids):
        raise BadInput(f"The {name} {answer!r} contains characters that the vocabulary of {model.name} does not have.")


def _validate_text(answer: Any, name: str) -> None:
    if not isinstance(answer, str):
        raise BadInput(f"The {name} is a {type(answer).__name__}: give a text.")
    if not answer.strip():
        raise BadInput(f"The {name} is empty: give a text, or leave it out to {OMISSIONS[name]}.")


def _has_unknown(model: Model, ids: Sequence[int]) -> bool:
    # Tokenizers of bytes know every character, and have no such token.
    unknown = model.processor.unk_token_id
    return unknown is not None and unknown in ids


def _find_context(model: Model, prompt: Encoded) -> tuple[Tokenise, str]:
    """Return what tokenises an answer, and the text that comes before it in its own sequence."""
    if model.is_encoder_decoder:
        return partial(tokenise_target, model), ""
    return partial(_tokenise, model), str(prompt.item.text)


def _tokenise(model: Model, text: str) -> list[int]:
    ids: list[int] = model.processor(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _tokenise_after(tokenise: Tokenise, context: Context, answer: str) -> list[int]:
    """Tokenise an answer together with what comes before it, so that it begins as the model would write it."""
    ids = tokenise(context.before + context.blank + answer)
    alone = tokenise(context.before)
    continued = ids[len(alone) :]
    if continued and [*alone, *continued] == ids:
        return continued
    # Tokens that straddle the border: the model reads the prompt's own tokens, so the answer stands alone.
    return tokenise(answer)


def _blank_between(prompt: str, answer: str) -> str:
    # After the markup of a chat, or an opening bracket, answers begin without a blank.
    if not _ends_word(prompt[-1:]) or _begins_apart(answer[:1]):
        return ""
    return " "


def _ends_word(character: str) -> bool:
    # Words of Chinese and other scripts follow each other without a blank.
    return (character.isalnum() and not UNSPACED.match(character)) or character in WORD_ENDS


def _begins_apart(character: str) -> bool:
    return character.isspace() or character in WORD_ENDS


def generate_answer(model: Model, prompt: Encoded, options: Mapping[str, Any]) -> list[int]:
    """Let the model continue a prompt, greedily unless the options say otherwise; return the new tokens."""
    most = _count_free_positions(model, prompt)
    _require_room(model, prompt, options, most)
    written = generate_tokens(model, prompt, _complete_settings(options, min(DEFAULT_NEW_TOKENS, most)))
    return _keep_answer(model, written[prompt.length :])


def _count_free_positions(model: Model, prompt: Encoded) -> int:
    """Return how many tokens a decoder may write after a prompt."""
    limit = max_tokens(model) or sys.maxsize
    # The last token is written, but never read.
    return max(1, limit - prompt.length + 1)


def _require_room(model: Model, prompt: Encoded, options: Mapping[str, Any], most: int) -> None:
    """Raise BadOption for more new tokens than a decoder has positions for."""
    count: Any = options.get("max_new_tokens")
    if _is_integer(count) and count > most:
        raise BadOption(
            f"max_new_tokens={count} is too large: after the {prompt.length} tokens of the prompt, {model.name} can "
            f"write at most {most}."
        )


def _complete_settings(options: Mapping[str, Any], new_tokens: int) -> dict[str, Any]:
    settings = {"max_new_tokens": new_tokens, "do_sample": False, **options}
    require_integer("max_new_tokens", settings["max_new_tokens"])
    _require_one_answer(settings.get("num_return_sequences"))
    return settings


def _require_one_answer(count: int | None) -> None:
    """Raise BadOption if the model is to write several answers, of which all but the first would be lost."""
    if count not in (None, 1):
        raise BadOption(
            f"num_return_sequences={count!r} asks for several answers, but one is explained: omit it, or explain each "
            "of them as the answer."
        )


def _keep_answer(model: Model, ids: list[int]) -> list[int]:
    """Return generated tokens up to their end; raise BadInput if there are none."""
    answer = _drop_end(model, ids)
    if not answer:
        raise BadInput(f"{model.name} writes nothing after this prompt: give an answer, {_advise_prompt(model)}.")
    return answer


def _advise_prompt(model: Model) -> str:
    """Return what other prompts a model may answer: one that was trained for chats ends those that are none."""
    if getattr(model.processor, "chat_template", None) is None:
        return "or another prompt"
    return "another prompt, or the prompt as a chat (--chat, in Python a list of messages)"


def _drop_end(model: Model, ids: list[int]) -> list[int]:
    """Return the tokens before the first that ends an answer."""
    ends = _list_ends(model)
    return list(takewhile(lambda token_id: token_id not in ends, ids))


def _list_ends(model: Model) -> Sequence[int]:
    ends = _read_ends(model)
    if isinstance(ends, int):
        return [ends]
    return ends or ()


def _read_ends(model: Model) -> int | Sequence[int] | None:
    """Return the token that ends an answer, several, or None."""
    ends: int | Sequence[int] | None = model.network.language_model.generation_config.eos_token_id
    return ends
