"""Evidence in texts: a real word that turns the prediction, of a model that is left as it is.

A word of the text is replaced by one of the words of the vocabulary that speak most for another class. If none of them
turns the whole text, half of it is tried, and then a quarter.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.evaluation.decisive_words import find_words, list_words
from clearhead.evaluation.planting import (
    Planting,
    choose_targets,
    list_content,
    list_rows,
    measure_lead,
    replace_token,
    run_encoded,
    target_probability,
)
from clearhead.model.inputs import Encoded, Item, collate
from clearhead.model.model import Model

DIVISORS = (1, 2, 4)
# A shorter piece has no other words to speak of.
MIN_TOKENS = 5
LOCATIONS = 4
# Other tokens that are deleted one by one; of a longer text as many at random.
MAX_DELETED = 64


@dataclass(frozen=True)
class Attempt:
    """A piece of a text with a word planted at one location: by how much it leads for its class."""

    row: Encoded
    location: int
    target: int
    lead: float = 0.0


def plant_words(model: Model, encoded: Sequence[Encoded], generator: np.random.Generator) -> Planting:
    """Replace a word of every text, or of a piece of it, by one that turns the prediction."""
    targets = choose_targets(run_encoded(model, encoded))
    words = _find_all_words(model, encoded, targets, generator)
    planted: dict[int, Attempt] = {}
    for divisor in DIVISORS:
        left = {index: row for index, row in enumerate(encoded) if index not in planted}
        pieces = _cut_all(left, divisor, generator)
        planted.update(_plant_pieces(model, pieces, targets, words, generator))
    return _assemble(model, encoded, targets, planted)


def _cut_all(rows: Mapping[int, Encoded], divisor: int, generator: np.random.Generator) -> dict[int, Encoded]:
    """Return a piece of every text that is long enough."""
    return {index: _cut(row, divisor, generator) for index, row in rows.items() if _can_cut(row, divisor)}


def _find_all_words(
    model: Model, encoded: Sequence[Encoded], targets: Sequence[int], generator: np.random.Generator
) -> dict[int, list[int]]:
    """Return for each class the words to plant, tried in texts that are to be turned."""
    words = {}
    for target in sorted(set(targets)):
        rows = [encoded[index] for index in list_rows(targets, target)]
        words[target] = find_words(model, rows, target, generator)
    return words


def _can_cut(row: Encoded, divisor: int) -> bool:
    if divisor == 1:
        return True
    # Of a pair, one text may vanish.
    return not isinstance(row.item.text, tuple) and len(list_content(row.item)) // divisor >= MIN_TOKENS


def _cut(row: Encoded, divisor: int, generator: np.random.Generator) -> Encoded:
    """Return a random piece of a text that begins with a word, with all of its special tokens."""
    content = list_content(row.item)
    size = len(content) // divisor
    first = _draw_start(row.item, content, size, generator)
    return _drop_tokens(row, {*content[:first], *content[first + size :]})


def _draw_start(item: Item, content: Sequence[int], size: int, generator: np.random.Generator) -> int:
    """Return which token that is not special a piece of this size begins with; it is the first for the whole text."""
    starts = [index for index in list_words(item) if index <= content[-size]]
    if not starts or size == len(content):
        return 0
    return content.index(int(generator.choice(starts)))


def _drop_tokens(row: Encoded, dropped: Set[int]) -> Encoded:
    return _keep_tokens(row, [index for index in range(row.length) if index not in dropped])


def _keep_tokens(row: Encoded, indices: Sequence[int]) -> Encoded:
    """Return some tokens of an encoded text."""
    values = {name: list(_pick(numbers, indices)) for name, numbers in row.values.items()}
    return Encoded(_keep_item(row.item, indices), values)


def _keep_item(item: Item, indices: Sequence[int]) -> Item:
    kept = replace(item, tokens=_pick(item.tokens, indices), special=_pick(item.special, indices))
    # Not every tokenizer tells where its tokens stand.
    if item.offsets is None:
        return kept
    return replace(kept, offsets=_pick(item.offsets, indices))


def _pick(values: Sequence[Any], indices: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[index] for index in indices)


def _plant_pieces(
    model: Model,
    pieces: Mapping[int, Encoded],
    targets: Sequence[int],
    words: Mapping[int, Sequence[int]],
    generator: np.random.Generator,
) -> dict[int, Attempt]:
    """Return the best attempt at each piece that was turned, and that the planted word decides."""
    planted = {}
    for index, piece in pieces.items():
        target = targets[index]
        attempt = _find_best(model, _list_attempts(piece, target, words[target], generator))
        if _decides(model, attempt, run_encoded(model, [piece])[0], generator):
            planted[index] = attempt
    return planted


def _decides(model: Model, attempt: Attempt, before_C: Tensor, generator: np.random.Generator) -> bool:
    """Return whether the word turns the prediction, and matters more than any other token."""
    return _is_turned(attempt, before_C) and _matters_most(model, attempt, before_C, generator)


def _is_turned(attempt: Attempt, before_C: Tensor) -> bool:
    # A text that had the class before proves nothing.
    return attempt.lead > 0 and int(before_C.argmax()) != attempt.target


def _list_attempts(
    piece: Encoded, target: int, words: Sequence[int], generator: np.random.Generator
) -> Iterator[Attempt]:
    """Yield a piece with each of some words at each of some locations."""
    for location in generator.permutation(list_words(piece.item))[:LOCATIONS].tolist():
        for word in words:
            yield Attempt(replace_token(piece, location, word), location, target)


def _find_best(model: Model, attempts: Iterator[Attempt]) -> Attempt:
    """Return the attempt whose class leads most."""
    tried = list(attempts)
    logits_NC = run_encoded(model, [attempt.row for attempt in tried])
    lead_N = measure_lead(logits_NC, tried[0].target)
    best = int(lead_N.argmax())
    return replace(tried[best], lead=float(lead_N[best]))


def _matters_most(model: Model, attempt: Attempt, before_C: Tensor, generator: np.random.Generator) -> bool:
    """Return whether no other single token takes as much from the class as the planted one."""
    rest_NC = run_encoded(model, _delete_others(attempt.row, attempt.location, generator))
    left = target_probability(rest_NC, attempt.target).min()
    return bool(left > target_probability(before_C, attempt.target))


def _delete_others(row: Encoded, location: int, generator: np.random.Generator) -> list[Encoded]:
    """Return the text without each of its other tokens; the text itself if there are none."""
    others = list_content(row.item)
    others.remove(location)
    drawn = generator.permutation(others)[:MAX_DELETED].tolist()
    return [_drop_tokens(row, {index}) for index in drawn] or [row]


def _assemble(
    model: Model, encoded: Sequence[Encoded], targets: tuple[int, ...], planted: Mapping[int, Attempt]
) -> Planting:
    """Return all texts, those in which nothing decides as they were."""
    attempts = _fill_in(encoded, targets, planted)
    names = [_name_planted(model, attempt) for attempt in attempts]
    rows = list(map(_show_planted, attempts, names))
    locations = [attempt.location for attempt in attempts]
    decides = [attempt.lead > 0 for attempt in attempts]
    return Planting(model, collate(model, rows), targets, locations, decides, names)


def _fill_in(encoded: Sequence[Encoded], targets: Sequence[int], planted: Mapping[int, Attempt]) -> list[Attempt]:
    """Return an attempt for each text, also where none decides."""
    left = map(_leave, encoded, targets)
    return [planted.get(index, attempt) for index, attempt in enumerate(left)]


def _leave(row: Encoded, target: int) -> Attempt:
    """Return a text as it is, with its first token in place of a planted one."""
    return Attempt(row, list_content(row.item)[0], target)


def _name_planted(model: Model, attempt: Attempt) -> str:
    token = attempt.row.values["input_ids"][attempt.location]
    return str(model.processor.decode([token])).strip()


def _show_planted(attempt: Attempt, name: str) -> Encoded:
    """Return the text with the name of the planted token, and without characters that it does not stand in."""
    tokens = list(attempt.row.item.tokens)
    tokens[attempt.location] = name
    item: Item = replace(attempt.row.item, tokens=tuple(tokens), text=None, offsets=None)
    return Encoded(item, attempt.row.values)
