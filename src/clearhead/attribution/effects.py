"""What relevances that are effects on a score add up from and to."""

from collections.abc import Sequence
from typing import Any

from clearhead.model.target import LOG_PROB, LOGIT, AnswerTarget, Target

REGRESSION_OUTPUT = "score"
"""The output of a regression, which has a value and no probabilities."""
VALUE = "value"


def describe_effect(output: str, base: float, prediction: float) -> dict[str, Any]:
    """Return the diagnostic `effect`: the unit of relevances, and the scores that they lead from and to.

    `base` is the score of the input with everything hidden or at the baseline, `prediction` that of the whole input.
    """
    unit = VALUE if output == REGRESSION_OUTPUT else output
    return {"unit": unit, "base": base, "prediction": prediction}


def differentiated_output(target: Target, problem: str) -> str:
    """Return the output whose gradients explain a target: the logit, but for answers and regressions."""
    if problem == "regression":
        return REGRESSION_OUTPUT
    if isinstance(target, AnswerTarget) and target.foil is None and target.scale == LOG_PROB:
        return LOG_PROB
    return LOGIT


def mean_effect(effects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean effect of several windows of a text, whose score is the mean of theirs."""
    mean = dict(effects[0])
    for end in ("base", "prediction"):
        mean[end] = sum(effect[end] for effect in effects) / len(effects)
    return mean
