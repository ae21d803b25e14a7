"""The experiment that checks an explanation: which units are hidden and shown, and what their scores tell."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.check import Check
from clearhead.explanation import Explanation
from clearhead.model.target import AnswerTarget, Target, shift_span
from clearhead.perturbation.answer_scores import PROBABILITY, resolve_output
from clearhead.perturbation.ranking import sort_descending
from clearhead.trust.units import Units
from clearhead.trust.verdict import Trial

VALUE = "value"


@dataclass(frozen=True, eq=False)
class Experiment:
    """An explanation and groups of units in the order of their relevance: their numbers, the strongest first (G,K)."""

    explanation: Explanation
    units: Units
    numbers_GK: Array
    seed: int

    @property
    def needs_score(self) -> bool:
        """Whether the score of the whole input has to be computed: explanations have no difference of probabilities."""
        return self.explanation.target.versus is not None

    @property
    def masks(self) -> Tensor:
        """The units present when each group is shown alone, then hidden; all of them last, if their score is needed."""
        # On the CPU, whatever torch takes for its default device.
        masks_GU = torch.zeros(len(self.numbers_GK), self.units.count, dtype=torch.bool, device="cpu")
        shown_GU = masks_GU.scatter(1, torch.from_numpy(self.numbers_GK), True)
        whole = torch.ones_like(shown_GU[: int(self.needs_score)])
        return torch.cat([shown_GU, ~shown_GU, whole])

    @property
    def target(self) -> Target:
        """The target, with a span's positions in the padded row."""
        return shift_span(self.explanation.target, dict(enumerate(self.units.positions)))

    def conclude(self, scores_S: Array) -> Check:
        """Return the check, from the scores under all masks."""
        groups = len(self.numbers_GK)
        shown_G, hidden_G, whole = np.split(scores_S, [groups, 2 * groups])
        trial = Trial(shown_G, hidden_G, self._has_probabilities, self.seed, self._find_unit(scores_S))
        strongest = self.numbers_GK[0].tolist()
        return Check(
            verdict=trial.verdict,
            strongest=self.units.names(strongest),
            count=len(strongest),
            units=self.units.count,
            kind=self.units.kind,
            scale=_name_scale(self.explanation),
            score=self._find_score(whole),
            hidden=float(hidden_G[0]),
            hidden_random=_mean_of_others(hidden_G),
            shown=float(shown_G[0]),
            shown_random=_mean_of_others(shown_G),
            p_value=trial.p_value,
            percentile=trial.percentile,
            passes=len(scores_S),
            seed=self.seed,
        )

    @property
    def _has_probabilities(self) -> bool:
        """Whether the scores are probabilities; a difference of two is none itself."""
        return _name_scale(self.explanation) == PROBABILITY and not self.needs_score

    def _find_unit(self, scores_S: Array) -> float:
        """Return the size of scores in an unknown unit; that of probabilities and logits is 1."""
        if _name_scale(self.explanation) != VALUE:
            return 1.0
        return float(np.abs(scores_S).max())

    def _find_score(self, whole: Array) -> float:
        """Return the score of the whole input; `whole` holds it if it had to be computed."""
        if self.needs_score:
            return float(whole[0])
        return _read_score(self.explanation)


def _mean_of_others(scores_G: Array) -> float:
    """Return the mean over the groups behind the strongest."""
    return float(scores_G[1:].mean())


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
    return VALUE if explanation.probability is None else PROBABILITY


def plan_experiments(units: Units, explanations: Sequence[Explanation], groups: int, seed: int) -> list[Experiment]:
    """Divide the units of an input into groups, in the order of each of its explanations."""
    experiments = []
    for explanation in explanations:
        order_U = sort_descending(units.relevance(explanation))
        experiments.append(Experiment(explanation, units, divide(order_U, groups), seed))
    return experiments


def divide(order_U: Array, groups: int) -> Array:
    """Cut an order of units into so many groups of equal size, as far as there are units (G,K)."""
    size = max(1, len(order_U) // groups)
    count = min(len(order_U), groups)
    # Groups of different sizes could not be exchanged: what is left over are units of middling relevance.
    middle = size * (count // 2)
    rest = len(order_U) - size * count
    kept = np.delete(order_U, slice(middle, middle + rest))
    return kept.reshape(count, size)
