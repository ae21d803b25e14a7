"""Hide words wherever they stand in a data set, and as many others of the same texts beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from clearhead.arrays import Array
from clearhead.drift.audit_words import Candidate, name_units
from clearhead.drift.hidden_units import HiddenInput, HiddenUnit, collect_hidden
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


@dataclass(frozen=True)
class HiddenText(HiddenInput):
    """A text, and the candidates to hide in it by their number."""

    reasons: Reasons
    words: Mapping[int, Candidate]

    @property
    def kept(self) -> dict[int, Array]:
        names_U = name_units(self.reasons)
        return {number: names_U != candidate.word for number, candidate in self.words.items()}


def hide_words(
    model: Model, reasons: Sequence[Reasons], candidates: Sequence[Candidate], batch_size: int | None = None
) -> list[HiddenUnit]:
    """Return what hiding each candidate in each of its texts does."""
    texts = list(_gather_texts(reasons, candidates))
    # Every candidate stands in a text, so there is an outcome for each.
    return list(collect_hidden(_run_chunks(model, texts, batch_size)).values())


def _gather_texts(reasons: Sequence[Reasons], candidates: Sequence[Candidate]) -> Iterator[HiddenText]:
    """Yield the texts in which a candidate stands, in order."""
    for number, words in sorted(_group_by_text(candidates).items()):
        yield HiddenText(number, len(reasons[number].spans), reasons[number], words)


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
