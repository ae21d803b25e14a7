"""Hide words wherever they stand in a data set, and as many others of the same texts beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.drift.audit_words import Candidate, name_units
from clearhead.drift.reasons import number_characters
from clearhead.model.inputs import Inputs, Item, collate, encode_all
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities
from clearhead.model_diff import Reasons
from clearhead.perturbation.features import Features, as_segments, as_span, label_positions, text_mask
from clearhead.perturbation.run import perturbed_logits
from clearhead.progress import progress

# Texts whose perturbed copies are made together.
MAX_CHUNK = 64


@dataclass(frozen=True, eq=False)
class HiddenWord:
    """Probabilities of all classes for the texts with a word (E × C): with the word, without it, without others."""

    before_EC: Array
    hidden_EC: Array
    control_EC: Array


@dataclass(frozen=True)
class HiddenText:
    """A text, its number, and the candidates to hide in it by their number."""

    reasons: Reasons
    number: int
    words: Mapping[int, Candidate]

    def mask(self) -> Tensor:
        """Return a row with everything, then two for each word: without it, and without as many others."""
        return torch.from_numpy(np.stack(list(self._rows())))

    def _rows(self) -> Iterator[Array]:
        names_U = name_units(self.reasons)
        yield np.ones(len(names_U), dtype=bool)
        for number, candidate in self.words.items():
            keep_U = names_U != candidate.word
            yield keep_U
            yield self._draw_control(keep_U, number)

    def _draw_control(self, keep_U: Array, word: int) -> Array:
        # A seed for each text and word, so that results do not depend on batches.
        generator = np.random.default_rng([self.number, word])
        others = np.flatnonzero(keep_U)
        count = min(len(others), len(keep_U) - len(others))
        control_U = np.ones(len(keep_U), dtype=bool)
        control_U[generator.choice(others, count, replace=False)] = False
        return control_U

    def split_rows(self, probability_RC: Array) -> Iterator[tuple[int, Array]]:
        """Yield each word with its three rows of the mask: before, hidden, control."""
        for index, word in enumerate(self.words):
            yield word, probability_RC[[0, 2 * index + 1, 2 * index + 2]]


def hide_words(
    model: Model, reasons: Sequence[Reasons], candidates: Sequence[Candidate], batch_size: int | None = None
) -> list[HiddenWord]:
    """Return what hiding each candidate in each of its texts does."""
    texts = list(_gather_texts(reasons, candidates))
    rows: dict[int, list[Array]] = {number: [] for number in range(len(candidates))}
    for text, probability_RC in _run_chunks(model, texts, batch_size):
        for word, probability_3C in text.split_rows(probability_RC):
            rows[word].append(probability_3C)
    return [HiddenWord(*np.stack(entries, axis=1)) for entries in rows.values()]


def _gather_texts(reasons: Sequence[Reasons], candidates: Sequence[Candidate]) -> Iterator[HiddenText]:
    """Yield the texts in which a candidate stands, in order."""
    for number, words in sorted(_group_by_text(candidates).items()):
        yield HiddenText(reasons[number], number, words)


def _group_by_text(candidates: Sequence[Candidate]) -> dict[int, dict[int, Candidate]]:
    groups: dict[int, dict[int, Candidate]] = {}
    for number, candidate in enumerate(candidates):
        for text in candidate.example_E.tolist():
            groups.setdefault(text, {})[number] = candidate
    return groups


def _run_chunks(
    model: Model, texts: Sequence[HiddenText], batch_size: int | None
) -> Iterator[tuple[HiddenText, Array]]:
    with progress(len(texts), "texts") as advance:
        for start in range(0, len(texts), MAX_CHUNK):
            chunk = texts[start : start + MAX_CHUNK]
            yield from zip(chunk, _run_texts(model, chunk, batch_size), strict=True)
            advance(len(chunk))


def _run_texts(model: Model, texts: Sequence[HiddenText], batch_size: int | None) -> Iterator[Array]:
    """Yield the probabilities of all classes for each row of each text."""
    inputs = _encode(model, texts)
    masks = [text.mask() for text in texts]
    features = list(_group_units(inputs, texts))
    for logits_RC in perturbed_logits(model, inputs, masks, features, batch_size=batch_size):
        yield class_probabilities(logits_RC, model.problem).cpu().numpy()


def _encode(model: Model, texts: Sequence[HiddenText]) -> Inputs:
    raw_texts = [text.reasons.text for text in texts]
    # Truncated as when they were explained.
    return collate(model, list(encode_all(model, raw_texts, overflow="truncate")))


def _group_units(inputs: Inputs, texts: Sequence[HiddenText]) -> Iterator[Features]:
    """Yield the words of each text as features of its row in the batch."""
    for item, mask_T, text in zip(inputs.items, text_mask(inputs).cpu(), texts, strict=True):
        numbers = torch.tensor(list(_number_tokens(item, text.reasons)))
        labels_T = label_positions(len(mask_T), mask_T.nonzero().flatten(), numbers)
        yield Features("word", labels_T, len(text.reasons.spans))


def _number_tokens(item: Item, reasons: Reasons) -> Iterator[int]:
    """Yield for each token the number of its word, from 1; 0 for special tokens and those outside all words."""
    unit_of_character = number_characters(as_segments(item.text or ""), reasons.spans)
    for offset, is_special in zip(item.offsets or (), item.special, strict=True):
        segment, start, end = as_span(offset)
        yield 0 if is_special else _number_first(unit_of_character[segment][start:end])


def _number_first(units: Array) -> int:
    """Return the number of the first word among the characters of a token."""
    # Some tokens begin with the blank before their word.
    numbers = units[units >= 0]
    return int(numbers[0]) + 1 if len(numbers) else 0
