"""What moves the reasons of a model though nothing changed: rounding, noise in the weights, another method."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.attribution.assemble import REFUSALS
from clearhead.attribution.method import parse_method
from clearhead.drift.agreement import compare_reasons, correlate_blocks
from clearhead.drift.snapshot_file import round_shares
from clearhead.drift.word_shifts import find_largest_shift
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import place_model
from clearhead.model.weight_noise import with_weight_noise
from clearhead.model_diff import Agreement, Noise, NoiseDraw, Reasons

if TYPE_CHECKING:
    from clearhead.drift.snapshot import Survey

DRAWS = 3
# The spread of a single one is not known.
MIN_NOISE_MODELS = 2
METHODS = ("balanced-cat", "attn-lrp", "att-cat")
"""Methods of one pass, by which a reader sees how much a change of the method would move the reasons."""


def measure_noise(
    model: Model, survey: "Survey", reasons: Sequence[Reasons], copies: Iterable[tuple[str, Model]]
) -> Noise:
    """Explain copies of a model that differ by noise, and the model by other methods, and compare with its reasons."""
    draws = [describe_draw(name, reasons, survey.ask(noisy)) for name, noisy in copies]
    precisions = _compare_precisions(model, survey, reasons)
    return Noise(tuple(draws), tuple(precisions), tuple(_compare_methods(model, survey, reasons)))


def iterate_copies(model: Model, draws: int) -> Iterator[tuple[str, Model]]:
    """Yield copies with noise in the weights, one at a time, and their names."""
    # Seeds from 0 on: a snapshot that is made again has the same noise.
    for seed in range(draws):
        yield f"weight noise {seed}", with_weight_noise(model, seed)


def load_noise_models(sources: Sequence[Any], labels: Sequence[str]) -> Iterator[tuple[str, Model]]:
    """Yield the models that count as the same, one at a time, and their names."""
    for source in sources:
        model = as_model(source)
        if set(model.labels) != set(labels):
            raise BadInput(
                f"The noise model '{model.name}' has other classes: {', '.join(model.labels)} instead of "
                f"{', '.join(labels)}. Name models of the same recipe."
            )
        yield model.name, model


def _compare_precisions(model: Model, survey: "Survey", reasons: Sequence[Reasons]) -> Iterator[NoiseDraw]:
    dtype = _other_precision(model)
    # Quantised weights have a single precision, and some CPUs cannot compute in bfloat16.
    with suppress(BadOption, UnsupportedModel):
        answers = survey.ask(place_model(model, None, dtype))
        yield describe_draw(str(dtype).removeprefix("torch."), reasons, answers)


def _other_precision(model: Model) -> torch.dtype:
    if model.dtype.itemsize < torch.float32.itemsize:
        return torch.float32
    return torch.bfloat16


def _compare_methods(model: Model, survey: "Survey", reasons: Sequence[Reasons]) -> Iterator[NoiseDraw]:
    for name in METHODS:
        # Not every method explains every model.
        with suppress(*REFUSALS):
            if name != survey.spec.method.name:
                answers = replace(survey, spec=parse_method(name)).ask(model)
                yield describe_draw(name, reasons, answers)


def describe_draw(name: str, reasons: Sequence[Reasons], others: Sequence[Reasons]) -> NoiseDraw:
    """Return how far the reasons of two sources for the same inputs differ."""
    pairs = list(zip(reasons, others, strict=True))
    agreements = list(map(compare_reasons, reasons, others))
    return NoiseDraw(
        name,
        _collect(agreements, "shift"),
        _collect(agreements, "correlation"),
        find_largest_shift(pairs),
        sum(starmap(_has_other_answer, pairs)),
        correlate_blocks(pairs),
    )


def _collect(agreements: Sequence[Agreement], name: str) -> Array:
    return round_shares(np.array(list(map(attrgetter(name), agreements))))


def _has_other_answer(first: Reasons, second: Reasons) -> bool:
    return first.prediction != second.prediction
