"""Error bars: rounding, sampling, completeness and agreement, in the diagnostics of explanations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from clearhead.attribution.method import MethodSpec
from clearhead.errors import NotFinite
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.trust.agreement import measure_agreement
from clearhead.trust.rounding import LARGE_ERROR, RoundingPlan, plan_rounding

Rows = list[list[Explanation]]
"""For each input its explanations, in the order of the methods."""
Other = TypeVar("Other")
Explain = Callable[[Sequence[MethodSpec]], tuple[Rows, Other]]
"""A function from methods to the explanations of every input, and whatever else its caller needs."""


def explain_with_error_bars(
    model: Model, specs: Sequence[MethodSpec], explain: Explain[Other], *, precision: str | None = None
) -> tuple[Rows, Other]:
    """Return what `explain` does, with error bars in the diagnostics.

    `rounding_error` bounds the distance to the value without rounding, relative to the largest relevance of a word or
    patch; `needs_float64` marks those of which too little is left. Methods that lose digits are computed in float64
    where that is cheap, unless a `precision` was asked for. `completeness_error` is the completeness gap relative to
    what it is a gap of, `agreement` the mean rank correlation with the other methods of the call.
    """
    # Language models are large, and some of them compute parts in float32 whatever their dtype.
    plan = plan_rounding(model, specs, allow_float64=precision is None and not model.writes)
    try:
        rows, other = explain(plan.specs)
    except NotFinite:
        # Networks with constants for a narrower type may overflow in float64.
        if not plan.uses_float64:
            raise
        plan = plan_rounding(model, specs, allow_float64=False)
        rows, other = explain(plan.specs)
    return [_add_error_bars(plan, explanations) for explanations in rows], other


def _add_error_bars(plan: RoundingPlan, explanations: Sequence[Explanation]) -> list[Explanation]:
    """Return the explanations of one input with error bars, without the second evaluations."""
    errors = plan.estimate(explanations)
    # Second evaluations come last and have no bars of their own.
    first = explanations[: len(errors)]
    agreements = measure_agreement(plan.specs[: len(errors)], first)
    return list(map(_add_bars, first, errors, agreements))


def _add_bars(explanation: Explanation, rounding: float | None, agreement: float | None) -> Explanation:
    bars = {**_describe_agreement(explanation, agreement), **_describe_rounding(rounding)}
    return replace(explanation, diagnostics={**explanation.diagnostics, **_drop_unknown(bars)})


def _describe_agreement(explanation: Explanation, agreement: float | None) -> dict[str, float | None]:
    """Return how far an explanation agrees with the effect that it divides, and with other methods."""
    return {"completeness_error": _completeness_error(explanation), "agreement": agreement}


def _drop_unknown(bars: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in bars.items() if value is not None}


def _describe_rounding(error: float | None) -> dict[str, float | None]:
    if error is None or error <= LARGE_ERROR:
        return {"rounding_error": error}
    return {"rounding_error": error, "needs_float64": True}


def _completeness_error(explanation: Explanation) -> float | None:
    """Return the completeness gap of a path method, relative to the effect or all relevance, whichever is larger."""
    effect = explanation.diagnostics.get("effect")
    gap = explanation.diagnostics.get("completeness_gap")
    if effect is None or gap is None:
        return None
    # Relevances of both signs may add up to almost nothing, of which no gap would be a small part.
    scale = max(_total_change(effect), _total_relevance(explanation))
    return gap / scale if scale else None


def _total_change(effect: Mapping[str, Any]) -> float:
    return abs(float(effect["prediction"] - effect["base"]))


def _total_relevance(explanation: Explanation) -> float:
    return float(np.abs(explanation.relevance).sum())
