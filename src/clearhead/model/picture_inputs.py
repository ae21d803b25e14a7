"""Encode prompts with pictures: words and image tokens, and what enters the decoder for them."""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clearhead.errors import BadInput, first_line
from clearhead.model.batches import Encoded, Item
from clearhead.model.chats import Chat, find_contents, is_chat, mark_template, render_chat
from clearhead.model.image_inputs import input_box, open_image
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model
from clearhead.model.picture_embedding import embed_prompt
from clearhead.model.picture_layout import PromptTokens, find_layout
from clearhead.model.picture_prompts import PicturePrompt, split_prompt
from clearhead.model.picture_span import Area, PictureSpan
from clearhead.model.text_inputs import encode_text

# Values of further tokens, where a processor tells the types of tokens; in PaliGemma the answer has a type of its own.
NEW_TOKEN_TYPES = {"paligemma": 1}
TYPE_TENSORS = ("token_type_ids", "mm_token_type_ids")
NOT_FOR_THE_NETWORK = ("labels", "special_tokens_mask", "offset_mapping")
MARKUP = re.compile(r"<(fake_token_around_image|global-img|row_\d+_col_\d+|\|vision_(start|end)\|)>")
"""Tokens that enclose or name the tiles of a picture."""
# Families that cut the middle out of a picture.
CROPPING_TYPES = ("llava", "vipllava")


def encode_picture_prompt(model: Model, prompt: PicturePrompt) -> Encoded:
    """Tokenise a prompt with its pictures; it is embedded when it has an answer (`continue_picture_prompt`)."""
    if not model.reads_pictures:
        raise BadInput(f"{model.name} reads no pictures: give the prompt as a text or a list of chat messages.")
    pictures, words = split_prompt(prompt)
    images = list(map(open_image, pictures))
    if isinstance(words, Mapping):
        return _encode_tensors(model, images, words)
    if not images:
        return _encode_words(model, words)
    return _encode_images(model, images, words)


def _encode_words(model: Model, words: str | Chat) -> Encoded:
    """Tokenise a prompt without pictures, which shares a batch with others."""
    text = words if isinstance(words, str) else render_chat(model.processor, model.name, words)
    encoded = encode_text(model, text, "error", add_special_tokens=isinstance(words, str))
    ids = torch.tensor([encoded.values["input_ids"]], device=model.device)
    processed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
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
        tensors, item = _process(model, images, text)
    else:
        text = render_chat(_template_owner(model), model.name, messages)
        tensors, item = _process(model, images, text, add_special_tokens=False)
        item = _mark_contents(item, messages)
    return _finish(model, tensors, item, images)


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
    parts = [{"type": "image"}] * count
    return [{"role": "user", "content": [*parts, {"type": "text", "text": words}]}]


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
    # A shallow copy: the processor itself keeps its tokenizer.
    processor = copy.copy(model.picture_processor)
    keeper = _TextKeeper(processor.tokenizer)
    processor.tokenizer = keeper
    try:
        processed = processor(images=list(images), text=text, return_tensors="pt", **options)
    except Exception as error:
        # Processors count places in ways of their own, some without a message.
        places = text.count(_find_placeholder(processor))
        raise BadInput(
            f"The processor of {model.name} refuses this prompt, which has {places} places for {len(images)} pictures: "
            f"{first_line(error)}"
        ) from error
    tensors = _select_tensors(model, processed)
    encoded = encode_text(model, keeper.text, "error", add_special_tokens=keeper.adds_special)
    if encoded.values["input_ids"] == tensors["input_ids"][0].tolist():
        return tensors, encoded.item
    return tensors, _name_tokens(model, tensors["input_ids"][0].tolist())


