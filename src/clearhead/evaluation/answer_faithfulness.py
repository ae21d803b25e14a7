"""Faithfulness of explained answers: does the answer become less likely when what is relevant is removed?"""

import zlib
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.answer_tokens import (
    answer_explanation,
    encoded_answer,
    keep_units,
    number_units,
    ranked_tokens,
    sum_units,
)
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.evaluation.sanity import spearman
from clearhead.model.model import Model
from clearhead.perturbation.answers import Ablation, answer_log_probs
from clearhead.perturbation.ranking import equal_shares, rank_features, removal_counts, trapezoid
from clearhead.validation import require_integer

TOP_KS = (1, 3, 5)
STEPS = 10
MAX_STEPS = 1000


@metric(
    paper="ContextCite (Cohen-Wang et al. 2024)",
    better="higher",
    values=("drop-1", "drop-3", "drop-5"),
    targets=("answer",),
)
def log_prob_drop(
    model: Model, cases: list[ExplainedExample], *, unit: str = "word", replacement: str = "delete"
) -> list[Record]:
    """Drop of log p(answer) when the 1, 3 and 5 most relevant units of the prompt are removed.

    `unit` is token, word, sentence or source, `replacement` delete or attention.
    """
    labels = [_number_units(model, case, unit) for case in cases]
    masks = [_top_masks(sum_units(_relevance(case), row)) for case, row in zip(cases, labels, strict=True)]
    scores = _score_masks(model, cases, labels, masks, replacement)
    return [_drop_record(score_K, len(mask_KU[0])) for score_K, mask_KU in zip(scores, masks, strict=True)]


def _relevance(case: ExplainedExample) -> Array:
    return answer_explanation(case, "answer").relevance


def _number_units(model: Model, case: ExplainedExample, unit: str) -> Array:
    is_ranked = ranked_tokens(model, answer_explanation(case, "answer"))
    return number_units(model, case, is_ranked, unit)


def _top_masks(relevance_U: Array) -> Array:
    """Return which units are present with none of them removed, and with the top 1, 3 and 5."""
    rank_U = rank_features(relevance_U)
    return rank_U >= np.array([[0], *([k] for k in TOP_KS)])


def _drop_record(score_K: Array, units: int) -> Record:
    # Without a unit that can be removed there is nothing to measure.
    if not units:
        return dict.fromkeys(map("drop-{}".format, TOP_KS))
    return {f"drop-{k}": float(score_K[0] - score) for k, score in zip(TOP_KS, score_K[1:], strict=True)}


def _score_masks(
    model: Model, cases: Sequence[ExplainedExample], labels: Sequence[Array], masks: Sequence[Array], replacement: str
) -> list[Array]:
    """Return for each case log p of the whole answer under each of its masks of units."""
    keeps = [keep_units(row, mask_KU) for row, mask_KU in zip(labels, masks, strict=True)]
    return [score_KN.sum(1) for score_KN in _score_keeps(model, cases, keeps, replacement)]


def _score_keeps(
    model: Model, cases: Sequence[ExplainedExample], keeps: Sequence[Array], replacement: str
) -> list[Array]:
    """Return for each case log p of every step if only these tokens are kept (K,N)."""
    ablations = []
    for case, keep_KT in zip(cases, keeps, strict=True):
        encoded = encoded_answer(case)
        steps = tuple(range(len(answer_explanation(case, "answer").steps)))
        ablations += [Ablation(encoded, keep_T, steps) for keep_T in keep_KT]
    scores = iter(answer_log_probs(model, ablations, replacement=replacement))
    return [np.stack(list(islice(scores, len(keep_KT)))) for keep_KT in keeps]


@metric(paper="Park et al. 2023 (TRAK); ContextCite", better="higher", targets=("answer",))
def lds(
    model: Model,
    cases: list[ExplainedExample],
    *,
    unit: str = "word",
    ablations: int = 64,
    seed: int = 0,
    replacement: str = "delete",
) -> list[Record]:
    """Linear datamodeling score: rank correlation of Σ relevance of the kept units with log p(answer).

    Over `ablations` random halves of the prompt, the same for all methods.
    """
    require_integer("ablations", ablations, 2)
    require_integer("seed", seed, 0)
    labels = [_number_units(model, case, unit) for case in cases]
    masks = []
    for case, row in zip(cases, labels, strict=True):
        generator = seeded_generator(seed, case.example.id)
        masks.append(generator.random((ablations, row.max())) < 0.5)
    scores = _score_masks(model, cases, labels, masks, replacement)
    records = []
    for case, row, mask_KU, score_K in zip(cases, labels, masks, scores, strict=True):
        records.append({"lds": _correlate(mask_KU, sum_units(_relevance(case), row), score_K)})
    return records


def seeded_generator(seed: int, name: str) -> np.random.Generator:
    """Return a generator for an example, whatever its place in the data, so that all methods meet the same noise."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _correlate(mask_KU: Array, relevance_U: Array, score_K: Array) -> float | None:
    # One unit is either there or not: that has no order.
    if mask_KU.shape[1] < 2:
        return None
    return spearman(mask_KU @ relevance_U, score_K)


def _share_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "scores")


@metric(paper="Decoded layer saliency, Sec. 3.1, with log p", better="lower", targets=("answer",), curve=_share_curve)
def log_prob_hiding(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Area under log p per token of the answer while the most relevant 0, 10 … 100 % of the prompt are hidden."""
    return _measure_curve(model, cases, "log-prob-hiding", steps, replacement, np.greater_equal)


