"""Encode prompts with pictures: words and image tokens, and what enters the decoder for them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from clearhead.errors import BadInput, first_line
from clearhead.model.batches import Encoded, Inputs, Item, move_to_model
from clearhead.model.chats import Chat, find_contents, is_chat, mark_template, render_chat
from clearhead.model.image_inputs import input_box, open_image
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model
from clearhead.model.picture_embedding import embed_prompt
from clearhead.model.picture_layout import PromptTokens, find_layout
from clearhead.model.picture_names import collapse_pictures
from clearhead.model.picture_prompts import PicturePrompt, split_prompt
from clearhead.model.picture_span import Area, PictureSpan
from clearhead.model.text_inputs import PROMPT_ADVICE, encode_text

# Values of further tokens, where a processor tells the types of tokens; in PaliGemma the answer has a type of its own.
NEW_TOKEN_TYPES = {"paligemma": 1}
TYPE_TENSORS = ("token_type_ids", "mm_token_type_ids")
NOT_FOR_THE_NETWORK = ("labels", "special_tokens_mask", "offset_mapping")
# What tells a single message of a chat from other dicts.
MESSAGE_KEYS = {"role", "content"}
# Families that cut the middle out of a picture.
CROPPING_TYPES = ("llava", "vipllava")


def _refuse_pictures(model: Model, prompt: PicturePrompt) -> BadInput:
    advice = "give the prompt as a text or a list of chat messages"
    if isinstance(prompt, Mapping) and prompt.keys() & MESSAGE_KEYS:
        return BadInput(
            "A chat is a list of messages, each with a role and a content: [{'role': 'user', 'content': …}]."
        )
    if isinstance(prompt, Mapping):
        return BadInput(f"A dict cannot be explained by {model.name}, which reads no pictures: {advice}.")
    return BadInput(f"{model.name} reads no pictures: {advice}, or choose a model that does.")


def encode_picture_prompt(model: Model, prompt: PicturePrompt) -> Encoded:
    """Tokenise a prompt with its pictures; it is embedded when it has an answer (`continue_picture_prompt`)."""
    if not model.reads_pictures:
        raise _refuse_pictures(model, prompt)
    pictures, words = split_prompt(prompt)
    images = list(map(open_image, pictures))
    if isinstance(words, Mapping):
        return _encode_tensors(model, images, words)
    if not images:
        return _encode_words(model, words)
    return _encode_images(model, images, words)


def needs_token_types(model: Model) -> bool:
    """Return whether token types say where a model's answer begins, before which it reads in both directions."""
    return model.reads_pictures and model.network.language_model.config.model_type in NEW_TOKEN_TYPES


def _encode_words(model: Model, words: str | Chat) -> Encoded:
    """Tokenise a prompt without pictures as others are."""
    text = words if isinstance(words, str) else render_chat(model.processor, model.name, words)
    encoded = encode_text(model, text, "error", add_special_tokens=isinstance(words, str), advice=PROMPT_ADVICE)
    ids = torch.tensor([encoded.values["input_ids"]], device=model.device)
    processed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if needs_token_types(model):
        processed["token_type_ids"] = torch.zeros_like(ids)
    return replace(encoded, processed=processed, item=_mark_contents(encoded.item, words))


def _mark_contents(item: Item, words: str | Chat) -> Item:
    if item.offsets is None or not is_chat(words):
        return item
    return mark_template(item, find_contents(str(item.text), words))  # type: ignore[arg-type]


def _encode_images(model: Model, images: Sequence[Image.Image], words: str | Chat) -> Encoded:
    processor = _require_processor(model)
    messages = _as_messages(processor, words, len(images))
    if messages is None:
        text = _add_placeholders(processor, str(words), len(images))
        return _finish(model, *_process(model, images, text), images)
    rendered = render_chat(_template_owner(model), model.name, messages)
    # The template contains the special tokens already.
    tensors, item = _process(model, images, rendered, add_special_tokens=False)
    return _finish(model, tensors, _mark_contents(item, messages), images)


def _require_processor(model: Model) -> Any:
    if model.picture_processor is None:
        raise BadInput(
            f"{model.name} was loaded without a processor of pictures and words (AutoProcessor): load it with one. If "
            "that processor needs torchvision, give its tensors instead of the prompt, or (picture, tensors)."
        )
    return model.picture_processor