def _select_tensors(model: Model, processed: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors = {}
    for name, value in processed.items():
        if name not in NOT_FOR_THE_NETWORK:
            tensor = torch.as_tensor(value).to(model.device)
            tensors[name] = tensor.to(model.dtype) if tensor.is_floating_point() else tensor
    return tensors


def _name_tokens(model: Model, ids: Sequence[int]) -> Item:
    """Return the tokens of a prompt whose text is not known."""
    special = set(model.processor.all_special_ids)
    words = [token_id for token_id in ids if token_id not in special]
    return Item(
        tokens=tuple(model.processor.convert_ids_to_tokens(list(ids))),
        special=tuple(map(special.__contains__, ids)),
        text=model.processor.decode(words),
    )


def _encode_tensors(model: Model, images: Sequence[Image.Image], given: Mapping[str, Any]) -> Encoded:
    tensors = _select_tensors(model, given)
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
    item = _collapse_pictures(item, [_add_markup(item.tokens, *end) for end in ends])
    values = {"input_ids": tensors["input_ids"][0].tolist()}
    return Encoded(replace(item, pictures=tuple(spans)), values, tensors)


def _image_token_id(config: Any) -> int:
    number = getattr(config, "image_token_id", None)
    return int(config.image_token_index if number is None else number)


def _find_spans(
    model: Model, tokens: PromptTokens, images: Sequence[Image.Image]
) -> tuple[list[PictureSpan], list[tuple[int, int]]]:
    """Return the pictures of a prompt, and the first and last image token of each."""
    layout = find_layout(tokens) if tokens.count else []
    _validate_count(len(layout), images)
    positions = iter([index for index, is_image in enumerate(tokens.is_image) if is_image])
    spans = []
    ends = []
    for number, areas in enumerate(layout):
        parts = [(next(positions), area) for area in areas]
        ends.append((parts[0][0], parts[-1][0]))
        image = images[number] if images else None
        spans.append(_make_span(parts, image, _find_box(model, tokens, image)))
    return spans, ends


def _make_span(parts: Sequence[tuple[int, Area | None]], image: Image.Image | None, box: Any) -> PictureSpan:
    # Tokens that end a line stand for no part.
    placed = [(position, area) for position, area in parts if area is not None]
    positions, areas = zip(*placed, strict=True)
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


def _add_markup(tokens: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Return the first and last token of a picture with the markup around it."""
    while first and MARKUP.fullmatch(tokens[first - 1]):
        first -= 1
    while last + 1 < len(tokens) and MARKUP.fullmatch(tokens[last + 1]):
        last += 1
    return first, last


def _collapse_pictures(item: Item, ends: Sequence[tuple[int, int]]) -> Item:
    """Return an item in whose text a short name stands for all tokens of a picture, from its first to its last."""
    # From the last, so that what comes before keeps its place.
    for number, (first, last) in reversed(list(enumerate(ends, 1))):
        item = _collapse_picture(item, first, last, f"[picture {number}]")
    return item


def _collapse_picture(item: Item, first: int, last: int, name: str) -> Item:
    special = (*item.special[:first], *[True] * (last + 1 - first), *item.special[last + 1 :])
    if item.offsets is None:
        return replace(item, special=special)
    start, end = item.offsets[first][0], item.offsets[last][1]
    moved = [_move(offset, len(name) - (end - start)) for offset in item.offsets[last + 1 :]]
    # The name is shown at the first token; the others have no characters.
    collapsed = [(start, start + len(name)), *[(0, 0)] * (last - first)]
    text = str(item.text)
    return replace(
        item,
        text=text[:start] + name + text[end:],
        offsets=(*item.offsets[:first], *collapsed, *moved),
        special=special,
    )


def _move(offset: tuple[int, ...], shift: int) -> tuple[int, ...]:
    # Special tokens have an empty span at the beginning.
    if offset == (0, 0):
        return offset
    return (offset[0] + shift, offset[1] + shift)


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
    tensors = dict(processed)
    added = len(ids) - processed["input_ids"].shape[1]
    tensors["input_ids"] = torch.tensor([ids], device=model.device)
    tensors["attention_mask"] = torch.ones_like(tensors["input_ids"])
    for name in TYPE_TENSORS:
        if name in processed:
            new_type = NEW_TOKEN_TYPES.get(model.network.language_model.config.model_type, 0)
            new_types = processed[name].new_full((1, added), new_type)
            tensors[name] = torch.cat([processed[name], new_types], 1)
    return tensors
