"""Planted evidence: does an explanation find what decides by construction?"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clearhead.api import compare
from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec
from clearhead.evaluation.examples import focused_input
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.evaluation.planted_patterns import mark_patches, plant_patterns
from clearhead.evaluation.planted_words import plant_words
from clearhead.evaluation.planting import Location, Planting, require_classes
from clearhead.evaluation.sanity import MAX_SEED, group_methods
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, encode
from clearhead.model.model import Model
from clearhead.validation import require_integer

FIRST = "planted-first"
RECIPROCAL_RANK = "planted-reciprocal-rank"


@metric(
    paper="Bastings et al. 2022; Wallace et al. 2019", better="higher", values=(FIRST, RECIPROCAL_RANK), is_share=True
)
def planted(model: Model, cases: list[ExplainedExample], *, seed: int = 0) -> list[Record]:
    """Share of inputs in which the most relevant token or patch is one that was planted, and decides.

    A word of each text is replaced by one that turns the prediction; an image gets a pattern that does. The model stays
    as it is. Inputs in which something else matters as much are left out.
    """
    require_integer("seed", seed, 0, MAX_SEED)
    records: dict[int, Record] = {}
    # All methods that explained the same examples look for the same evidence, and share traces.
    for group in group_methods(cases):
        planting = _plant(model, [cases[index] for index in group[0][1]], seed)
        explained = _explain(planting, [spec for spec, _ in group])
        for spec, indices in group:
            records.update(zip(indices, _rank_all(planting, explained[spec.text]), strict=True))
    return [records[index] for index in range(len(cases))]


def _plant(model: Model, cases: Sequence[ExplainedExample], seed: int) -> Planting:
    encoded = [case.encoded or encode(model, focused_input(case.example), overflow="truncate") for case in cases]
    return plant_evidence(model, encoded, seed)


def plant_evidence(model: Model, encoded: Sequence[Encoded], seed: int) -> Planting:
    """Plant evidence for another class than the predicted one into every input."""
    require_classes(model)
    plant = plant_patterns if model.takes_images else plant_words
    return plant(model, encoded, np.random.default_rng(seed))


def _explain(planting: Planting, specs: list[MethodSpec]) -> dict[str, Any]:
    return compare(planting.model, planting.inputs, specs, list(planting.targets), check=False)


def _rank_all(planting: Planting, explanations: Sequence[Explanation]) -> Iterator[Record]:
    for row, explanation in enumerate(explanations):
        # An empty record does not count: there the evidence is not what decides.
        if planting.decides[row]:
            yield {**rank_evidence(explanation, planting.locations[row]), **planting.describe(row)}
        else:
            yield {}


def rank_evidence(explanation: Explanation, location: Location) -> Record:
    """Return whether the evidence at a location comes first, and its reciprocal rank."""
    marks_T = mark_evidence(explanation, location)
    # A small square may lie between the middles of coarse patches.
    if not marks_T.any():
        return {}
    best = explanation.relevance[marks_T].max()
    others = explanation.relevance[~marks_T & ~explanation.special]
    # Equal relevance counts against the evidence: a constant map finds nothing.
    ahead = int((others >= best).sum())
    return {FIRST: float(ahead == 0), RECIPROCAL_RANK: 1 / (1 + ahead)}


def mark_evidence(explanation: Explanation, location: Location) -> Array:
    """Return True for each token that is evidence (T)."""
    marks_T = np.zeros(len(explanation.special), dtype=bool)
    if isinstance(location, int):
        marks_T[location] = True
    elif explanation.grid is not None:
        marks_T[~explanation.special] = mark_patches(location, explanation.grid).reshape(-1)
    return marks_T
