"""Faithfulness of every step of an answer: is what precedes a token ranked by how much the token rests on it?"""

from collections.abc import Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.evaluation.answer_faithfulness import STEPS, require_shares, share_masks
from clearhead.evaluation.answer_tokens import answer_explanation, encoded_answer, ranked_tokens, require_matrix
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.model.model import Model
from clearhead.perturbation.answers import Ablation, ablate_rows, group_log_probs
from clearhead.perturbation.ranking import equal_shares


def _change_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "changes")


@metric(paper="AttCAT, Eq. 13, for each token of an answer", better="higher", targets=("steps",), curve=_change_curve)
def aopc_per_step(
    model: Model, cases: list[ExplainedExample], *, steps: int = STEPS, replacement: str = "delete"
) -> list[Record]:
    """Mean drop of each answer token's probability when the top 0, 10 … 100 % of what precedes it are deleted.

    Every token of the answer has a ranking of its own, of the prompt and of the answer before it.
    """
    shares = require_shares(steps)
    groups = [_ablate_case(model, case, shares) for case in cases]
    scores = group_log_probs(model, groups, replacement=replacement)
    return [_change_record(log_probs, len(shares)) for log_probs in scores]


def _ablate_case(model: Model, case: ExplainedExample, shares: Sequence[float]) -> list[Ablation]:
    """Return the rows of every step of an answer, one for each share."""
    explanation = answer_explanation(case, "steps")
    ablations: list[Ablation] = []
    for step, relevance_T in enumerate(require_matrix(explanation)):
        removable_T = _removable_tokens(model, explanation, step)
        ablations += ablate_rows(encoded_answer(case), _keep_shares(relevance_T, removable_T, shares), (step,))
    return ablations


def _removable_tokens(model: Model, explanation: AnswerExplanation, step: int) -> Array:
    """Return which tokens may be removed for a step: those of the prompt, and the answer's before the step."""
    written_T = _written_tokens(explanation, step) & ~explanation.special
    removable_T: Array = ranked_tokens(model, explanation) | written_T
    return removable_T


def _written_tokens(explanation: AnswerExplanation, step: int) -> Array:
    """Return which tokens of the answer come before a step."""
    position_T = np.arange(len(explanation.tokens))
    # Counted from the end: the decoder of an encoder–decoder reads start tokens between prompt and answer.
    first = len(position_T) - (len(explanation.steps) - 1)
    return (first <= position_T) & (position_T < first + step)


def _keep_shares(relevance_T: Array, removable_T: Array, shares: Sequence[float]) -> Array:
    """Return which tokens are kept at each share (K,T)."""
    # What may not be removed is kept at every share, so that the shares count removable tokens only.
    keep_KT = np.ones((len(shares), len(relevance_T)), dtype=bool)
    keep_KT[:, removable_T] = share_masks(relevance_T[removable_T], shares, np.greater_equal)
    return keep_KT


def _change_record(log_probs: Sequence[Array], shares: int) -> Record:
    """Return the mean drop of probability over steps and shares, and its curve over the shares."""
    probability_NK = np.exp(np.concatenate(log_probs)).reshape(-1, shares)
    # The first share is 0, the whole prompt, from which drops are counted.
    change_K = (probability_NK[:, :1] - probability_NK).mean(0)
    return {"aopc-per-step": float(change_K.mean()), "changes": change_K.tolist()}
