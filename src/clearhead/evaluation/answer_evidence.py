"""Plausibility of explained answers: does relevance lie on the words that people marked as evidence?"""

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.evaluation.answer_tokens import answer_explanation, evidence_tokens, ranked_tokens
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.model.model import Model
from clearhead.perturbation.ranking import rank_features, removal_counts


@metric(paper="Yin & Neubig 2022", better="higher", values=("evidence-mrr", "evidence-mass"), targets=("contrast",))
def evidence_rank(
    model: Model, cases: list[ExplainedExample], *, target: str = "contrast", first: bool = False
) -> list[Record]:
    """Reciprocal rank of the first evidence token, and the share of positive relevance on evidence.

    For the answer rather than the foil, or with `target=answer` for log p(answer). The first token of a decoder's
    prompt is ranked only with `first=true`; examples without other evidence are ignored otherwise.
    """
    return [_measure_rank(*_rank_inputs(model, case, target, first)) for case in cases]


def _rank_inputs(model: Model, case: ExplainedExample, target: str, first: bool) -> tuple[Array, Array]:
    """Return the relevance of the ranked tokens, and which of them are evidence."""
    explanation = answer_explanation(case, target)
    is_ranked = ranked_tokens(model, explanation, first=first)
    return explanation.relevance[is_ranked], evidence_tokens(case, explanation)[is_ranked]


def _measure_rank(relevance: Array, is_evidence: Array) -> Record:
    if not is_evidence.any():
        return {"evidence-mrr": None, "evidence-mass": None}
    best = rank_features(relevance)[is_evidence].min()
    return {"evidence-mrr": float(1 / (1 + best)), "evidence-mass": _mass(relevance, is_evidence)}


def _mass(relevance: Array, is_evidence: Array) -> float:
    """Return the share of positive relevance on evidence; 0 where nothing is positive."""
    positive = np.maximum(relevance, 0)
    total = float(positive.sum())
    if not total:
        return 0.0
    return float(positive[is_evidence].sum()) / total


@metric(paper="Vafa et al. 2021 (annotated LAMBADA)", better="higher", targets=("answer",))
def recovery(
    model: Model, cases: list[ExplainedExample], *, target: str = "answer", percent: float = 10, first: bool = False
) -> list[Record]:
    """Share of the evidence tokens among the most relevant 10 % of the prompt.

    `percent` sets the size of the part, `target` and `first` are those of evidence-rank.
    """
    if not 0 < percent <= 100:
        raise BadOption(f"Invalid percent={percent!r}: give a number above 0, and not above 100.")
    return [_measure_recovery(*_rank_inputs(model, case, target, first), percent) for case in cases]


def _measure_recovery(relevance: Array, is_evidence: Array, percent: float) -> Record:
    if not is_evidence.any():
        return {"recovery": None}
    (count,) = removal_counts([percent / 100], len(relevance))
    is_top = rank_features(relevance) < count
    return {"recovery": float((is_top & is_evidence).sum() / is_evidence.sum())}


@metric(paper="AttnLRP (Achtibat et al. 2024)", better="neither", targets=("answer",))
def first_token_share(model: Model, cases: list[ExplainedExample], *, target: str = "answer") -> list[Record]:
    """Share of absolute relevance on the very first token, where decoders put attention that they do not need.

    It describes a method and does not judge it; the other metrics of answers leave this token out.
    """
    return [_measure_first(answer_explanation(case, target)) for case in cases]


def _measure_first(explanation: AnswerExplanation) -> Record:
    return {"first-token-share": explanation.first_token_share}