def _template_owner(model: Model) -> Any:
    """Return what has the chat template: the processor or its tokenizer."""
    if getattr(model.picture_processor, "chat_template", None):
        return model.picture_processor
    return model.processor


def _as_messages(processor: Any, words: str | Chat, count: int) -> Chat | None:
    """Return a prompt as a chat; None for a text that says itself where its pictures stand, or without a template."""
    if not isinstance(words, str):
        return words
    if _find_placeholder(processor) in words or not getattr(processor, "chat_template", None):
        return None
    entries = [{"type": "image"}] * count
    return [{"role": "user", "content": [*entries, {"type": "text", "text": words}]}]


def _find_placeholder(processor: Any) -> str:
    return str(getattr(processor, "image_token", "<image>"))


def _add_placeholders(processor: Any, text: str, count: int) -> str:
    placeholder = _find_placeholder(processor)
    if placeholder in text:
        return text
    return placeholder * count + "\n" + text


class _TextKeeper:
    """A tokenizer that keeps the text it was called with, in which a processor has put the image tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.text = ""
        self.adds_special = True

    def __call__(self, text: Any, **options: Any) -> Any:
        self.text = text if isinstance(text, str) else text[0]
        self.adds_special = options.get("add_special_tokens", True)
        return self.tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def _process(model: Model, images: Sequence[Image.Image], text: str, **options: Any) -> tuple[dict[str, Tensor], Item]:
    """Return the tensors of a prompt, and its tokens with their characters in the text with all image tokens."""
    keeper = _TextKeeper(model.picture_processor.tokenizer)
    # A shallow copy: the processor itself keeps its tokenizer.
    processor = copy.copy(model.picture_processor)
    processor.tokenizer = keeper
    try:
        processed = processor(images=list(images), text=text, return_tensors="pt", **options)
    except Exception as error:
        # Processors count pictures in ways of their own, some without a message.
        raise _refused_prompt(model, text, len(images), error) from error
    tensors = _select_tensors(model, processed)
    return tensors, _describe_tokens(model, keeper, tensors["input_ids"][0].tolist())


def _refused_prompt(model: Model, text: str, count: int, error: Exception) -> BadInput:
    expected = text.count(_find_placeholder(model.picture_processor))
    return BadInput(
        f"The processor of {model.name} refuses this prompt, which has {expected} image tokens for {count} pictures: "
        f"{first_line(error)}"
    )


def _describe_tokens(model: Model, keeper: _TextKeeper, ids: list[int]) -> Item:
    """Return the tokens with their characters, if the text that the tokenizer was given has just these tokens."""
    encoded = encode_text(model, keeper.text, "error", add_special_tokens=keeper.adds_special, advice=PROMPT_ADVICE)
    if encoded.values["input_ids"] == ids:
        return encoded.item
    return _name_tokens(model, ids)


def _select_tensors(model: Model, processed: Mapping[str, Any]) -> dict[str, Tensor]:
    names = [name for name in processed if name not in NOT_FOR_THE_NETWORK]
    tensors = {name: torch.as_tensor(processed[name]) for name in names}
    return move_to_model(Inputs(tensors, ()), model).tensors


def _name_tokens(model: Model, ids: Sequence[int]) -> Item:
    """Return the tokens of a prompt whose text is not known."""
    special = set(model.processor.all_special_ids)
    words = [token_id for token_id in ids if token_id not in special]
    return Item(
        tokens=tuple(model.processor.convert_ids_to_tokens(list(ids))),
        special=tuple(map(special.__contains__, ids)),
        text=model.processor.decode(words),
    )


def _encode_tensors(model: Model, images: Sequence[Image.Image], processed: Mapping[str, Any]) -> Encoded:
    tensors = _select_tensors(model, processed)
    _validate_tensors(tensors)
    tensors.setdefault("attention_mask", torch.ones_like(tensors["input_ids"]))
    return _finish(model, tensors, _name_tokens(model, tensors["input_ids"][0].tolist()), images)


def _validate_tensors(tensors: Mapping[str, Tensor]) -> None:
    if "input_ids" not in tensors or tensors["input_ids"].shape[:1] != (1,):
        raise BadInput("The tensors of a prompt with pictures are those of one prompt, with input_ids of shape (1, T).")
    mask = tensors.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise BadInput("The tensors of a prompt with pictures have padding: give those of one prompt, without padding.")


def _finish(model: Model, tensors: dict[str, Tensor], item: Item, images: Sequence[Image.Image]) -> Encoded:
    """Return the prompt with its pictures in their places."""
    config = model.network.language_model.config
    is_image = (tensors["input_ids"][0] == _image_token_id(config)).tolist()
    spans, ends = _find_spans(model, PromptTokens(config, tensors, item.tokens, is_image), images)
    item = collapse_pictures(item, ends)
    values = {"input_ids": tensors["input_ids"][0].tolist()}
    return Encoded(replace(item, pictures=tuple(spans)), values, tensors)


def _image_token_id(config: Any) -> int:
    number = getattr(config, "image_token_id", None)
    return int(config.image_token_index if number is None else number)


def _find_spans(
    model: Model, tokens: PromptTokens, images: Sequence[Image.Image]
) -> tuple[list[PictureSpan], list[tuple[int, int]]]:
    """Return the pictures of a prompt, and the first and last image token of each."""
    pictures = _assign_tokens(tokens)
    _validate_count(len(pictures), images)
    # Without images the tensors of the prompt were given.
    shown: Sequence[Image.Image | None] = images or [None] * len(pictures)
    spans = []
    for pairs, image in zip(pictures, shown, strict=True):
        spans.append(_make_span(pairs, image, _find_box(model, tokens, image)))
    return spans, [(pairs[0][0], pairs[-1][0]) for pairs in pictures]


def _assign_tokens(tokens: PromptTokens) -> list[list[tuple[int, Area | None]]]:
    """Return for each picture its image tokens with the parts they stand for."""
    if not tokens.count:
        return []
    positions = compress(range(len(tokens.is_image)), tokens.is_image)
    return [list(zip(islice(positions, len(areas)), areas, strict=True)) for areas in find_layout(tokens)]


def _make_span(pairs: Sequence[tuple[int, Area | None]], image: Image.Image | None, box: Any) -> PictureSpan:
    # Tokens that end a line stand for no part.
    positions, areas = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
    return PictureSpan(positions, areas, image, box)


def _validate_count(count: int, images: Sequence[Image.Image]) -> None:
    if images and count != len(images):
        raise BadInput(
            f"{len(images)} pictures were given, but the prompt has image tokens for {count}: give one for each, and "
            "let the processor make no crops (do_pan_and_scan=False)."
        )


def _find_box(model: Model, tokens: PromptTokens, image: Image.Image | None) -> Any:
    if image is None:
        return None
    if tokens.config.model_type not in CROPPING_TYPES or model.picture_processor is None:
        return (0, 0, *image.size)
    height, width = tokens.tensors["pixel_values"].shape[-2:]
    return input_box(model.picture_processor.image_processor, image.size, (width, height))


def continue_picture_prompt(model: Model, prompt: Encoded, ids: Sequence[int]) -> dict[str, Any]:
    """Return the values of a prompt that is followed by further tokens: what enters the decoder for all of them."""
    assert prompt.processed is not None
    tensors = _extend_tensors(model, prompt.processed, ids)
    embeddings, positions = embed_prompt(model.network.language_model, tensors)
    values = {
        "inputs_embeds": embeddings,
        "attention_mask": [1] * len(ids),
        ANSWER_POSITIONS: list(range(prompt.length - 1, len(ids))),
    }
    if positions is not None:
        values["position_ids"] = positions
    if "token_type_ids" in tensors:
        values["token_type_ids"] = tensors["token_type_ids"][0].tolist()
    return values


def _extend_tensors(model: Model, processed: Mapping[str, Tensor], ids: Sequence[int]) -> dict[str, Tensor]:
    """Return the tensors of a prompt with further tokens."""
    tensors = dict(processed)
    tensors["input_ids"] = torch.tensor([ids], device=model.device)
    tensors["attention_mask"] = torch.ones_like(tensors["input_ids"])
    for name in processed.keys() & set(TYPE_TENSORS):
        tensors[name] = F.pad(processed[name], (0, _count_new(processed, ids)), value=_find_new_type(model))
    return tensors


def _count_new(processed: Mapping[str, Tensor], ids: Sequence[int]) -> int:
    return len(ids) - processed["input_ids"].shape[1]


def _find_new_type(model: Model) -> int:
    return NEW_TOKEN_TYPES.get(model.network.language_model.config.model_type, 0)
