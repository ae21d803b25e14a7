"""Find the characters of a prompt that people marked as evidence for an answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clearhead.data.task import Spans
from clearhead.data.text_files import is_text
from clearhead.errors import BadInput

Span = tuple[int, int, int]


def locate_evidence(prompt: str | Sequence[Mapping[str, str]], evidence: Any) -> Spans | None:
    """Return where the evidence stands: all occurrences of texts, or pairs of characters; None without evidence.

    The segment of a span is 0, or the index of a chat message.
    """
    texts = _list_texts(prompt)
    spans: list[Span] = []
    for mark in _list_marks(evidence):
        spans += _locate_mark(texts, mark)
    # Several people may mark the same words.
    return tuple(dict.fromkeys(spans)) or None


def _list_texts(prompt: str | Sequence[Mapping[str, str]]) -> list[str]:
    if isinstance(prompt, str):
        return [prompt]
    return [message["content"] for message in prompt]


def _list_marks(evidence: Any) -> list[Any]:
    """Return the marks in a list: texts, or pairs of characters."""
    if evidence is None:
        return []
    if is_text(evidence):
        return [evidence]
    return _require_list(evidence)


def _require_list(evidence: Any) -> list[Any]:
    if not isinstance(evidence, list):
        raise BadInput("'evidence' is neither a text nor a list of texts or [start, end]")
    return evidence


def _locate_mark(texts: Sequence[str], mark: Any) -> list[Span]:
    if is_text(mark):
        return _find_words(texts, mark.strip())
    _require_range(mark)
    return [_locate_range(texts, *mark)]


def _require_range(mark: Any) -> None:
    if not _is_range(mark):
        raise BadInput(f"evidence {mark!r} is neither a text nor [start, end]")


def _locate_range(texts: Sequence[str], start: int, end: int) -> Span:
    _require_single_text(texts)
    if not 0 <= start < end <= len(texts[0]):
        raise BadInput(f"evidence [{start}, {end}] points outside the prompt")
    return 0, start, end


def _require_single_text(texts: Sequence[str]) -> None:
    if len(texts) > 1:
        raise BadInput("evidence in a chat is given as texts, because characters belong to one message")


def _is_range(mark: Any) -> bool:
    # A truth value is an integer in Python, but no position.
    return isinstance(mark, list) and len(mark) == 2 and all(type(position) is int for position in mark)


def _find_words(texts: Sequence[str], words: str) -> list[Span]:
    """Return every occurrence as whole words, else every occurrence; raise BadInput if there is none."""
    escaped = re.escape(words)
    # Evidence may be a part of a word, such as an ending, but "he" does not mean the middle of "they".
    spans = list(_match(texts, rf"(?<!\w){escaped}(?!\w)")) or list(_match(texts, escaped))
    _require_occurrence(words, spans)
    return spans


def _require_occurrence(words: str, spans: Sequence[Span]) -> None:
    if not spans:
        raise BadInput(f"the evidence {words!r} does not occur in the prompt")


def _match(texts: Sequence[str], pattern: str) -> Iterator[Span]:
    for segment, text in enumerate(texts):
        for match in re.finditer(pattern, text):
            yield segment, *match.span()
