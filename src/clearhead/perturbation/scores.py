"""Scores of targets: probability, logit, log-probability or log-odds, from rows of logits."""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.outputs import class_probabilities
from clearhead.model.target import LOG_PROB, LOGIT, AnswerTarget, Target
from clearhead.perturbation.answer_scores import LOG_ODDS, PROBABILITY, AnswerReader, convert_log_prob
from clearhead.validation import require_choice

OUTPUTS = (PROBABILITY, LOGIT, LOG_PROB, LOG_ODDS)

Span = tuple[int | None, int | None]
"""The first and last position of an answer span; None for the side that is not explained."""


def score_targets(logits: Tensor, target: Target, problem: str, output: str | None = None) -> Tensor:
    """Return the target's score in each row of logits, in float64.

    `output` is "probability" (the default of classes and spans), "logit", "log-prob" (the default of answers) or
    "log-odds", log p − log(1 − p). A contrast is the difference of its two classes, of their logits where odds are
    asked for; a regression has its value only.
    """
    if isinstance(target, AnswerTarget):
        return _score_answer(logits, target, output)
    output = output or PROBABILITY
    require_choice("output", output, OUTPUTS)
    # float64: curves subtract probabilities that are close to each other.
    if target.span is not None:
        return _score_span(logits.double(), target.span, output)
    if problem == "regression":
        return _score_class(logits.double(), target)
    return _score_class(_score_classes(logits, target, problem, output), target)


def _score_answer(logits_RNV: Tensor, target: AnswerTarget, output: str | None) -> Tensor:
    reader = AnswerReader([[target]])
    # All rows are of the one target's input.
    example_R = torch.zeros(len(logits_RNV), dtype=torch.long)
    return reader.score(reader.read(logits_RNV, example_R), 0, target, output)


def _score_classes(logits: Tensor, target: Target, problem: str, output: str) -> Tensor:
    """Return the scores of all classes."""
    is_contrast = target.versus is not None
    if output == LOGIT or (is_contrast and output == LOG_ODDS):
        return logits.double()
    if output == PROBABILITY:
        return class_probabilities(logits, problem)
    return convert_log_prob(_log_probabilities(logits.double(), problem), output)


def _log_probabilities(logits: Tensor, problem: str) -> Tensor:
    if problem == "single-label":
        return logits.log_softmax(-1)
    return F.logsigmoid(logits)


def _score_class(scores_NC: Tensor, target: Target) -> Tensor:
    score_N = scores_NC[:, target.number]
    if isinstance(target.versus, int):
        return score_N - scores_NC[:, target.versus]
    return score_N


def _score_span(logits_N2T: Tensor, span: Span, output: str) -> Tensor:
    """Return the sum of the logits of start and end, or the score of their joint probability."""
    if output == LOGIT:
        return _sum_sides(logits_N2T, span)
    # Start and end are independent outputs, so the probability of a span is a product.
    return convert_log_prob(_sum_sides(logits_N2T.log_softmax(-1), span), output)


def _sum_sides(scores_N2T: Tensor, span: Span) -> Tensor:
    """Return the sum of the scores at the span's start and end, of those that it names."""
    total_N = scores_N2T.new_zeros(len(scores_N2T))
    for side, position in enumerate(span):
        if position is not None:
            total_N = total_N + scores_N2T[:, side, position]
    return total_N
