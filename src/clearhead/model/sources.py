"""Sources: the documents, sentences, chat turns or other segments of a prompt that are explained as wholes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any

from clearhead.errors import BadInput, BadOption
from clearhead.model.batches import Item
from clearhead.model.chats import Chat, Prompt, is_chat, read_content
from clearhead.model.focus import is_integer_pair
from clearhead.model.source_span import SourceSpan
from clearhead.model.text_units import SENTENCE_PATTERN

SENTENCES = "sentences"
TURNS = "turns"
PLACEHOLDER = "{sources}"
SEPARATOR = "\n\n"
SHOWN_CHARACTERS = 40

Sources = str | Mapping[str, str] | Sequence[str] | Sequence[tuple[int, int]] | None
"""Documents or segments as texts (a mapping names them) or as characters (start, end); or "sentences" or "turns"."""


def insert_sources(prompt: Any, sources: Sources) -> Any:
    """Return a prompt that contains its documents.

    They stand where the prompt, or a message of it, says {sources}; otherwise, unless the prompt contains them already,
    before it, or before the text of the last message. Blank lines separate them.
    """
    texts = _list_texts(sources)
    if not texts:
        return prompt
    if is_chat(prompt):
        return _insert_into_chat(prompt, texts)
    if not isinstance(prompt, str):
        return prompt
    return _insert_into_text(prompt, texts)


def _insert_into_text(prompt: str, texts: Sequence[str]) -> str:
    documents = SEPARATOR.join(texts)
    if PLACEHOLDER in prompt:
        return prompt.replace(PLACEHOLDER, documents, 1)
    if _contains_any(prompt, texts):
        return prompt
    return documents + SEPARATOR + prompt


def _contains_any(prompt: str, texts: Sequence[str]) -> bool:
    return any(text in prompt for text in texts)


def _insert_into_chat(messages: Chat, texts: Sequence[str]) -> Chat:
    number = _choose_message(messages, texts)
    if number is None:
        return messages
    content = str(messages[number].get("content", ""))
    # A copy, because the messages belong to the caller.
    changed = {**messages[number], "content": _insert_into_text(content, texts)}
    return [*messages[:number], changed, *messages[number + 1 :]]


def _choose_message(messages: Chat, texts: Sequence[str]) -> int | None:
    """Return the message that documents are put into, by default the last; None if a message contains them already."""
    number = len(messages) - 1
    for index, message in enumerate(messages):
        content = str(message.get("content", ""))
        if PLACEHOLDER in content:
            number = index
        elif _contains_any(content, texts):
            return None
    return number


def _list_texts(sources: Sources) -> list[str]:
    """Return the sources that are given as texts; none for positions and for names of a division."""
    if sources is None or isinstance(sources, str):
        return []
    values = _list_values(sources)
    _require_values(values)
    # Positions are checked later, when the text that they count in is there.
    texts = [value.strip() for value in values if isinstance(value, str)]
    if texts:
        _validate_texts(texts, len(values))
    return texts


def _require_values(values: Sequence[Any]) -> None:
    if not values:
        raise BadInput("'sources' is empty: give documents or segments, or leave it out for the prompt's sentences.")


def _list_values(sources: Mapping[str, str] | Sequence[Any]) -> list[Any]:
    if isinstance(sources, Mapping):
        return list(sources.values())
    return list(sources)


def _validate_texts(texts: Sequence[str], count: int) -> None:
    """Raise BadInput unless all of `count` sources are texts, and none is empty."""
    if len(texts) < count:
        raise BadInput("'sources' mixes texts and positions: give texts, or pairs (start, end), for all.")
    if "" in texts:
        raise BadInput(f"Source {texts.index('') + 1} of {len(texts)} is empty: leave it out.")


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
    return _locate_sources(str(item.text), sources)


def _locate_sources(prompt: str, sources: Mapping[str, str] | Sequence[Any]) -> list[SourceSpan]:
    texts = _list_texts(sources)
    if texts:
        return _locate_texts(prompt, _name_sources(sources), texts)
    return [_read_pair(name, pair, prompt) for name, pair in zip(_name_sources(sources), sources, strict=True)]


def _name_sources(sources: Mapping[str, str] | Sequence[Any]) -> list[str]:
    if isinstance(sources, Mapping):
        return list(sources)
    # Numbers as people cite sources, from 1.
    return list(map(str, range(1, len(sources) + 1)))


def _find_sentences(item: Item) -> list[SourceSpan]:
    """Return the sentences of a prompt, without the markup of a chat."""
    spans: list[SourceSpan] = []
    for start, end in _find_runs(item):
        for first, last in _split_sentences(str(item.text), start, end):
            spans.append(SourceSpan(str(len(spans) + 1), first, last))
    return spans


def _split_sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    # Cut first: a sentence ends where its run does, whatever follows in the text.
    for match in re.finditer(SENTENCE_PATTERN, text[start:end], re.S):
        yield start + match.start(), start + match.end()


def _find_runs(item: Item) -> list[tuple[int, int]]:
    """Return the characters of consecutive tokens that are not special."""
    # Tokenizers without offsets cannot tell where tokens stand.
    if item.offsets is None:
        return [(0, len(str(item.text)))]
    runs = []
    for is_special, tokens in groupby(_list_tokens(item), key=itemgetter(0)):
        if not is_special:
            runs.append(_enclose(list(tokens)))
    return runs


def _list_tokens(item: Item) -> Iterator[tuple[bool, int, int]]:
    """Yield whether each token with characters is special, and its first and last character."""
    for offset, is_special in zip(item.offsets or (), item.special, strict=True):
        start, end = offset[-2:]
        # Blanks are between words as well as between messages.
        if start != end:
            yield bool(is_special), start, end


def _enclose(tokens: Sequence[tuple[bool, int, int]]) -> tuple[int, int]:
    return tokens[0][1], tokens[-1][2]


def _find_turns(item: Item, prompt: Prompt) -> list[SourceSpan]:
    if not is_chat(prompt):
        raise BadInput(f"sources={TURNS!r} needs a list of chat messages as prompt: use {SENTENCES!r} for a text.")
    # A message may only call a tool, without a text.
    messages: Any = list(filter(read_content, prompt))  # type: ignore[arg-type]
    names = list(map(itemgetter("role"), messages))
    return _locate_texts(str(item.text), names, list(map(read_content, messages)))


def _locate_texts(prompt: str, names: Sequence[str], texts: Sequence[str]) -> list[SourceSpan]:
    """Return where texts stand in a prompt, each after the one before it if it occurs there."""
    spans: list[SourceSpan] = []
    after = 0
    for name, text in zip(names, texts, strict=True):
        spans.append(_locate_text(prompt, name, text, after))
        after = spans[-1].end
    return spans


def _locate_text(prompt: str, name: str, text: str, after: int) -> SourceSpan:
    start = _find_text(prompt, text, after)
    _require_occurrence(name, text, start)
    return SourceSpan(name, start, start + len(text))


def _require_occurrence(name: str, text: str, start: int) -> None:
    if start < 0:
        raise BadInput(f"Source {name!r} ({_shorten(text)!r}) does not occur in the prompt, as other sources do.")


def _find_text(prompt: str, text: str, after: int) -> int:
    """Return where a text stands, −1 if it does not occur."""
    start = prompt.find(text, after)
    # Sources may be given in another order than that of the prompt.
    if start < 0:
        return prompt.find(text)
    return start


def _shorten(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - 1] + "…"


def _require_pair(value: Any) -> tuple[int, int]:
    if not is_integer_pair(value):
        raise BadInput(f"Invalid source {value!r}: give a text, or the characters (start, end) of the prompt.")
    start, end = value
    return start, end


def _read_pair(name: str, pair: Any, prompt: str) -> SourceSpan:
    start, end = _require_pair(pair)
    if not 0 <= start < end <= len(prompt):
        raise BadInput(f"Source ({start}, {end}) is not in the prompt, which has {len(prompt)} characters.")
    return SourceSpan(name, start, end)


def _validate_spans(spans: Sequence[SourceSpan]) -> None:
    for before, after in pairwise(sorted(spans, key=attrgetter("start"))):
        # Relevance of a token in two sources would count twice.
        if after.start < before.end:
            raise BadInput(
                f"Sources {_describe(before)} and {_describe(after)} overlap: every character belongs to one source at "
                "most."
            )


def _describe(span: SourceSpan) -> str:
    return f"{span.name!r} ({span.start}, {span.end})"
