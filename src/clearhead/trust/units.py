"""The units that a check hides and shows: words, sentences or sources of a text or a prompt, patches of an image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.batch_sizes import select_rows
from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs, Item
from clearhead.model.model import Model
from clearhead.model.text_units import LARGER_UNITS
from clearhead.perturbation.curves import feature_relevance
from clearhead.perturbation.features import (
    Features,
    as_segments,
    as_span,
    group_features,
    holds_images,
    restrict_features,
    text_mask,
)

# Fewer words have too few orders to tell skill from chance; texts without blanks have a single word.
MIN_WORDS = 5


@dataclass(frozen=True)
class Units:
    """The units of one input as features of its row of a batch, and its own tokens in that row (T)."""

    features: Features
    item: Item
    real_T: Tensor | None = None

    @property
    def count(self) -> int:
        return self.features.count

    @property
    def kind(self) -> str:
        """What people call a unit: a word, token, sentence, source or patch; "word or patch" for inputs of both."""
        if self.real_T is None:
            return self.features.kind
        return " or ".join(filter(None, [self._text_kind, self._picture_kind]))

    @property
    def _text_kind(self) -> str:
        return "token" if self.features.kind == "sub-word" else self.features.kind

    @property
    def _picture_kind(self) -> str:
        """What the tokens of a picture that is read together with a text stand for; "" if there is none."""
        if self.item.pictures:
            return "patch"
        # Regions lie nowhere on a picture, but stand beside the words.
        return "region" if self.item.text_span is not None else ""

    @property
    def positions(self) -> list[int]:
        """The positions of the input's own tokens in the row; none for images."""
        if self.real_T is None:
            return []
        positions: list[int] = self.real_T.nonzero().flatten().tolist()
        return positions

    def relevance(self, explanation: Explanation) -> Array:
        """Return the relevance of each unit, as readers see it."""
        return feature_relevance(explanation, self._own_features())

    def _own_features(self) -> Features:
        # Explanations have no numbers for padding.
        if self.real_T is None:
            return self.features
        return Features(self.features.kind, self.features.labels[self.real_T], self.count)

    def names(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the words or tokens of some units; nothing for patches, which have no names."""
        if self.real_T is None:
            return ()
        labels_T = self._own_features().labels.numpy()
        return tuple(self._name(_find_tokens(labels_T, number)) for number in numbers)

    def _name(self, tokens: Sequence[int]) -> str:
        """Return the characters from the first to the last of a unit's tokens."""
        if self.item.text_span is not None and tokens[0] not in range(*self.item.text_span):
            return self._join_tokens(tokens)
        for number, span in enumerate(self.item.pictures, 1):
            if tokens[0] in span.tokens:
                return f"part of picture {number}"
        if self.item.text is None or self.item.offsets is None or self._text_kind == "token":
            return self._join_tokens(tokens)
        segment, start, _ = as_span(self.item.offsets[tokens[0]])
        if self._text_kind == "source":
            return self._name_source(start)
        _, _, end = as_span(self.item.offsets[tokens[-1]])
        # The tokens of some tokenizers begin with the blank before the word.
        return as_segments(self.item.text)[segment][start:end].strip()

    def _name_source(self, character: int) -> str:
        name = next(source.name for source in self.item.sources if source.start <= character < source.end)
        return f"source {name}" if name.isdigit() else name

    def _join_tokens(self, tokens: Sequence[int]) -> str:
        return " ".join(self.item.tokens[token] for token in tokens)


def _find_tokens(labels_T: Array, number: int) -> list[int]:
    """Return the tokens of a unit; labels count from 1, and 0 marks what is never removed."""
    return np.flatnonzero(labels_T == number + 1).tolist()


def group_units(model: Model, inputs: Inputs, row: int, grid: tuple[int, int] | None, unit: str = "") -> Units:
    """Return the units of one input of a batch; raise BadInput if there are fewer than two.

    `unit` is "sentence" or "source" for methods that score these as wholes.
    """
    units = _group_row(model, select_rows(inputs, [row]), grid, unit)
    if units.count < 2:
        raise BadInput(_describe_few(units, keeps_first=_keeps_first(model, units.item, unit)))
    return units


def _describe_few(units: Units, *, keeps_first: bool) -> str:
    has = "Without its first token the prompt has" if keeps_first else "There is"
    return f"{has} {_count_few(units)}."


def _count_few(units: Units) -> str:
    if not units.count:
        return f"no {units.kind} that could be hidden"
    return f"a single {units.kind}, so there are no others that it could be compared with"


def _keeps_first(model: Model, item: Item, unit: str) -> bool:
    """Return whether the first token stays, as that of a decoder's prompt does."""
    return item.answer is not None and not model.is_encoder_decoder and unit not in LARGER_UNITS


def _group_row(model: Model, single: Inputs, grid: tuple[int, int] | None, unit: str) -> Units:
    item = single.items[0]
    if holds_images(single):
        return Units(_group_patches(model, single, grid), item)
    features = _group_prompt(model, single, unit) if unit else _group_text(model, single)
    return Units(features, item, text_mask(single)[0].cpu())


def _group_patches(model: Model, single: Inputs, grid: tuple[int, int] | None) -> Features:
    (features,) = group_features(model, single, "patch", grid=grid)
    return features


def _group_text(model: Model, single: Inputs) -> Features:
    """Return the words of a text, or its sub-words if it has few words."""
    tokens = _group_prompt(model, single, "sub-word")
    if single.items[0].offsets is None:
        return tokens
    words = _group_prompt(model, single, "word")
    if words.count < MIN_WORDS <= tokens.count:
        return tokens
    return words


def _group_prompt(model: Model, single: Inputs, unit: str) -> Features:
    """Return the units of a text; those of an answer are what is explained, and stay.

    So does the first token of a decoder's prompt, where attention goes that has nothing to look for: views and metrics
    rank it apart too, unless it is part of a sentence or source that was hidden as a whole.
    """
    (features,) = group_features(model, single, unit)
    answer = single.items[0].answer
    if answer is None:
        return features
    position_T = torch.arange(len(features.labels), device="cpu")
    may_hide_T = position_T < answer.start
    if _keeps_first(model, single.items[0], unit):
        may_hide_T &= position_T > _find_first(single)
    return restrict_features(features, may_hide_T)


def _find_first(single: Inputs) -> int:
    """Return the position of the first token that is not padding."""
    return int(text_mask(single)[0].int().argmax())
