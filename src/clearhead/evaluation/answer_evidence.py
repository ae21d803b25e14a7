"""Plausibility of explained answers: does relevance lie on the words that people marked as evidence?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.evaluation.answer_tokens import answer_explanation, evidence_tokens, ranked_tokens
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.model.model import Model
from clearhead.perturbation.ranking import rank_features, removal_counts


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The relevance of the ranked tokens of a prompt, and which of them are evidence."""

    relevance: Array
    is_evidence: Array

    @property
    def has_evidence(self) -> bool:
        return bool(self.is_evidence.any())

    @property
    def reciprocal_rank(self) -> float:
        """1 over the rank, from 1, of the most relevant evidence token."""
        best = rank_features(self.relevance)[self.is_evidence].min()
        return float(1 / (1 + best))

    def recover(self, share: float) -> float:
        """Return the share of the evidence among the most relevant share of the tokens."""
        hits = _is_top(self.relevance, share) & self.is_evidence
        return float(hits.sum() / self.is_evidence.sum())

    @property
    def mass(self) -> float:
        """The share of positive relevance on evidence; 0 where nothing is positive."""
        # Evidence is what speaks for the answer; negative relevance speaks against it.
        positive = np.maximum(self.relevance, 0)
        total = float(positive.sum())
        if not total:
            return 0.0
        return float(positive[self.is_evidence].sum()) / total


@metric(
    paper="Yin & Neubig 2022",
    better="higher",
    values=("evidence-mrr", "evidence-mass"),
    targets=("contrast",),
    is_share=True,
)
def evidence_rank(
    model: Model, cases: list[ExplainedExample], *, target: str = "contrast", first: bool = False
) -> list[Record]:
    """Reciprocal rank of the first evidence token, and the share of positive relevance on evidence.

    For the answer rather than the foil, or with `target=answer` for log p(answer). The first token of a decoder's
    prompt is ranked only with `first=true`; examples without other evidence are ignored otherwise.
    """
    return list(map(_measure_rank, _rank_cases(model, cases, target, first)))


def _rank_cases(model: Model, cases: Sequence[ExplainedExample], target: str, first: bool) -> list[_Ranking]:
    return [_rank_tokens(model, case, answer_explanation(case, target), first) for case in cases]


def _rank_tokens(model: Model, case: ExplainedExample, explanation: AnswerExplanation, first: bool) -> _Ranking:
    is_ranked = ranked_tokens(model, explanation, first=first)
    return _Ranking(explanation.relevance[is_ranked], evidence_tokens(case, explanation)[is_ranked])


def _measure_rank(ranking: _Ranking) -> Record:
    # None leaves an example out of the mean, where 0 would count it as a miss.
    if not ranking.has_evidence:
        return {"evidence-mrr": None, "evidence-mass": None}
    return {"evidence-mrr": ranking.reciprocal_rank, "evidence-mass": ranking.mass}


@metric(paper="Vafa et al. 2021 (annotated LAMBADA)", better="higher", targets=("answer",), is_share=True)
def recovery(
    model: Model, cases: list[ExplainedExample], *, target: str = "answer", percent: float = 10, first: bool = False
) -> list[Record]:
    """Share of the evidence tokens among the most relevant 10 % of the prompt.

    `percent` sets the size of the part, `target` and `first` are those of evidence-rank.
    """
    _validate_percent(percent)
    rankings = _rank_cases(model, cases, target, first)
    return list(map(partial(_measure_recovery, percent / 100), rankings))


def _validate_percent(percent: float) -> None:
    if not 0 < percent <= 100:
        raise BadOption(f"Invalid percent={percent!r}: give a number above 0, and not above 100.")


def _measure_recovery(share: float, ranking: _Ranking) -> Record:
    if not ranking.has_evidence:
        return {"recovery": None}
    return {"recovery": ranking.recover(share)}


def _is_top(relevance: Array, share: float) -> Array:
    # Rounded as when tokens are removed, so that both look at the same ones.
    (count,) = removal_counts([share], len(relevance))
    return rank_features(relevance) < count


@metric(paper="AttnLRP (Achtibat et al. 2024)", better="neither", targets=("answer",), is_share=True)
def first_token_share(model: Model, cases: list[ExplainedExample], *, target: str = "answer") -> list[Record]:
    """Share of absolute relevance on the very first token, where decoders put attention that they do not need.

    It describes a method and does not judge it; the other metrics of answers leave this token out.
    """
    return [_measure_first(answer_explanation(case, target)) for case in cases]


def _measure_first(explanation: AnswerExplanation) -> Record:
    return {"first-token-share": explanation.first_token_share}
