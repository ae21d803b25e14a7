"""The measurements of an audit of pictures: what hiding corners, edges and backgrounds does to the answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from clearhead.arrays import Array
from clearhead.drift.audit_data import AuditedData, Effect, measure_if_any, read_effect
from clearhead.drift.audit_words import Candidate, measure_mean
from clearhead.drift.hide_regions import HiddenRegion
from clearhead.drift.picture_regions import name_region_kind
from clearhead.drift.shortcuts import ANY_CLASS, BACKGROUND, CORNER, EDGE, AuditedWord
from clearhead.evaluation.corrected_t import MIN_GROUPS
from clearhead.evaluation.paired_tests import holm

REGION_SUSPICIONS = {
    CORNER: "it is a corner of the image",
    EDGE: "it is at the edge of the image",
    BACKGROUND: "people did not mark it as the subject",
}


@dataclass(frozen=True, eq=False)
class RegionCandidate:
    """A region in the pictures that a model answers with a class, or in all (E), and what hiding it does there.

    `excess_E` is its share in the relevance less its share in the area.
    """

    candidate: Candidate
    effect: Effect
    excess_E: Array

    @property
    def carries_class(self) -> bool:
        """Whether it has more relevance than its area, in enough pictures to tell."""
        return len(self.excess_E) >= MIN_GROUPS and measure_mean(self.excess_E).low > 0

    @property
    def weight(self) -> float:
        return float(self.excess_E.sum())


def choose_regions(regions: Sequence[HiddenRegion], data: AuditedData, count: int) -> list[RegionCandidate]:
    """Return each region over all pictures, and the `count` with most relevance beyond their area for a class."""
    # Over all pictures in any case: a border may help every class a little.
    everywhere = [select_answers(region, data) for region in regions]
    carriers = filter(_carries_class, chain.from_iterable(_split_classes(region, data) for region in regions))
    return [*everywhere, *sorted(carriers, key=_sort_key)[:count]]


def _carries_class(entry: RegionCandidate) -> bool:
    return entry.carries_class


def _sort_key(entry: RegionCandidate) -> tuple[float, str, str]:
    # Ties by name, so that the choice does not depend on the order of the classes.
    return -entry.weight, entry.candidate.word, entry.candidate.label


def _split_classes(region: HiddenRegion, data: AuditedData) -> Iterator[RegionCandidate]:
    for label in np.unique(data.answer_N[region.example_E]).tolist():
        yield select_answers(region, data, label)


def select_answers(region: HiddenRegion, data: AuditedData, label: str | None = None) -> RegionCandidate:
    """Return a region in the pictures that are answered with a class; None for all pictures."""
    answer_E = data.answer_N[region.example_E]
    is_chosen_E = np.full(len(answer_E), label is None) | (answer_E == label)
    chosen = region.select(is_chosen_E)
    effect = read_effect(chosen.outcome.before_EC.argmax(1), chosen.outcome, data.classes)
    return RegionCandidate(_make_candidate(chosen, label or ANY_CLASS), effect, chosen.share_E - chosen.area_E)


def _make_candidate(region: HiddenRegion, label: str) -> Candidate:
    # All of its pictures count as answered with the class, even if that is any.
    answers_E = np.full(len(region.example_E), label)
    return Candidate(region.name, label, region.example_E, region.share_E, answers_E)


def describe_regions(entries: Sequence[RegionCandidate], data: AuditedData) -> Iterator[AuditedWord]:
    """Yield what hiding did to each region, with p-values corrected for all of them."""
    for entry, p in zip(entries, holm([entry.effect.p for entry in entries]), strict=True):
        region = _measure_region(entry, data, p)
        yield replace(region, suspicions=tuple(_list_suspicions(region)))


def _measure_region(entry: RegionCandidate, data: AuditedData, p: float) -> AuditedWord:
    candidate, effect = entry.candidate, entry.effect
    return AuditedWord(
        word=candidate.word,
        label=candidate.label,
        kind=name_region_kind(candidate.word),
        texts=len(candidate.example_E),
        concentration=len(candidate.example_E) / len(data.reasons),
        share=candidate.share,
        effect=effect.by_hiding,
        control=effect.by_others,
        p_corrected=p,
        flips=effect.flips,
        accuracy=measure_if_any(data.find_accuracy(candidate, effect)),
    )


def _list_suspicions(region: AuditedWord) -> Iterator[str]:
    """Yield why a region may be no evidence."""
    yield REGION_SUSPICIONS[region.kind]
    # What misleads the model is no evidence, wherever it lies.
    if region.accuracy is not None and region.accuracy.low > 0:
        yield f"without it, {100 * region.accuracy.value:.1f} points more answers are right"
