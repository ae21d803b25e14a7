"""How much of a text the model read: what was cut off, and tokens that stand for words outside of its vocabulary."""

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Any
from unicodedata import category

from clearhead.model.word_columns import PlacedOffsets

if TYPE_CHECKING:
    # Both import torch, which views of saved explanations do without.
    from clearhead.model.batches import Item
    from clearhead.model.model import Model

READ_SHARE = "read_share"
"""The diagnostic with the share of a text's characters that the model read; missing if it read all."""
UNKNOWN_SHARE = "unknown_share"
"""The diagnostic with the share of a text's tokens that are unknown to the model; missing if it knows all."""
UNKNOWN_TOKEN = "unknown_token"
"""The diagnostic with the name of the token that stands for unknown words."""

COVERAGE = (READ_SHARE, UNKNOWN_SHARE, UNKNOWN_TOKEN)
DROPPED_CATEGORIES = {"Mn", "Me", "Cf", "Cc"}
"""Marks and invisible characters, such as the selector after a heart: tokenizers drop them wherever they stand."""
DROPPED_CHARACTERS = {"\N{REPLACEMENT CHARACTER}"}


def find_unknown_token(model: "Model") -> str | None:
    """Return the name of the token that stands for unknown words; None if the tokenizer has none of its own."""
    tokenizer = model.processor
    name = getattr(tokenizer, "unk_token", None)
    # Byte-level tokenizers know every text, and name the token at the end of texts instead.
    if name is None or name in (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token):
        return None
    return str(name)


def describe_coverage(item: "Item", unknown_token: str | None) -> dict[str, Any]:
    """Return diagnostics of a text that was not read as a whole; nothing if it was."""
    return {**_describe_cut(item), **_describe_unknown(item, unknown_token)}


def _describe_cut(item: "Item") -> dict[str, float]:
    # Prompts are never cut.
    if item.text is None or item.offsets is None or item.answer is not None:
        return {}
    share = _measure_read(item)
    return {READ_SHARE: share} if share < 1 and _is_cut(item) else {}


def _is_cut(item: "Item") -> bool:
    """Return whether anything before the first or after the last token is more than what tokenizers drop."""
    return any(map(_is_kept, _list_unread(item)))


def _list_unread(item: "Item") -> Iterator[str]:
    for segment, text in enumerate(_list_texts(item)):
        start, end = _find_ends(item, segment)
        yield from text[:start] + text[end:]


def _is_kept(character: str) -> bool:
    return not (character.isspace() or _is_dropped(character))


def _is_dropped(character: str) -> bool:
    return category(character) in DROPPED_CATEGORIES or character in DROPPED_CHARACTERS


def _measure_read(item: "Item") -> float:
    """Return the share of characters, without blanks, between the first and the last token of each text."""
    if isinstance(item.offsets, PlacedOffsets):
        return item.offsets.read_share
    read = 0
    total = 0
    for segment, text in enumerate(_list_texts(item)):
        start, end = _find_ends(item, segment)
        read += _count_characters(text[start:end])
        total += _count_characters(text)
    return read / max(1, total)


def _list_texts(item: "Item") -> Sequence[str]:
    assert item.text is not None
    return (item.text,) if isinstance(item.text, str) else item.text


def _count_characters(text: str) -> int:
    return sum(map(len, text.split()))


def _find_ends(item: "Item", segment: int) -> tuple[int, int]:
    """Return the first and the last character that tokens of a text stand for; no characters if it has none."""
    spans = list(_list_spans(item, segment))
    if not spans:
        return 0, 0
    starts, ends = zip(*spans, strict=True)
    return min(starts), max(ends)


def _list_spans(item: "Item", segment: int) -> Iterator[tuple[int, int]]:
    """Yield the characters of each token of one text."""
    # Masks are special, but stand in the text; tokens around the text have no characters.
    for offset in item.offsets or ():
        *pair_index, start, end = offset
        # Offsets of a single text do not name it.
        if end > start and pair_index in ([], [segment]):
            yield start, end


def _describe_unknown(item: "Item", unknown_token: str | None) -> dict[str, Any]:
    # Most texts have none, and the search in all tokens is quick.
    if unknown_token not in item.tokens:
        return {}
    tokens = list(compress(item.tokens, map(not_, item.special)))
    count = tokens.count(unknown_token)
    if not count:
        return {}
    return {UNKNOWN_SHARE: count / len(tokens), UNKNOWN_TOKEN: unknown_token}
