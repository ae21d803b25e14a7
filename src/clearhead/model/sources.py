"""Sources: the documents, sentences, chat turns or other segments of a prompt that are explained as wholes."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from clearhead.errors import BadInput, BadOption
from clearhead.model.answer_inputs import Chat, Prompt, is_chat
from clearhead.model.batches import Item
from clearhead.model.source_span import SourceSpan

SENTENCE_PATTERN = r"\S.*?(?:[.!?]+(?=\s|$)|$)"
SENTENCES = "sentences"
TURNS = "turns"
PLACEHOLDER = "{sources}"
SEPARATOR = "\n\n"
SHOWN_CHARACTERS = 40

Sources = str | Mapping[str, str] | Sequence[str] | Sequence[tuple[int, int]] | None
"""Documents or segments as texts (a mapping names them) or as characters (start, end); or "sentences" or "turns"."""


def insert_sources(prompt: Prompt, sources: Sources) -> Prompt:
    """Return a prompt that contains its documents.

    They stand where the prompt, or a message of it, says {sources}; otherwise, unless the prompt contains them already,
    before it, or before the text of the last message. Blank lines separate them.
    """
    texts = _list_texts(sources)
    if not texts:
        return prompt
    if is_chat(prompt):
        return _insert_into_chat(prompt, texts)  # type: ignore[arg-type]
    if not isinstance(prompt, str):
        return prompt
    return _insert_into_text(prompt, texts)


def _insert_into_text(prompt: str, texts: Sequence[str]) -> str:
    documents = SEPARATOR.join(texts)
    if PLACEHOLDER in prompt:
        return prompt.replace(PLACEHOLDER, documents, 1)
    if any(text in prompt for text in texts):
        return prompt
    return documents + SEPARATOR + prompt


def _insert_into_chat(messages: Chat, texts: Sequence[str]) -> Chat:
    contents = [str(message.get("content", "")) for message in messages]
    number = len(contents) - 1
    for index, content in enumerate(contents):
        if PLACEHOLDER in content:
            number = index
        elif any(text in content for text in texts):
            return messages
    changed = {**messages[number], "content": _insert_into_text(contents[number], texts)}
    return [*messages[:number], changed, *messages[number + 1 :]]


def _list_texts(sources: Sources) -> list[str]:
    """Return the sources that are given as texts; none for positions and for names of a division."""
    if sources is None or isinstance(sources, str):
        return []
    values = list(sources.values()) if isinstance(sources, Mapping) else list(sources)
    if not values:
        raise BadInput("'sources' is empty: give documents or segments, or leave it out for the prompt's sentences.")
    texts = [value.strip() for value in values if isinstance(value, str)]
    if texts and len(texts) < len(values):
        raise BadInput("'sources' mixes texts and positions: give texts, or pairs (start, end), for all.")
    if "" in texts:
        raise BadInput(f"Source {texts.index('') + 1} of {len(texts)} is empty: leave it out.")
    return texts


def find_sources(item: Item, prompt: Prompt, sources: Sources) -> tuple[SourceSpan, ...]:
    """Return where the sources of a prompt stand in its text; by default these are its sentences."""
    spans = _find_spans(item, prompt, sources)
    _validate_spans(spans)
    return tuple(spans)


def _find_spans(item: Item, prompt: Prompt, sources: Sources) -> list[SourceSpan]:
    if sources is None or sources == SENTENCES:
        return _find_sentences(item)
    if sources == TURNS:
        return _find_turns(item, prompt)
    if isinstance(sources, str):
        raise BadOption(f"Invalid sources={sources!r}: give a list of texts or (start, end), {SENTENCES!r}, {TURNS!r}.")
    texts = _list_texts(sources)
    if texts:
        names = list(sources) if isinstance(sources, Mapping) else _number(texts)
        return _locate_texts(str(item.text), names, texts)
    return [_read_pair(name, pair, str(item.text)) for name, pair in zip(_number(sources), sources, strict=True)]


def _number(sources: Any) -> list[str]:
    return [str(number) for number in range(1, len(sources) + 1)]


def _find_sentences(item: Item) -> list[SourceSpan]:
    """Return the sentences of a prompt, without the markup of a chat."""
    spans: list[SourceSpan] = []
    for start, end in _find_runs(item):
        for match in re.finditer(SENTENCE_PATTERN, str(item.text)[start:end], re.S):
            spans.append(SourceSpan(str(len(spans) + 1), start + match.start(), start + match.end()))
    return spans


def _find_runs(item: Item) -> list[tuple[int, int]]:
    """Return the characters of consecutive tokens that are not special."""
    # Tokenizers without offsets cannot tell where tokens stand.
    if item.offsets is None:
        return [(0, len(str(item.text)))]
    runs: list[tuple[int, int]] = []
    follows = False
    for offset, is_special in zip(item.offsets, item.special, strict=True):
        start, end = offset[-2:]
        # Blanks are between words as well as between messages.
        if start == end:
            continue
        if not is_special and follows:
            runs[-1] = (runs[-1][0], end)
        elif not is_special:
            runs.append((start, end))
        follows = not is_special
    return runs


def _find_turns(item: Item, prompt: Prompt) -> list[SourceSpan]:
    if not is_chat(prompt):
        raise BadInput(f"sources={TURNS!r} needs a list of chat messages as prompt: use {SENTENCES!r} for a text.")
    names = []
    texts = []
    for message in prompt:
        assert isinstance(message, Mapping)
        text = str(message.get("content", "")).strip()
        # A message may only call a tool, without a text.
        if text:
            names.append(message["role"])
            texts.append(text)
    return _locate_texts(str(item.text), names, texts)


def _locate_texts(prompt: str, names: Sequence[str], texts: Sequence[str]) -> list[SourceSpan]:
    """Return where texts stand in a prompt, each after the one before it if it occurs there."""
    spans = []
    end = 0
    for name, text in zip(names, texts, strict=True):
        start = prompt.find(text, end)
        if start < 0:
            start = prompt.find(text)
        if start < 0:
            raise BadInput(f"Source {name!r} ({_shorten(text)!r}) does not occur in the prompt, as other sources do.")
        end = start + len(text)
        spans.append(SourceSpan(name, start, end))
    return spans


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _read_pair(name: str, pair: Any, prompt: str) -> SourceSpan:
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(end, int) for end in pair)
    if not is_pair:
        raise BadInput(f"Invalid source {pair!r}: give a text, or the characters (start, end) of the prompt.")
    start, end = pair
    if not 0 <= start < end <= len(prompt):
        raise BadInput(f"Source ({start}, {end}) is not in the prompt, which has {len(prompt)} characters.")
    return SourceSpan(name, start, end)


def _validate_spans(spans: Sequence[SourceSpan]) -> None:
    ordered = sorted(spans, key=lambda span: span.start)
    for before, after in pairwise(ordered):
        if after.start < before.end:
            raise BadInput(
                f"Sources {before.name!r} ({before.start}, {before.end}) and {after.name!r} ({after.start}, "
                f"{after.end}) overlap: every character belongs to one source at most."
            )
