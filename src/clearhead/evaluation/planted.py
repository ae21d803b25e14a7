"""Planted evidence: does an explanation find what decides by construction?"""

from collections.abc import Iterator, Sequence
from typing import Any

from clearhead.api import compare
from clearhead.attribution.method import MethodSpec
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.evaluation.planting import Planting, mark_evidence, plant_evidence
from clearhead.evaluation.sanity import MAX_SEED, group_methods
from clearhead.explanation import Explanation
from clearhead.model.inputs import encode
from clearhead.model.model import Model
from clearhead.validation import require_integer


@metric(
    paper="Bastings et al. 2022; Yang et al. 2021", better="higher", values=("planted-first", "planted-reciprocal-rank")
)
def planted(model: Model, cases: list[ExplainedExample], *, seed: int = 0) -> list[Record]:
    """Share of inputs in which the most relevant token or patch is one that was planted, and decides.

    A token that the texts do not have gets an embedding, in a copy of the model, that turns the prediction; an image
    gets a pattern that does. Inputs in which something else matters as much are left out.
    """
    require_integer("seed", seed, 0, MAX_SEED)
    records: list[Record] = [{} for _ in cases]
    # All methods that explained the same examples look for the same evidence, and share traces.
    for group in group_methods(cases):
        planting = _plant(model, [cases[index] for index in group[0][1]], seed)
        explained = _explain(planting, [spec for spec, _ in group])
        for spec, indices in group:
            for index, record in zip(indices, _rank_all(planting, explained[spec.text]), strict=True):
                records[index] = record
    return records


def _plant(model: Model, cases: Sequence[ExplainedExample], seed: int) -> Planting:
    encoded = [case.encoded or encode(model, case.example.raw, overflow="truncate") for case in cases]
    return plant_evidence(model, encoded, seed)


def _explain(planting: Planting, specs: list[MethodSpec]) -> dict[str, Any]:
    return compare(planting.model, planting.inputs, specs, list(planting.targets))


def _rank_all(planting: Planting, explanations: Sequence[Explanation]) -> Iterator[Record]:
    for index, explanation in enumerate(explanations):
        # An empty record does not count: there the evidence is not what decides.
        yield _rank(planting, index, explanation) if planting.decides[index] else {}


def _rank(planting: Planting, index: int, explanation: Explanation) -> Record:
    marks_T = mark_evidence(planting.places[index], explanation.grid, explanation.special)
    # A small square may lie between the middles of coarse patches.
    if not marks_T.any():
        return {}
    content_T = ~explanation.special
    best = explanation.relevance[marks_T].max()
    # Equal relevance counts against the evidence: a constant map finds nothing.
    ahead = int((explanation.relevance[content_T & ~marks_T] >= best).sum())
    return {"planted-first": float(ahead == 0), "planted-reciprocal-rank": 1 / (1 + ahead)}
