"""Chats: lists of messages, rendered by a chat template, whose own tokens are special."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.errors import BadInput
from clearhead.model.batches import Item

Chat = Sequence[Mapping[str, Any]]
"""Messages with a role and a content: a text, or a list of parts, which are texts and pictures."""
Prompt = str | Chat
Ranges = Sequence[tuple[int, int]]


def is_chat(prompt: Any) -> bool:
    """Return whether this is one list of chat messages, each with a role and a content."""
    return _is_list(prompt) and bool(prompt) and all(map(_is_message, prompt))


def _is_list(prompt: Any) -> bool:
    # A text is a sequence too, and a single message can be taken for its keys.
    return isinstance(prompt, Sequence) and not isinstance(prompt, str | Mapping)


def _is_message(message: Any) -> bool:
    # Without a content a message may still call a tool.
    return isinstance(message, Mapping) and "role" in message


def list_parts(messages: Chat) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of all messages whose contents are lists of them."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, list | tuple):
            yield from content


def render_chat(processor: Any, name: str, messages: Chat) -> str:
    """Return a chat as the template of a tokenizer or processor writes it; `name` is the model's."""
    if not getattr(processor, "chat_template", None):
        raise BadInput(f"The tokenizer of {name} has no chat template: give the prompt as one text.")
    try:
        rendered: str = processor.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    except Exception as error:
        # Templates are programs of their own, with errors of many types.
        raise BadInput(f"The chat template of {name} refuses these messages: {error}") from error
    return rendered


def mark_template(item: Item, contents: Ranges) -> Item:
    """Return an item whose tokens outside of the contents of messages are special."""
    assert item.offsets is not None
    special = list(item.special)
    for index, offset in enumerate(item.offsets):
        special[index] |= not _lies_in(offset, contents)
    return replace(item, special=tuple(special))


def read_content(message: Mapping[str, Any]) -> str:
    """Return the text of a chat message without blanks around it, which templates drop; "" if it has none."""
    return " ".join(_list_texts(message))


def _list_texts(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message without blanks around them."""
    content = message.get("content", "")
    if isinstance(content, list | tuple):
        texts = [str(entry.get("text", "")).strip() for entry in content]
        return list(filter(None, texts))
    return [str(content).strip()]


def find_contents(rendered: str, messages: Chat) -> list[tuple[int, int]]:
    """Return where the contents of the messages stand in the rendered chat."""
    contents = []
    position = 0
    for content in _list_contents(messages):
        start = rendered.find(content, position)
        # A template may change a content, or leave it out.
        if content and start >= 0:
            position = start + len(content)
            contents.append((start, position))
    return contents


def _list_contents(messages: Chat) -> Iterator[str]:
    for message in messages:
        yield from _list_texts(message)


def _lies_in(offset: tuple[int, ...], ranges: Ranges) -> bool:
    start, end = offset[-2:]
    # Blanks around a content are the template's: without them nothing is left of such a token.
    return start < end and _is_within(start, end, ranges)


def _is_within(start: int, end: int, ranges: Ranges) -> bool:
    return any(first <= start and end <= last for first, last in ranges)
