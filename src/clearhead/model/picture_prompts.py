"""The forms in which a prompt with pictures can be given."""

from collections.abc import Iterator, Mapping
from typing import Any

from clearhead.errors import BadInput
from clearhead.model.chats import Chat, is_chat, list_parts

PicturePrompt = str | Chat | Mapping[str, Any] | tuple[Any, Any]
"""A text, a chat, tensors of the network, or one of these after the picture or the list of pictures it is about."""
IMAGE_KEYS = ("image", "path", "url")
"""Names under which the part of a message may have its picture."""


def has_pictures(prompt: Any) -> bool:
    """Return whether a prompt comes with pictures, or as tensors, which may hold some."""
    return is_picture_pair(prompt) or isinstance(prompt, Mapping) or _has_picture_parts(prompt)


def is_picture_pair(prompt: Any) -> bool:
    """Return whether this is a pair of pictures and what is said about them."""
    return isinstance(prompt, tuple) and len(prompt) == 2 and _can_follow(prompt[1])


def _can_follow(words: Any) -> bool:
    return isinstance(words, str | Mapping) or is_chat(words)


def _has_picture_parts(prompt: Any) -> bool:
    return is_chat(prompt) and any(map(_is_picture, list_parts(prompt)))


def _is_picture(entry: Mapping[str, Any]) -> bool:
    return entry.get("type") == "image"


def split_prompt(prompt: Any) -> tuple[list[Any], Any]:
    """Return the pictures of a prompt, and what is said about them: a text, a chat without pictures, or tensors."""
    if not is_picture_pair(prompt):
        return _split_words([], prompt)
    pictures, words = prompt
    if not isinstance(pictures, list | tuple):
        pictures = [pictures]
    return _split_words(list(pictures), words)


def _split_words(pictures: list[Any], words: Any) -> tuple[list[Any], Any]:
    if is_chat(words):
        return _fill_parts(words, pictures), _drop_pictures(words)
    return pictures, words


def _fill_parts(messages: Chat, pictures: list[Any]) -> list[Any]:
    """Return a picture for every part that stands for one: its own, or the next of those before the chat."""
    following = iter(pictures)
    filled = [_find_picture(entry, following) for entry in filter(_is_picture, list_parts(messages))]
    if next(following, None) is not None:
        raise BadInput(
            f"The chat has parts for {len(filled)} pictures, but {len(pictures)} were given: add a part "
            '{"type": "image"} for each.'
        )
    return filled


def _find_picture(entry: Mapping[str, Any], following: Iterator[Any]) -> Any:
    for key in IMAGE_KEYS:
        if entry.get(key) is not None:
            return entry[key]
    picture = next(following, None)
    if picture is None:
        raise BadInput('A part {"type": "image"} of the chat has no picture: give it under "image".')
    return picture


def _drop_pictures(messages: Chat) -> list[dict[str, Any]]:
    """Return the messages with parts that only tell where the pictures stand."""
    return [_drop_from_message(message) for message in messages]


def _drop_from_message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = list(map(_drop_picture, content))
    return {**message, "content": content}


def _drop_picture(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    # Templates would show a picture as text.
    if _is_picture(entry):
        return {"type": "image"}
    return entry
