"""Faithfulness of explained answers: does the answer become less likely when what is relevant is removed?"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.answer_units import PromptUnits, list_units, score_units
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.model.model import Model
from clearhead.perturbation.ranking import equal_shares, rank_features, removal_counts, spearman, trapezoid
from clearhead.validation import require_integer

TOP_KS = (1, 3, 5)
DROPS = ("drop-1", "drop-3", "drop-5")
STEPS = 10
MAX_STEPS = 1000
Compare = Callable[[Array, Array], Array]


@metric(paper="ContextCite (Cohen-Wang et al. 2024)", better="higher", values=DROPS, targets=("answer",))
def log_prob_drop(
    model: Model, cases: list[ExplainedExample], *, unit: str = "word", replacement: str = "delete"
) -> list[Record]:
    """Drop of log p(answer) when the 1, 3 and 5 most relevant units of the prompt are removed.

    `unit` is token, word, sentence or source, `replacement` delete or attention.
    """
    prompts = list_units(model, cases, unit)
    masks = list(map(_top_masks, prompts))
    return list(map(_drop_record, prompts, score_units(model, prompts, masks, replacement)))


def _top_masks(units: PromptUnits) -> Array:
    """Return which units are present with none of them removed, and with the top 1, 3 and 5."""
    return _mask_ranks(units.relevance_U, [0, *TOP_KS], np.greater_equal)


def _drop_record(units: PromptUnits, score_KN: Array) -> Record:
    # Without a unit that can be removed there is nothing to measure.
    if not units.count:
        return dict.fromkeys(DROPS)
    # The log-probability of an answer is the sum over its tokens.
    log_prob_K = score_KN.sum(1)
    drops = log_prob_K[0] - log_prob_K[1:]
    return dict(zip(DROPS, drops.tolist(), strict=True))


@dataclass(frozen=True)
class _Halves:
    """How many random halves of a prompt are kept, and from which seed they are drawn."""

    ablations: int
    seed: int

    def __post_init__(self) -> None:
        require_integer("ablations", self.ablations, 2)
        require_integer("seed", self.seed, 0)

    def draw(self, case: ExplainedExample, units: PromptUnits) -> Array:
        """Return which units are present in each half (K,U)."""
        return seeded_generator(self.seed, case).random((self.ablations, units.count)) < 0.5


@metric(paper="TRAK (Park et al. 2023); ContextCite", better="higher", targets=("answer",))
def lds(
    model: Model,
    cases: list[ExplainedExample],
    *,
    unit: str = "word",
    ablations: int = 64,
    seed: int = 0,
    replacement: str = "delete",
) -> list[Record]:
    """Linear datamodeling score: rank correlation of the relevance of what is kept with log p(answer).

    Over `ablations` random halves of the prompt, the same for all methods.
    """
    halves = _Halves(ablations, seed)
    prompts = list_units(model, cases, unit)
    masks = list(map(halves.draw, cases, prompts))
    return list(map(_lds_record, prompts, masks, score_units(model, prompts, masks, replacement)))


def seeded_generator(seed: int, case: ExplainedExample) -> np.random.Generator:
    """Return a generator for an example, so that all methods meet the same noise, in whatever order."""
    # Not hash(), which differs between processes.
    return np.random.default_rng([seed, zlib.crc32(case.example.id.encode())])


def _lds_record(units: PromptUnits, present_KU: Array, score_KN: Array) -> Record:
    # One unit is either there or not: that has no order.
    if units.count < 2:
        return {"lds": None}
    # log p instead of the logit of p: one rises with the other, so that the ranks are the same.
    return {"lds": spearman(present_KU @ units.relevance_U, score_KN.sum(1))}


def _score_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "scores")


@metric(paper="Decoded layer saliency, Sec. 3.1, with log p", better="lower", targets=("answer",), curve=_score_curve)
def log_prob_hiding(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Area under log p per token of the answer while the most relevant 0, 10 … 100 % of the prompt are hidden."""
    scores = _score_shares(model, cases, steps, replacement, np.greater_equal)
    return _list_areas("log-prob-hiding", scores)


@metric(paper="Decoded layer saliency, Sec. 3.1, with log p", better="higher", targets=("answer",), curve=_score_curve)
def log_prob_revealing(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Area under log p per token of the answer while only the most relevant 0, 10 … 100 % of the prompt are shown."""
    scores = _score_shares(model, cases, steps, replacement, np.less)
    return _list_areas("log-prob-revealing", scores)


def _score_shares(
    model: Model, cases: Sequence[ExplainedExample], steps: int, replacement: str, is_present: Compare
) -> list[Array]:
    """Return for each case log p of the answer's tokens at each share of hidden or shown tokens (K,N)."""
    shares = require_shares(steps)
    prompts = list_units(model, cases, "token")
    masks = [share_masks(units.relevance_U, shares, is_present) for units in prompts]
    return score_units(model, prompts, masks, replacement)


def require_shares(steps: int) -> list[float]:
    """Return 0, 1/steps … 1; raise BadOption unless there are between 1 and 1000 steps."""
    require_integer("steps", steps, 1, MAX_STEPS)
    return equal_shares(steps)


def share_masks(relevance_U: Array, shares: Sequence[float], is_present: Compare) -> Array:
    """Return which units are present at each share (K,U): `is_present` compares ranks with the number of units."""
    return _mask_ranks(relevance_U, removal_counts(shares, len(relevance_U)), is_present)


def _mask_ranks(relevance_U: Array, counts: Sequence[int], is_present: Compare) -> Array:
    return is_present(rank_features(relevance_U), np.array(counts)[:, None])


def _list_areas(name: str, scores: Sequence[Array]) -> list[Record]:
    return [_area_record(name, score_KN) for score_KN in scores]


def _area_record(name: str, score_KN: Array) -> Record:
    # The mean over the answer's tokens: the sum of a long answer would count more than many short ones.
    curve_K = score_KN.mean(1)
    shares = equal_shares(len(curve_K) - 1)
    return {name: trapezoid(curve_K, shares), "scores": curve_K.tolist()}
