"""Scores of answers: what logits tell about their tokens, so that the logits of a vocabulary need not be kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import BadOption
from clearhead.model.target import LOG_PROB, LOGIT, AnswerTarget, Target

LOG_ODDS = "log-odds"
PROBABILITY = "probability"
ANSWER_OUTPUTS = (LOG_PROB, LOGIT, PROBABILITY, LOG_ODDS)

Pair = tuple[int, int]
"""A step of an answer and a token that could stand there."""


@dataclass(frozen=True)
class AnswerReader:
    """Reads from the logits of each input what its own pairs of step and token need.

    A pair has two numbers: the token's logit z, and the logarithm of the summed exponentials of all other tokens. Their
    difference is the log-odds of the token, without cancellation when its probability is close to 1.
    """

    target_sets: Sequence[Sequence[Target]]

    @cached_property
    def pairs(self) -> list[list[Pair]]:
        """The pairs of each input, for all of its targets."""
        return list(map(_list_pairs, self.target_sets))

    @cached_property
    def keys(self) -> list[bytes]:
        """What tells inputs with different pairs from each other."""
        return [repr(pairs).encode() for pairs in self.pairs]

    @cached_property
    def _table_EP2(self) -> Tensor:
        """The pairs of all inputs; shorter lists repeat their last."""
        width = max(map(len, self.pairs))
        return torch.tensor([[*pairs, *[pairs[-1]] * (width - len(pairs))] for pairs in self.pairs])

    def read(self, logits_BNV: Tensor, example_B: Tensor) -> Tensor:
        """Return z and the others' sum of some rows (B,P,2)."""
        step_BP1, token_BP1 = torch.tensor_split(self._table_EP2[example_B].to(logits_BNV.device), 2, -1)
        scores_BPV = _gather_steps(logits_BNV, step_BP1)
        chosen_BP1 = scores_BPV.gather(2, token_BP1)
        scores_BPV.scatter_(2, token_BP1, -torch.inf)
        return torch.cat([chosen_BP1, scores_BPV.logsumexp(-1, keepdim=True)], -1).double()

    def score_each(self, read_RP2: Tensor, example: int, output: str | None = None) -> Tensor:
        """Return the scores of all targets of an input in rows of it (targets × rows)."""
        return torch.stack([self.score(read_RP2, example, target, output) for target in self.target_sets[example]])

    def score(self, read_RP2: Tensor, example: int, target: Target, output: str | None = None) -> Tensor:
        """Return the score of a target in rows of one input."""
        assert isinstance(target, AnswerTarget)
        output = resolve_output(target, output)
        score_R = _score_tokens(self._select(read_RP2, example, target.tokens, target), output)
        if target.foil is None:
            return score_R
        return score_R - _score_tokens(self._select(read_RP2, example, target.foil, target), output)

    def _select(self, read_RP2: Tensor, example: int, tokens: Sequence[int], target: AnswerTarget) -> Tensor:
        columns = [self.pairs[example].index(pair) for pair in zip(target.steps, tokens, strict=True)]
        return read_RP2[:, columns]


def _gather_steps(logits_BNV: Tensor, step_BP1: Tensor) -> Tensor:
    """Return a copy of the logits of some steps, in float32 or wider."""
    scores_BPV = logits_BNV.gather(1, step_BP1.expand(-1, -1, logits_BNV.shape[-1]))
    # Half-precision sums over a vocabulary would be worthless.
    return scores_BPV.to(torch.promote_types(scores_BPV.dtype, torch.float32))


def _list_pairs(targets: Sequence[Target]) -> list[Pair]:
    pairs: dict[Pair, None] = {}
    for target in targets:
        assert isinstance(target, AnswerTarget)
        pairs.update(dict.fromkeys(zip(target.steps, target.tokens, strict=True)))
        pairs.update(dict.fromkeys(zip(target.steps, target.foil or (), strict=False)))
    return list(pairs)


def resolve_output(target: AnswerTarget, output: str | None) -> str:
    """Return what of an answer is scored: by default what the target says; against a foil logits, without odds."""
    if output not in (None, *ANSWER_OUTPUTS):
        raise BadOption(f"Invalid output={output!r} for an answer. Available: {', '.join(ANSWER_OUTPUTS)}.")
    if target.foil is not None and output in (None, LOG_ODDS):
        return LOGIT
    return output or target.scale


def _score_tokens(read_RK2: Tensor, output: str) -> Tensor:
    """Return the score of an answer's tokens together, from z and the others' sum of each."""
    chosen_RK, others_RK = read_RK2.unbind(-1)
    if output == LOGIT:
        return chosen_RK.sum(1)
    log_prob_R = F.logsigmoid(chosen_RK - others_RK).sum(1)
    if output == PROBABILITY:
        return log_prob_R.exp()
    if output == LOG_ODDS:
        return log_odds(log_prob_R)
    return log_prob_R


def log_odds(log_prob_R: Tensor) -> Tensor:
    """Return log p − log(1 − p)."""
    # A certain answer would have infinite odds.
    log_prob_R = log_prob_R.clamp(max=-torch.finfo(log_prob_R.dtype).tiny)
    return log_prob_R - torch.log(-torch.expm1(log_prob_R))
