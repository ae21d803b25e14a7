"""The experiment that checks an explanation: which units are hidden and shown, and what their scores tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.check import Check
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.target import AnswerTarget, Target, shift_span
from clearhead.perturbation.answer_scores import PROBABILITY, resolve_output
from clearhead.perturbation.ranking import removal_counts, sort_descending
from clearhead.trust.random_sets import differ_from, draw_sets, mark_units
from clearhead.trust.units import Units, group_units
from clearhead.trust.verdict import Trial

# With fewer the rank could not be rarer than 5 %.
MIN_SETS = 19
HIDDEN_SETS = 3
SHARE = 0.15
MAX_WORDS = 10


@dataclass(frozen=True)
class Draw:
    """How many random sets are drawn, and from which seed."""

    sets: int
    seed: int

    @property
    def hidden(self) -> int:
        """How many random sets are hidden as well: few by default, because inputs with little hidden are long."""
        return HIDDEN_SETS if self.sets == MIN_SETS else self.sets

    def draw(self, units: Units, size: int, spare: int) -> Array:
        """Return random sets, and some to spare, for an input (S,U)."""
        # By the input's own content, so that it has the same sets in every batch.
        content = crc32("\0".join(units.item.tokens).encode())
        return draw_sets(units.count, size, self.sets + spare, np.random.default_rng([self.seed, content]))


@dataclass(frozen=True, eq=False)
class Experiment:
    """One explanation and the sets of units that it is checked with: the strongest first, then random ones (S,U)."""

    explanation: Explanation
    units: Units
    strongest: list[int]
    sets_SU: Array
    draw: Draw

    @property
    def needs_score(self) -> bool:
        """Whether the score of the whole input has to be computed: explanations have no difference of probabilities."""
        return self.explanation.target.versus is not None

    @property
    def shown_masks(self) -> Tensor:
        """The units that are present when nothing but a set is shown."""
        return torch.from_numpy(self.sets_SU)

    @property
    def hidden_masks(self) -> Tensor:
        """The units that are present when a set is hidden; all of them last, where the score is not known."""
        masks_SU = ~self.shown_masks[: 1 + self.draw.hidden]
        if self.needs_score:
            return torch.cat([masks_SU, torch.ones_like(masks_SU[:1])])
        return masks_SU

    @property
    def target(self) -> Target:
        """The target, with a span's positions in the padded row."""
        return shift_span(self.explanation.target, dict(enumerate(self.units.positions)))

    def conclude(self, shown_S: Array, hidden_S: Array) -> Check:
        """Return the check, from the scores under both kinds of masks."""
        passes = len(shown_S) + len(hidden_S)
        score = _read_score(self.explanation)
        if self.needs_score:
            score = float(hidden_S[-1])
            hidden_S = hidden_S[:-1]
        trial = Trial(shown_S, hidden_S)
        return Check(
            verdict=trial.verdict,
            strongest=self.units.names(self.strongest),
            count=len(self.strongest),
            units=self.units.count,
            kind=self.units.kind,
            scale=_name_scale(self.explanation),
            score=score,
            hidden=float(hidden_S[0]),
            hidden_random=float(hidden_S[1:].mean()),
            shown=float(shown_S[0]),
            shown_random=float(shown_S[1:].mean()),
            p_value=trial.p_value,
            percentile=trial.percentile,
            passes=passes,
            seed=self.draw.seed,
        )


def _read_score(explanation: Explanation) -> float:
    """Return the score of the whole input, which the trace of the explanation had."""
    if _name_scale(explanation) == PROBABILITY and explanation.probability is not None:
        return explanation.probability
    return float(explanation.diagnostics["score"])


def _name_scale(explanation: Explanation) -> str:
    """Return what the scores of a target are."""
    if isinstance(explanation.target, AnswerTarget):
        return resolve_output(explanation.target, None)
    # Regressions have no probability.
    return "value" if explanation.probability is None else PROBABILITY


def plan_experiments(
    model: Model, inputs: Inputs, row: int, explanations: Sequence[Explanation], draw: Draw
) -> list[Experiment]:
    """Draw the sets of one input, and choose those of each of its explanations."""
    units = group_units(model, inputs, row, explanations[0].grid)
    size = choose_size(units)
    # To spare: a random set that is some explanation's strongest is no control for it.
    pool_SU = draw.draw(units, size, len(explanations))
    experiments = []
    for explanation in explanations:
        strongest = sort_descending(units.relevance(explanation))[:size]
        strongest_1U = mark_units(strongest[None], units.count)
        controls_SU = differ_from(pool_SU, strongest_1U)[: draw.sets]
        sets_SU = np.concatenate([strongest_1U, controls_SU])
        experiments.append(Experiment(explanation, units, strongest.tolist(), sets_SU, draw))
    return experiments


def choose_size(units: Units) -> int:
    """Return how many of the units count as the strongest: about 15 %, but at most 10 words."""
    (size,) = removal_counts([SHARE], units.count)
    if units.kind != "patch":
        size = min(size, MAX_WORDS)
    # Of few units there are few sets: larger ones, until the rank can be rare enough.
    while math.comb(units.count, size) <= MIN_SETS and size < units.count // 2:
        size += 1
    return size
