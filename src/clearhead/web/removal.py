"""The test of the page: the target's score without some features, beside its scores without as many random ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from clearhead.arrays import Array
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.explanation import REDUCTIONS, Explanation
from clearhead.perturbation.curves import score_orders
from clearhead.perturbation.features import Features
from clearhead.trust.controls import compare_with_random, draw_orders
from clearhead.web.features import group_tokens, make_features
from clearhead.web.schemas import ControlScores, CurveResponse

MAX_TEXT_STEPS = 20
MAX_SLOW_STEPS = 10
# Steps between nothing and everything at which random features are hidden: each takes as many passes as controls.
TEXT_CONTROL_STEPS = 6
SLOW_CONTROL_STEPS = 3

RandomScores = dict[int, Array]
"""By the number of hidden features, the scores of all random orders."""


@dataclass(frozen=True, eq=False)
class RemovalTest:
    """A traced input whose words, tokens or patches are hidden; random scores that were computed before are kept."""

    trace: Trace
    unit: str
    random_scores: RandomScores

    @cached_property
    def features(self) -> Features:
        return make_features(self.trace, self.unit)

    @cached_property
    def groups(self) -> list[list[int]]:
        """The tokens of each feature."""
        return group_tokens(self.trace, self.unit)

    @property
    def is_slow(self) -> bool:
        """Whether a forward pass is slower than that of a sentence: of images and language models."""
        return self.trace.is_image or self.trace.model.writes

    def score_order(self, order: Sequence[int], counts: Sequence[int]) -> list[float]:
        """Return the scores with the first features of an order hidden."""
        scores: list[float] = self._score([order], counts)[0].tolist()
        return scores

    def score_random(self, counts: Sequence[int]) -> list[Array]:
        """Return for each count the scores with as many random features hidden."""
        missing = [count for count in counts if count not in self.random_scores]
        if missing:
            scores_OK = self._score(draw_orders(self.features.count), missing)
            self.random_scores.update(zip(missing, scores_OK.T, strict=True))
        return [self.random_scores[count] for count in counts]

    def _score(self, orders: Sequence[Sequence[int]], counts: Sequence[int]) -> Array:
        trace = self.trace
        return score_orders(trace.model, trace.inputs, trace.targets[0], orders, counts, features=self.features)

    def compare(self, hidden: Sequence[Sequence[int]], scores: Sequence[float]) -> list[ControlScores]:
        """Compare the score without each list of tokens with those without as many random features."""
        counts = [self._count_hidden(tokens) for tokens in hidden]
        compare = partial(_compare_scores, are_probabilities=self._has_probabilities)
        return list(map(compare, scores, self.score_random(counts)))

    @property
    def _has_probabilities(self) -> bool:
        return self.trace.model.problem not in ("regression", "answer")

    def _count_hidden(self, tokens: Sequence[int]) -> int:
        """Return how many features are hidden with these tokens."""
        hidden = set(tokens)
        return sum(hidden.issuperset(group) for group in self.groups)

    def compute_curve(self, relevance_T: Array, reduction: str) -> CurveResponse:
        """Return the score as the most relevant features are hidden, and as random ones are.

        `reduction` is how the relevance of tokens becomes that of a feature.
        """
        order = _rank_groups(self.groups, relevance_T, reduction)
        counts = self._count_steps()
        measured = self._choose_control_steps(counts)
        return CurveResponse(
            order=[self.groups[index] for index in order],
            counts=counts,
            values=self.score_order(order, counts),
            measured=measured,
            **self._interpolate_random(counts, measured),
        )

    def _interpolate_random(self, counts: Sequence[int], measured: Sequence[int]) -> dict[str, list[float]]:
        """Return mean and range of the random scores at all counts, from those at which they are measured."""
        scores_KO = np.stack(self.score_random(measured))
        curves = {"random": scores_KO.mean(1), "low": scores_KO.min(1), "high": scores_KO.max(1)}
        return {name: np.interp(counts, measured, curve_K).tolist() for name, curve_K in curves.items()}

    def _count_steps(self) -> list[int]:
        """Return how many features are hidden at each step, from none to all."""
        features = self.features.count
        steps = min(features, self._limit(MAX_TEXT_STEPS, MAX_SLOW_STEPS))
        return sorted({round(step * features / steps) for step in range(steps + 1)})

    def _choose_control_steps(self, counts: Sequence[int]) -> list[int]:
        """Return the counts at which random features are hidden: the ends, and some between them."""
        inner = np.array(counts[1:-1], dtype=int)
        number = min(len(inner), self._limit(TEXT_CONTROL_STEPS, SLOW_CONTROL_STEPS))
        chosen = np.linspace(0, len(inner) - 1, number).round().astype(int)
        return sorted({counts[0], *inner[chosen].tolist(), counts[-1]})

    def _limit(self, text: int, slow: int) -> int:
        return slow if self.is_slow else text


def _rank_groups(groups: Sequence[Sequence[int]], relevance_T: Array, reduction: str) -> list[int]:
    """Return the numbers of the features, the most relevant first."""
    reduce = REDUCTIONS[reduction]
    return sorted(range(len(groups)), key=lambda index: -reduce(relevance_T[groups[index]]))


def _compare_scores(score: float, random_N: Array, *, are_probabilities: bool) -> ControlScores:
    return ControlScores(
        mean=float(random_N.mean()),
        low=float(random_N.min()),
        high=float(random_N.max()),
        sets=len(random_N),
        verdict=compare_with_random(score, random_N, are_probabilities=are_probabilities),
    )


def select_relevance(explanation: Explanation, block: int | None) -> Array:
    """Return the relevance of every token, of all blocks together or of one of them, counted from 1."""
    if block is None:
        return explanation.relevance
    blocks = _count_blocks(explanation)
    if block > blocks:
        raise BadOption(f"Invalid block={block}: '{explanation.method}' has relevance for {blocks} blocks here.")
    assert explanation.layers is not None
    relevance_T: Array = explanation.layers[block - 1]
    return relevance_T


def _count_blocks(explanation: Explanation) -> int:
    if explanation.layers is None:
        return 0
    return len(explanation.layers)
