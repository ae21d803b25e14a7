"""Which tokens of a text are explained: a word, an entity that the model finds, or a masked word."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.errors import BadInput
from clearhead.model.batches import Item
from clearhead.model.focus import Characters, FocusedOutput, Offsets, find_characters, find_index, is_index, overlap
from clearhead.model.model import Model

OUTSIDE = "O"
"""The label of tokens that belong to no entity."""
# First token, inside, end, single, last and unit of an entity, in the usual schemes.
ENTITY_PREFIX = re.compile(r"^[BIESLU]-")
BEGINNINGS = ("B-", "S-", "U-")
Entity = tuple[tuple[int, ...], str]
"""The tokens of an entity and the label of its first."""


@dataclass(frozen=True)
class TokenRow:
    """One text with the ids of its tokens (none if embeddings are given), and a function for the logits (T,C)."""

    item: Item
    ids: Sequence[int]
    predict: Callable[[], Tensor]


def find_labelled_word(model: Model, row: TokenRow, focus: Any) -> FocusedOutput:
    """Return the word or entity whose label is explained; None stands for the first entity that the model finds."""
    if focus is not None:
        return _name_tokens(row.item, find_tokens(row.item, focus))
    entities = list_entities(model, row)
    if not entities:
        raise _no_entity(model, row.item)
    return _name_tokens(row.item, entities[0][0], _describe_others(row.item, entities))


def _no_entity(model: Model, item: Item) -> BadInput:
    return BadInput(
        f"{model.name} finds no entity in the text: choose a word whose label is to be explained, such as "
        f"focus={_first_word(item)!r}."
    )


def list_entities(model: Model, row: TokenRow) -> list[Entity]:
    """Return the tokens of each entity that the model finds, with its label; of each word, if it labels all."""
    entities: list[tuple[list[int], str]] = []
    last = OUTSIDE
    for index, label in enumerate(_label_words(model, row)):
        if label != OUTSIDE:
            _add_token(entities, index, label, last)
        last = label
    return [(tuple(tokens), label) for tokens, label in entities]


def _label_words(model: Model, row: TokenRow) -> Iterator[str]:
    """Yield the label of each token; further tokens of a word have that of its first."""
    last = OUTSIDE
    for index, label in enumerate(_predict_labels(model, row)):
        # Many models are trained on the first token of a word only.
        if _continues_word(row.item, index):
            label = _continue_label(last)
        yield label
        last = label


def _predict_labels(model: Model, row: TokenRow) -> list[str]:
    """Return the label of each token; special tokens belong to no entity, whatever the model says of them."""
    labels = model.labels
    numbers = row.predict().argmax(-1).tolist()
    pairs = zip(numbers, row.item.special, strict=True)
    return [OUTSIDE if is_special else labels[number] for number, is_special in pairs]


def _continue_label(label: str) -> str:
    """Return the label of a further token of a word, as one that does not begin an entity."""
    if label == OUTSIDE:
        return OUTSIDE
    return f"I-{_strip_prefix(label)}"


def _add_token(entities: list[tuple[list[int], str]], index: int, label: str, last: str) -> None:
    """Add a token to the entity before it if it continues that, else as a new one."""
    continues = _is_inside(label) and _strip_prefix(last) == _strip_prefix(label)
    if continues and last != OUTSIDE:
        entities[-1][0].append(index)
    else:
        entities.append(([index], label))


def _is_inside(label: str) -> bool:
    # Schemes without prefixes do not tell where an entity begins: every word is its own.
    return ENTITY_PREFIX.match(label) is not None and not label.startswith(BEGINNINGS)


def _strip_prefix(label: str) -> str:
    return ENTITY_PREFIX.sub("", label)


def _continues_word(item: Item, index: int) -> bool:
    """Return whether a token goes on with the word of the token before it."""
    if item.special[index]:
        return False
    if item.offsets is None or item.text is None:
        return item.tokens[index].startswith("##")
    return _begins_inside(item, item.offsets[index])


def _begins_inside(item: Item, offset: tuple[int, ...]) -> bool:
    return _is_inside_word(_text_of(item, offset), offset[-2])


def _is_inside_word(text: str, start: int) -> bool:
    # By letters, not by tokens: every tokenizer has marks of its own for the pieces of a word.
    return 0 < start < len(text) and text[start - 1].isalnum() and text[start].isalnum()


def _text_of(item: Item, offset: tuple[int, ...]) -> str:
    """Return the text that a token stands in: that of its segment in a pair."""
    if isinstance(item.text, tuple):
        return item.text[offset[0]]
    return item.text or ""


def _describe_others(item: Item, entities: Sequence[Entity]) -> str:
    if len(entities) == 1:
        return ""
    # A few are enough to show that there is a choice.
    others = [f"{label} “{_read_text(item, tokens)}”" for tokens, label in entities[1:4]]
    return f"the first of {len(entities)} that the model finds, before {', '.join(others)}"


def _first_word(item: Item) -> str:
    for index, is_special in enumerate(item.special):
        if not is_special:
            return _read_text(item, (index,))
    return ""


def find_tokens(item: Item, focus: Any) -> tuple[int, ...]:
    """Return the tokens of words, of the characters (start, end), or with an index."""
    if is_index(focus):
        return (find_index(focus, len(item.tokens), "tokens"),)
    return _find_inside(item, focus)


def _find_inside(item: Item, focus: Any) -> tuple[int, ...]:
    tokens = _list_tokens(item, *_find_segment(item, focus))
    if not tokens:
        raise _no_token(item, focus)
    return tokens


def _no_token(item: Item, focus: Any) -> BadInput:
    return BadInput(f"No token of the text lies in focus={focus!r}: the text is {item.text!r}.")


def _list_tokens(item: Item, segment: int, start: int, end: int) -> tuple[int, ...]:
    """Return the tokens of a text of a pair that share a character with a range."""
    tokens = []
    for index, offset in enumerate(item.offsets or ()):
        # Special tokens have the empty span of the first text.
        if not item.special[index] and _lies_in(offset, segment) and overlap(offset, start, end):
            tokens.append(index)
    return tuple(tokens)


def _lies_in(offset: tuple[int, ...], segment: int) -> bool:
    # Offsets of a single text have no segment.
    return len(offset) == 2 or offset[0] == segment


def _find_segment(item: Item, focus: Any) -> tuple[int, int, int]:
    """Return the text of a pair that has the focus, and its characters there."""
    _require_offsets(item, focus)
    if isinstance(item.text, str):
        return 0, *find_characters(item.text, focus, "text")
    first, second = item.text or ("", "")
    # Characters count in the first text of a pair; words may stand in either.
    if isinstance(focus, str) and focus.strip() not in first:
        return 1, *find_characters(second, focus, "texts")
    return 0, *find_characters(first, focus, "texts")


def _require_offsets(item: Item, focus: Any) -> None:
    if item.text is None or item.offsets is None:
        raise BadInput(
            f"focus={focus!r} needs a text and where its tokens stand: give the index of a token, 0 … "
            f"{len(item.tokens) - 1}."
        )


def _name_tokens(item: Item, tokens: tuple[int, ...], note: str = "") -> FocusedOutput:
    name = f"at “{_read_text(item, tokens)}”"
    if item.offsets is None:
        return FocusedOutput(name, tokens, note=note)
    return FocusedOutput(name, tokens, _join_spans(item.offsets, tokens), note=note)


def _join_spans(offsets: Offsets, tokens: tuple[int, ...]) -> Characters:
    """Return the characters from the first to the last of some tokens."""
    return offsets[tokens[0]][-2], offsets[tokens[-1]][-1]


def _read_text(item: Item, tokens: tuple[int, ...]) -> str:
    """Return the text from the first to the last of some tokens; their names without a text."""
    if item.offsets is None or item.text is None:
        return " ".join(item.tokens[index] for index in tokens)
    return _cut_text(item, item.offsets, tokens) or item.tokens[tokens[0]]


def _cut_text(item: Item, offsets: Offsets, tokens: tuple[int, ...]) -> str:
    start, end = _join_spans(offsets, tokens)
    return _text_of(item, offsets[tokens[0]])[start:end]


def find_masked_word(model: Model, row: TokenRow, focus: Any) -> FocusedOutput:
    """Return the mask whose word is explained: the first, or that with an index or in a range of characters."""
    masks = list_masks(model, row.ids)
    if not masks:
        raise _no_mask(model)
    number = _choose_mask(row.item, masks, focus)
    return FocusedOutput(f"at {mask_name(model)}{_count_masks(number, len(masks))}", (masks[number],))


def _no_mask(model: Model) -> BadInput:
    name = mask_name(model)
    return BadInput(f"The input has no {name}: write {name} where {model.name} is to fill in a word.")


def _count_masks(number: int, count: int) -> str:
    # Counted only where there is something to confuse.
    return f" {number + 1} of {count}" if count > 1 else ""


def mask_name(model: Model) -> str:
    """Return what stands for a masked word."""
    return getattr(model.processor, "mask_token", None) or "mask token"


def list_masks(model: Model, ids: Sequence[int]) -> list[int]:
    """Return the positions of masked words."""
    # The tokenizer first: configurations often leave this id out.
    for source in (model.processor, model.config):
        mask_id = getattr(source, "mask_token_id", None)
        if mask_id is not None:
            return [index for index, token_id in enumerate(ids) if token_id == mask_id]
    raise BadInput(f"{model.name} does not tell its mask token: load it with its tokenizer.")


def _choose_mask(item: Item, masks: Sequence[int], focus: Any) -> int:
    if focus is None:
        return 0
    if is_index(focus):
        return find_index(focus, len(masks), "masks")
    return _find_mask(item, masks, focus)


def _find_mask(item: Item, masks: Sequence[int], focus: Any) -> int:
    """Return the number of the first mask in a range of characters."""
    _, start, end = _find_segment(item, focus)
    for number, mask in enumerate(masks):
        if _overlaps(item, mask, start, end):
            return number
    raise BadInput(f"focus={focus!r} is no masked word: give its number, 0 … {len(masks) - 1}.")


def _overlaps(item: Item, token: int, start: int, end: int) -> bool:
    return item.offsets is not None and overlap(item.offsets[token], start, end)
