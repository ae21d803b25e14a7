"""Faithfulness: does the output change as it should when the most relevant tokens go, or stay alone?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.evaluation.metric import (
    Curves,
    ExplainedExample,
    Record,
    explanation_for,
    label_index,
    mean_curve,
    metric,
)
from clearhead.evaluation.removal import removed_logits
from clearhead.model.model import Model
from clearhead.perturbation.ranking import equal_shares, masked_from_attention, trapezoid
from clearhead.perturbation.replacement import token_id
from clearhead.perturbation.run import score_targets
from clearhead.validation import require_integer

STEPS = 10
FINEST = 1000
BINS = (1, 5, 10, 20, 50)
TINY = 1e-300


def _shares(steps: int, first: int = 0) -> list[float]:
    require_integer("steps", steps, 1, FINEST)
    require_integer("first", first, 0, steps)
    return equal_shares(steps)[first:]


def _change_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS, first: int = 0) -> Curves:
    return equal_shares(steps)[first:], mean_curve(records, weights_RN, "changes")


def _probabilities(
    model: Model, cases: list[ExplainedExample], target: str, shares: Sequence[float], **how: Any
) -> list[Array]:
    """For each case the probability of the explained target at each share."""
    found = removed_logits(model, cases, target, shares, **how)
    return [
        score_targets(logits, explanation_for(case, target).target, model.problem).numpy()
        for case, logits in zip(cases, found, strict=True)
    ]


@metric(paper="AttCAT, Eq. 13", better="higher", curve=_change_curve)
def aopc(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    absent: str | None = None,
    steps: int = STEPS,
    first: int = 0,
    absolute: bool = False,
) -> list[Record]:
    """Mean drop of the probability of the explained class when the top 0, 10 … 100 % of the tokens are deleted.

    `steps` cuts 0–100 % into as many parts, `first` is the first step that counts. The authors' code is
    `steps=9,first=1,absolute=true,target=label`.
    """
    absent = absent or (None if model.takes_images or model.problem == "span" else "delete")
    found = _probabilities(model, cases, target, [0.0, *_shares(steps, first)], absent=absent)
    return [_changed("aopc", values[0] - values[1:], absolute) for values in found]


@metric(paper="AttCAT, Eq. 14", better="lower", curve=_change_curve)
def lodds(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    absent: str | None = None,
    steps: int = STEPS,
    first: int = 0,
    absolute: bool = False,
) -> list[Record]:
    """Mean log ratio of the explained class's probability after and before the top tokens become [PAD].

    The attention mask stays 1. Options as for aopc.
    """
    if model.problem == "regression":
        raise UnsupportedModel("lodds compares probabilities, which a regression does not have: use aopc.")
    if absent is None and not model.takes_images and token_id(model, "pad") is None:
        raise UnsupportedModel(f"lodds puts [PAD] for tokens, which {model.name} does not have: give absent=attention.")
    absent = absent or (None if model.takes_images else "pad")
    found = _probabilities(model, cases, target, [0.0, *_shares(steps, first)], absent=absent)
    logs = [np.log(np.maximum(values, TINY)) for values in found]
    return [_changed("lodds", values[1:] - values[0], absolute) for values in logs]


def _changed(name: str, change_K: Array, absolute: bool) -> Record:
    change_K = np.abs(change_K) if absolute else change_K
    return {name: float(change_K.mean()), "changes": change_K.tolist()}


# --- ERASER -------------------------------------------------------------------------------------------------------


def _bins(bins: Any) -> list[float]:
    """Percentages given as a sequence, or as text between slashes."""
    try:
        shares = [float(one) / 100 for one in (bins.split("/") if isinstance(bins, str) else bins)]
    except (TypeError, ValueError, OverflowError):
        shares = []
    if not shares or shares != sorted(shares) or not all(0 <= one <= 1 for one in shares):
        raise BadOption(f"bins={bins!r} must be rising percentages, such as '1/5/10/20/50'.")
    return shares


def _bin_curve(records: Sequence[Record], weights_RN: Array, *, bins: Any = BINS) -> Curves:
    return _bins(bins), mean_curve(records, weights_RN, "changes")


@metric(paper="ERASER (DeYoung et al. 2020)", better="higher", curve=_bin_curve)
def comprehensiveness(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    absent: str | None = None,
    bins: Any = BINS,
) -> list[Record]:
    """Mean drop of the probability when the top 1, 5, 10, 20 and 50 % of the tokens are deleted.

    `bins` are the percentages, written 1/5/10/20/50.
    """
    absent = absent or (None if model.takes_images or model.problem == "span" else "delete")
    found = _probabilities(model, cases, target, [0.0, *_bins(bins)], absent=absent)
    return [_changed("comprehensiveness", values[0] - values[1:], False) for values in found]


@metric(paper="ERASER (DeYoung et al. 2020)", better="lower", curve=_bin_curve)
def sufficiency(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    absent: str | None = None,
    bins: Any = BINS,
) -> list[Record]:
    """Mean drop of the probability when nothing but the top 1, 5, 10, 20 and 50 % of the tokens is left.

    `bins` as for comprehensiveness.
    """
    absent = absent or (None if model.takes_images or model.problem == "span" else "delete")
    found = _probabilities(model, cases, target, [*_bins(bins), 1.0], absent=absent, keep=True)
    return [_changed("sufficiency", values[-1] - values[:-1], False) for values in found]


# --- accuracy under removal -----------------------------------------------------------------------------------------


def _correct(
    model: Model, cases: list[ExplainedExample], target: str, against: str, shares: Sequence[float], **how: Any
) -> list[Array]:
    """For each case whether the most likely class is the wanted one, at each share (0 or 1)."""
    if model.problem != "single-label":
        raise UnsupportedModel(f"Accuracy needs one class per input, but {model.name} is a {model.problem} model.")
    if against not in ("label", "prediction"):
        raise BadOption(f"against={against!r} is not a choice. Use 'label' or 'prediction'.")
    if against == "label":
        wanted = [label_index(model, case.example) for case in cases]
        best = [logits.argmax(-1) for logits in removed_logits(model, cases, target, shares, **how)]
        return [(row == one).double().numpy() for row, one in zip(best, wanted, strict=True)]
    # What the model says of the whole input comes first, or last where parts are shown.
    whole, keep = (-1, slice(-1)) if how.get("keep") else (0, slice(1, None))
    several = [*shares, 1.0] if how.get("keep") else [0.0, *shares]
    best = [logits.argmax(-1) for logits in removed_logits(model, cases, target, several, **how)]
    return [(row[keep] == row[whole]).double().numpy() for row in best]


def _step_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "correct")


@metric(paper="Decoded layer saliency, Sec. 3.1", better="lower", curve=_step_curve)
def hiding(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    absent: str | None = None,
    steps: int = STEPS,
) -> list[Record]:
    """Area under the accuracy when the most relevant 0, 10 … 100 % of the tokens are hidden.

    Hidden tokens become [MASK] and get no attention; `against="prediction"` asks whether the prediction stays.
    """
    absent, shares = absent or masked_from_attention(model), _shares(steps)
    found = _correct(model, cases, target, against, shares, absent=absent)
    return [{"hiding": trapezoid(correct, shares), "correct": correct.tolist()} for correct in found]


@metric(paper="Decoded layer saliency, Sec. 3.1", better="higher", curve=_step_curve)
def revealing(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    absent: str | None = None,
    steps: int = STEPS,
) -> list[Record]:
    """Area under the accuracy when nothing but the most relevant 0, 10 … 100 % of the tokens is shown.

    Options as for hiding.
    """
    absent, shares = absent or masked_from_attention(model), _shares(steps)
    found = _correct(model, cases, target, against, shares, absent=absent, keep=True)
    return [{"revealing": trapezoid(correct, shares), "correct": correct.tolist()} for correct in found]


def _tenths(start: float) -> list[float]:
    if start not in (0, 0.1):
        raise BadOption(f"start={start!r} is not a choice. Use 0 (the unperturbed accuracy counts) or 0.1.")
    return [step / 10 for step in range(round(start * 10), 10)]


def _tenth_curve(records: Sequence[Record], weights_RN: Array, *, start: float = 0) -> Curves:
    return _tenths(start), mean_curve(records, weights_RN, "correct")


@metric(paper="TransAtt, Sec. 4", better="lower", curve=_tenth_curve)
def positive_perturbation(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    absent: str | None = None,
    start: float = 0,
) -> list[Record]:
    """Area (×100) under the accuracy when the most relevant 0, 10 … 90 % of the pixels are made black.

    `target="label"` explains the true class; `start=0.1` leaves the unperturbed accuracy out, as the paper's text.
    """
    return _perturbation("positive-perturbation", model, cases, target, against, absent, start, lowest=False)


@metric(paper="TransAtt, Sec. 4", better="higher", curve=_tenth_curve)
def negative_perturbation(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    absent: str | None = None,
    start: float = 0,
) -> list[Record]:
    """Area (×100) under the accuracy when the least relevant 0, 10 … 90 % of the pixels are made black.

    Options as for positive-perturbation.
    """
    return _perturbation("negative-perturbation", model, cases, target, against, absent, start, lowest=True)


def _perturbation(
    name: str,
    model: Model,
    cases: list[ExplainedExample],
    target: str,
    against: str,
    absent: str | None,
    start: float,
    *,
    lowest: bool,
) -> list[Record]:
    shares = _tenths(start)
    found = _correct(model, cases, target, against, shares, absent=absent, lowest=lowest)
    return [{name: 100 * trapezoid(correct, shares), "correct": correct.tolist()} for correct in found]
