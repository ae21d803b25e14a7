"""Hide words wherever they stand in a data set, and as many others of the same texts beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.drift.audit_words import Candidate, normalise_unit
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


def hide_words(
    model: Model, reasons: Sequence[Reasons], candidates: Sequence[Candidate], batch_size: int | None = None
) -> list[HiddenWord]:
    """Return what hiding each candidate in each of its texts does."""
    words_by_example = _group_by_example(candidates)
    rows: list[list[Array]] = [[] for _ in candidates]
    with progress(len(words_by_example), "texts") as advance:
        numbers = list(words_by_example)
        for start in range(0, len(numbers), MAX_CHUNK):
            chunk = numbers[start : start + MAX_CHUNK]
            texts = [HiddenText(reasons[number], number, words_by_example[number]) for number in chunk]
            for text, probability_RC in zip(texts, _run_texts(model, texts, candidates, batch_size), strict=True):
                _sort_rows(text, probability_RC, rows)
            advance(len(chunk))
    return [HiddenWord(*np.stack(entries, axis=1)) for entries in rows]


def _group_by_example(candidates: Sequence[Candidate]) -> dict[int, list[int]]:
    """Return the examples in order, with the numbers of the candidates that stand in each."""
    words: dict[int, list[int]] = {}
    for number, candidate in enumerate(candidates):
        for example in candidate.example_E.tolist():
            words.setdefault(example, []).append(number)
    return dict(sorted(words.items()))


@dataclass(frozen=True)
class HiddenText:
    """A text and the numbers of the candidates to hide in it."""

    reasons: Reasons
    number: int
    words: Sequence[int]

    def mask(self, candidates: Sequence[Candidate]) -> Tensor:
        """Return a row with everything, then two for each word: without it, and without as many others."""
        names = np.array([normalise_unit(word) for word in self.reasons.words])
        rows = [np.ones(len(names), dtype=bool)]
        for word in self.words:
            keep_U = names != candidates[word].word
            rows += [keep_U, self._draw_control(keep_U, word)]
        return torch.from_numpy(np.stack(rows))

    def _draw_control(self, keep_U: Array, word: int) -> Array:
        others = np.flatnonzero(keep_U)
        count = min(len(others), int((~keep_U).sum()))
        # A seed for each text and word, so that results do not depend on what else is tested.
        drawn = np.random.default_rng([self.number, word]).choice(others, count, replace=False)
        control_U = np.ones(len(keep_U), dtype=bool)
        control_U[drawn] = False
        return control_U


def _run_texts(
    model: Model, texts: Sequence[HiddenText], candidates: Sequence[Candidate], batch_size: int | None
) -> list[Array]:
    """Return the probabilities of all classes for each row of each text."""
    raws = [text.reasons.text for text in texts]
    inputs = collate(model, list(encode_all(model, raws, overflow="truncate")))
    masks = [text.mask(candidates) for text in texts]
    features = _group_units(inputs, texts)
    logits = perturbed_logits(model, inputs, masks, features, batch_size=batch_size)
    return [class_probabilities(rows, model.problem).cpu().numpy() for rows in logits]


def _group_units(inputs: Inputs, texts: Sequence[HiddenText]) -> list[Features]:
    masks = text_mask(inputs).cpu()
    features = []
    for item, mask_T, text in zip(inputs.items, masks, texts, strict=True):
        positions = mask_T.nonzero().flatten()
        numbers = torch.tensor(_number_tokens(item, text.reasons))
        features.append(Features("word", label_positions(len(mask_T), positions, numbers), len(text.reasons.spans)))
    return features


def _number_tokens(item: Item, reasons: Reasons) -> list[int]:
    """Return for each token the number of its word, from 1; 0 for special tokens and those outside all words."""
    unit_of_character = number_characters(as_segments(item.text or ""), reasons.spans)
    numbers = []
    for offset, is_special in zip(item.offsets or (), item.special, strict=True):
        segment, start, end = as_span(offset)
        # Some tokens begin with the blank before their word; of two words in one token the first counts.
        units = unit_of_character[segment][start:end] + 1
        numbers.append(0 if is_special else int(next(filter(None, units.tolist()), 0)))
    return numbers


def _sort_rows(text: HiddenText, probability_RC: Array, rows: list[list[Array]]) -> None:
    """Add before, hidden and control of each word of a text to the rows of that word."""
    for index, word in enumerate(text.words):
        rows[word].append(probability_RC[[0, 2 * index + 1, 2 * index + 2]])