@metric(paper="Decoded layer saliency, Sec. 3.1, with log p", better="higher", targets=("answer",), curve=_share_curve)
def log_prob_revealing(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Area under log p per token of the answer while only the most relevant 0, 10 … 100 % of the prompt are shown."""
    return _measure_curve(model, cases, "log-prob-revealing", steps, replacement, np.less)


def _measure_curve(
    model: Model,
    cases: list[ExplainedExample],
    name: str,
    steps: int,
    replacement: str,
    is_present: Callable[[Array, Array], Array],
) -> list[Record]:
    """Return area and curve; `is_present` compares the ranks of tokens with the number that is hidden or shown."""
    require_integer("steps", steps, 1, MAX_STEPS)
    labels = [_number_units(model, case, "token") for case in cases]
    masks = []
    for case, row in zip(cases, labels, strict=True):
        masks.append(_share_masks(sum_units(_relevance(case), row), equal_shares(steps), is_present))
    keeps = [keep_units(row, mask_KU) for row, mask_KU in zip(labels, masks, strict=True)]
    records = []
    for score_KN in _score_keeps(model, cases, keeps, replacement):
        # Per token: the sum over a long answer would count more than many short ones.
        score_K = score_KN.mean(1)
        records.append({name: trapezoid(score_K, equal_shares(steps)), "scores": score_K.tolist()})
    return records


def _share_masks(relevance_U: Array, shares: Sequence[float], is_present: Callable[[Array, Array], Array]) -> Array:
    """Return which units are present at each share (K,U)."""
    counts_K = np.array(removal_counts(shares, len(relevance_U)))
    return is_present(rank_features(relevance_U), counts_K[:, None])


def _change_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "changes")


@metric(paper="AttCAT, Eq. 13, for each token of an answer", better="higher", targets=("steps",), curve=_change_curve)
def aopc_per_step(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Mean drop of each answer token's probability when the top 0, 10 … 100 % of what precedes it are deleted.

    Every token of the answer has a ranking of its own, of the prompt and of the answer before it.
    """
    require_integer("steps", steps, 1, MAX_STEPS)
    ablations: list[Ablation] = []
    for case in cases:
        ablations += _ablate_steps(model, case, equal_shares(steps))
    scores = iter(answer_log_probs(model, ablations, replacement=replacement))
    return [_step_record(case, list(islice(scores, _count_rows(case, steps))), steps) for case in cases]


def _count_rows(case: ExplainedExample, steps: int) -> int:
    return len(answer_explanation(case, "steps").steps) * (steps + 1)


def _ablate_steps(model: Model, case: ExplainedExample, shares: Sequence[float]) -> list[Ablation]:
    """Return for every step of an answer its rows, one for each share."""
    explanation = answer_explanation(case, "steps")
    ablations = []
    for step, relevance_T in enumerate(require_matrix(explanation)):
        is_ranked = _precedes(model, explanation, step)
        keep_KT = _keep_shares(relevance_T, is_ranked, shares)
        ablations += [Ablation(encoded_answer(case), keep_T, (step,)) for keep_T in keep_KT]
    return ablations


def require_matrix(explanation: AnswerExplanation) -> Array:
    """Return the relevance of every token for every step; raise UnsupportedModel without it."""
    if explanation.matrix is None:
        raise UnsupportedModel("This metric measures the steps of answers: explain them with matrix=True.")
    return explanation.matrix


def _precedes(model: Model, explanation: AnswerExplanation, step: int) -> Array:
    """Return which tokens may be removed for a step: ranked ones of the prompt, and the answer's before the step."""
    is_ranked = ranked_tokens(model, explanation)
    tokens = len(explanation.tokens)
    # From the end, because the decoder of an encoder–decoder reads start tokens before the answer.
    first = tokens - (len(explanation.steps) - 1)
    position_T = np.arange(tokens)
    in_answer = (position_T >= first) & (position_T < first + step) & ~explanation.special
    return np.asarray(is_ranked | in_answer)


def _keep_shares(relevance_T: Array, is_ranked: Array, shares: Sequence[float]) -> Array:
    mask_KU = _share_masks(relevance_T[is_ranked], shares, np.greater_equal)
    keep_KT = np.ones((len(shares), len(relevance_T)), dtype=bool)
    keep_KT[:, is_ranked] = mask_KU
    return keep_KT


def _step_record(case: ExplainedExample, scores: Sequence[Array], steps: int) -> Record:
    """Return the mean change of probability over steps and shares, and its curve over the shares."""
    probability_NK = np.exp(np.concatenate(scores)).reshape(-1, steps + 1)
    change_K = (probability_NK[:, :1] - probability_NK).mean(0)
    return {"aopc-per-step": float(change_K.mean()), "changes": change_K.tolist()}
