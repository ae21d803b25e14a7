"""Scores of answers: what logits tell about their tokens, so that the logits of a vocabulary need not be kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.target import LOG_PROB, LOGIT, AnswerTarget, Target
from clearhead.validation import require_choice

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
        return list(map(str.encode, map(repr, self.pairs)))

    @cached_property
    def _table_EP2(self) -> Tensor:
        """The pairs of all inputs; shorter lists repeat their last."""
        width = max(map(len, self.pairs))
        return torch.tensor([_repeat_last(pairs, width) for pairs in self.pairs])

    def read(self, logits_BNV: Tensor, example_B: Tensor) -> Tensor:
        """Return z and the others' sum of some rows (B,P,2)."""
        step_BP1, token_BP1 = torch.tensor_split(self._table_EP2[example_B].to(logits_BNV.device), 2, -1)
        scores_BPV = _gather_steps(logits_BNV, step_BP1)
        chosen_BP1 = scores_BPV.gather(2, token_BP1)
        # Without the token itself, so that the sum is over all others.
        scores_BPV.scatter_(2, token_BP1, -torch.inf)
        return torch.cat([chosen_BP1, scores_BPV.logsumexp(-1, keepdim=True)], -1).double()

    def score_each(self, read_RP2: Tensor, example: int, output: str | None = None) -> Tensor:
        """Return the scores of all targets of an input in rows of it (targets × rows)."""
        return torch.stack([self.score(read_RP2, example, target, output) for target in self.target_sets[example]])

    def score(self, read_RP2: Tensor, example: int, target: Target, output: str | None = None) -> Tensor:
        """Return the score of a target in rows of one input."""
        assert isinstance(target, AnswerTarget)
        output = resolve_output(target, output)
        score_R = _score_tokens(self._select(read_RP2, example, target.steps, target.tokens), output)
        if target.foil is None:
            return score_R
        return score_R - _score_tokens(self._select(read_RP2, example, target.steps, target.foil), output)

    def _select(self, read_RP2: Tensor, example: int, steps: Sequence[int], tokens: Sequence[int]) -> Tensor:
        columns = map(self.pairs[example].index, zip(steps, tokens, strict=True))
        return read_RP2[:, list(columns)]


def _repeat_last(pairs: list[Pair], width: int) -> list[Pair]:
    # The rows of a tensor have one length; pairs are selected by their first occurrence.
    return [*pairs, *[pairs[-1]] * (width - len(pairs))]


def _gather_steps(logits_BNV: Tensor, step_BP1: Tensor) -> Tensor:
    """Return a copy of the logits of some steps, in float32 or wider."""
    scores_BPV = logits_BNV.gather(1, step_BP1.expand(-1, -1, logits_BNV.shape[-1]))
    # Half-precision sums over a vocabulary would be worthless.
    return scores_BPV.to(torch.promote_types(scores_BPV.dtype, torch.float32))


def _list_pairs(targets: Sequence[Target]) -> list[Pair]:
    # A dict, because targets share pairs, and their order must be the same every time.
    return list(dict.fromkeys(chain.from_iterable(map(_iterate_pairs, targets))))


def _iterate_pairs(target: Target) -> Iterator[Pair]:
    """Yield the pairs of a target, then those of its foil."""
    assert isinstance(target, AnswerTarget)
    yield from zip(target.steps, target.tokens, strict=True)
    yield from zip(target.steps, target.foil or (), strict=False)


def resolve_output(target: AnswerTarget, output: str | None) -> str:
    """Return what of an answer is scored: by default what the target says; against a foil logits, without odds."""
    if output is not None:
        require_choice("output", output, ANSWER_OUTPUTS, " for an answer")
    if target.foil is not None and output in (None, LOG_ODDS):
        return LOGIT
    return output or target.scale


def _score_tokens(read_RK2: Tensor, output: str) -> Tensor:
    """Return the score of an answer's tokens together, from z and the others' sum of each."""
    chosen_RK, others_RK = read_RK2.unbind(-1)
    if output == LOGIT:
        return chosen_RK.sum(1)
    return convert_log_prob(F.logsigmoid(chosen_RK - others_RK).sum(1), output)


def convert_log_prob(log_prob: Tensor, output: str) -> Tensor:
    """Return log-probabilities as they are, as probabilities, or as log-odds."""
    if output == PROBABILITY:
        return log_prob.exp()
    if output == LOG_ODDS:
        return log_odds(log_prob)
    return log_prob


def log_odds(log_prob_R: Tensor) -> Tensor:
    """Return log p − log(1 − p)."""
    # A certain answer would have infinite odds.
    log_prob_R = log_prob_R.clamp(max=-torch.finfo(log_prob_R.dtype).tiny)
    return log_prob_R - torch.log(-torch.expm1(log_prob_R))
