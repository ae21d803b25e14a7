"""Faithfulness: does the output change as it should when the most relevant tokens are removed, or shown alone?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.evaluation.examples import explanation_for, label_index
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.evaluation.removal import removed_logits
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.perturbation.ranking import equal_shares, masked_from_attention, trapezoid
from clearhead.perturbation.scores import score_targets
from clearhead.perturbation.token_replacement import token_id
from clearhead.validation import require_choice, require_integer

STEPS = 10
MAX_STEPS = 1000
BINS = (1, 5, 10, 20, 50)
COMPARED_WITH = ("label", "prediction")
ALIASES = {"absent": "replacement"}
# Keeps the logarithm of a probability that underflowed finite.
SMALLEST_PROBABILITY = 1e-300


def _shares(steps: int, first: int = 0) -> list[float]:
    require_integer("steps", steps, 1, MAX_STEPS)
    require_integer("first", first, 0, steps)
    return equal_shares(steps)[first:]


def _change_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS, first: int = 0) -> Curves:
    return equal_shares(steps)[first:], mean_curve(records, weights_RN, "changes")


def _probabilities(
    model: Model, cases: list[ExplainedExample], target: str, shares: Sequence[float], **removal: Any
) -> Array:
    """Return for each example the probability of the explained target at each share (N,K)."""
    logits = removed_logits(model, cases, target, shares, **removal)
    rows = []
    for case, logits_KC in zip(cases, logits, strict=True):
        rows.append(_score_explained(logits_KC, explanation_for(case, target), model.problem))
    return np.stack(rows)


def _score_explained(logits_KC: Tensor, explanation: Explanation, problem: str) -> Array:
    return score_targets(logits_KC, explanation.target, problem).numpy()


def _deletion_drops(
    model: Model, cases: list[ExplainedExample], target: str, shares: Sequence[float], replacement: str | None
) -> Array:
    """Return by how much the probability drops when the tokens of each share are deleted (N,K)."""
    # Nothing removed is one more share, in front, so that the whole inputs run in the same batches.
    probability_NK = _probabilities(model, cases, target, [0.0, *shares], replacement=_deletion(model, replacement))
    return probability_NK[:, :1] - probability_NK[:, 1:]


def _deletion(model: Model, replacement: str | None) -> str | None:
    """Return the replacement of metrics that delete tokens; answer spans would move, and images have no tokens."""
    if replacement or model.takes_images or model.is_positional:
        return replacement or None
    return "delete"


@metric(paper="AttCAT, Eq. 13", better="higher", curve=_change_curve, aliases=ALIASES)
def aopc(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    replacement: str | None = None,
    steps: int = STEPS,
    first: int = 0,
    absolute: bool = False,
) -> list[Record]:
    """Mean drop of the probability of the explained class when the top 0, 10 … 100 % of the tokens are deleted.

    `steps` cuts 0–100 % into as many parts, `first` is the first step that counts. The authors' code is
    `steps=9,first=1,absolute=true,target=label`.
    """
    drop_NK = _deletion_drops(model, cases, target, _shares(steps, first), replacement)
    return _change_records("aopc", drop_NK, absolute)


@metric(paper="AttCAT, Eq. 14", better="lower", curve=_change_curve, aliases=ALIASES)
def lodds(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    replacement: str | None = None,
    steps: int = STEPS,
    first: int = 0,
    absolute: bool = False,
) -> list[Record]:
    """Mean log ratio of the explained class's probability after and before the top tokens become [PAD].

    The attention mask stays 1. Options as for aopc.
    """
    _require_probabilities(model)
    replacement = _padding(model, replacement)
    shares = [0.0, *_shares(steps, first)]
    probability_NK = _probabilities(model, cases, target, shares, replacement=replacement)
    log_NK = np.log(np.maximum(probability_NK, SMALLEST_PROBABILITY))
    return _change_records("lodds", log_NK[:, 1:] - log_NK[:, :1], absolute)


def _require_probabilities(model: Model) -> None:
    if model.problem == "regression":
        raise UnsupportedModel("lodds compares probabilities, which a regression does not have: use aopc.")


def _padding(model: Model, replacement: str | None) -> str | None:
    """Return the replacement of lodds: by default [PAD], which images do not have."""
    if replacement or model.takes_images:
        return replacement
    _require_padding(model)
    return "pad"


def _require_padding(model: Model) -> None:
    """Raise UnsupportedModel if the model has no [PAD] token."""
    if token_id(model, "pad") is None:
        raise UnsupportedModel(
            f"lodds puts [PAD] for tokens, which {model.name} does not have: give replacement=attention."
        )


def _change_records(name: str, change_NK: Array, absolute: bool = False) -> list[Record]:
    """Return a record per example: the mean change, and the change at each share."""
    if absolute:
        change_NK = np.abs(change_NK)
    return [_change_record(name, change_K) for change_K in change_NK]


def _change_record(name: str, change_K: Array) -> Record:
    return {name: float(change_K.mean()), "changes": change_K.tolist()}


def _parse_bins(bins: Any) -> list[float]:
    """Parse percentages, given as a sequence or as text between slashes, into shares."""
    shares = _try_shares(bins)
    if not _are_rising_shares(shares):
        raise _bad_bins(bins)
    return shares


def _bad_bins(bins: Any) -> BadOption:
    return BadOption(f"Invalid bins={bins!r}: give rising percentages, such as '1/5/10/20/50'.")


def _try_shares(bins: Any) -> list[float]:
    """Return the percentages as shares, an empty list if some are no numbers."""
    try:
        return _as_shares(bins)
    except (TypeError, ValueError, OverflowError):
        return []


def _as_shares(bins: Any) -> list[float]:
    # Text on the command line, where a comma would begin the next option.
    if isinstance(bins, str):
        bins = bins.split("/")
    return [float(percentage) / 100 for percentage in bins]


def _are_rising_shares(shares: Sequence[float]) -> bool:
    # The range is checked for each: a NaN in the middle leaves the list sorted.
    return bool(shares) and shares == sorted(shares) and all(map(_is_share, shares))


def _is_share(number: float) -> bool:
    return 0 <= number <= 1


def _bin_curve(records: Sequence[Record], weights_RN: Array, *, bins: Any = BINS) -> Curves:
    return _parse_bins(bins), mean_curve(records, weights_RN, "changes")


@metric(paper="ERASER (DeYoung et al. 2020)", better="higher", curve=_bin_curve, aliases=ALIASES)
def comprehensiveness(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    replacement: str | None = None,
    bins: Any = BINS,
) -> list[Record]:
    """Mean drop of the probability when the top 1, 5, 10, 20 and 50 % of the tokens are deleted.

    `bins` are the percentages, written 1/5/10/20/50.
    """
    drop_NK = _deletion_drops(model, cases, target, _parse_bins(bins), replacement)
    return _change_records("comprehensiveness", drop_NK)


@metric(paper="ERASER (DeYoung et al. 2020)", better="lower", curve=_bin_curve, aliases=ALIASES)
def sufficiency(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    replacement: str | None = None,
    bins: Any = BINS,
) -> list[Record]:
    """Mean drop of the probability when nothing but the top 1, 5, 10, 20 and 50 % of the tokens is left.

    `bins` are the percentages, as for comprehensiveness.
    """
    # Shown alone, the share 1 is the whole input, which the others are compared with.
    shares = [*_parse_bins(bins), 1.0]
    probability_NK = _probabilities(model, cases, target, shares, replacement=_deletion(model, replacement), keep=True)
    return _change_records("sufficiency", probability_NK[:, -1:] - probability_NK[:, :-1])


def _correct(
    model: Model,
    cases: list[ExplainedExample],
    target: str,
    against: str,
    shares: Sequence[float],
    *,
    keep: bool = False,
    **removal: Any,
) -> Array:
    """Return whether the most likely class is the label or the prediction, per example and share (N,K), as 0 or 1."""
    _check_accuracy(model, against)
    # As floats: a bootstrap averages them.
    if against == "prediction":
        return _unchanged(model, cases, target, shares, keep=keep, **removal).astype(np.float64)
    # Labels come first: an unknown one is found before anything is computed.
    label_N = _label_indices(model, cases)
    best_NK = _best_classes(model, cases, target, shares, keep=keep, **removal)
    return np.asarray(best_NK == label_N[:, None], dtype=np.float64)


def _label_indices(model: Model, cases: Sequence[ExplainedExample]) -> Array:
    # Looked up once: all shares of an example have the same label.
    return np.array([label_index(model, case.example) for case in cases])


def _check_accuracy(model: Model, against: str) -> None:
    """Raise UnsupportedModel or BadOption unless the model's class can be compared with `against`."""
    _require_single_label(model)
    require_choice("against", against, COMPARED_WITH)


def _require_single_label(model: Model) -> None:
    if model.problem != "single-label":
        raise UnsupportedModel(f"Accuracy needs one class per input, but {model.name} is a {model.problem} model.")


def _unchanged(
    model: Model, cases: list[ExplainedExample], target: str, shares: Sequence[float], *, keep: bool, **removal: Any
) -> Array:
    """Return whether the most likely class is that of the whole input, per example and share (N,K)."""
    # The whole input is one more share: everything shown comes last, nothing removed first.
    if keep:
        best_NK = _best_classes(model, cases, target, [*shares, 1.0], keep=True, **removal)
        return np.equal(best_NK[:, :-1], best_NK[:, -1:])
    best_NK = _best_classes(model, cases, target, [0.0, *shares], keep=False, **removal)
    return np.equal(best_NK[:, 1:], best_NK[:, :1])


def _best_classes(
    model: Model, cases: list[ExplainedExample], target: str, shares: Sequence[float], **removal: Any
) -> Array:
    """Return the most likely class per example and share (N,K)."""
    logits = removed_logits(model, cases, target, shares, **removal)
    return np.stack(list(map(_best_class, logits)))


def _best_class(logits_KC: Tensor) -> Array:
    return logits_KC.argmax(-1).numpy()


def _step_curve(records: Sequence[Record], weights_RN: Array, *, steps: int = STEPS) -> Curves:
    return equal_shares(steps), mean_curve(records, weights_RN, "correct")


def _area_records(name: str, correct_NK: Array, shares: Sequence[float], scale: int = 1) -> list[Record]:
    """Return a record per example: the area under its curve, and the curve."""
    return [{name: scale * trapezoid(correct_K, shares), "correct": correct_K.tolist()} for correct_K in correct_NK]


@metric(paper="Decoded layer saliency, Sec. 3.1", better="lower", curve=_step_curve, aliases=ALIASES, is_share=True)
def hiding(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    replacement: str | None = None,
    steps: int = STEPS,
) -> list[Record]:
    """Area under the accuracy when the most relevant 0, 10 … 100 % of the tokens are hidden.

    Hidden tokens become [MASK] and get no attention; `against="prediction"` asks whether the prediction stays.
    """
    shares = _shares(steps)
    replacement = replacement or masked_from_attention(model)
    correct_NK = _correct(model, cases, target, against, shares, replacement=replacement)
    return _area_records("hiding", correct_NK, shares)


@metric(paper="Decoded layer saliency, Sec. 3.1", better="higher", curve=_step_curve, aliases=ALIASES, is_share=True)
def revealing(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    replacement: str | None = None,
    steps: int = STEPS,
) -> list[Record]:
    """Area under the accuracy when nothing but the most relevant 0, 10 … 100 % of the tokens is shown.

    Options as for hiding.
    """
    shares = _shares(steps)
    replacement = replacement or masked_from_attention(model)
    correct_NK = _correct(model, cases, target, against, shares, replacement=replacement, keep=True)
    return _area_records("revealing", correct_NK, shares)


def _tenths(start: float) -> list[float]:
    _validate_start(start)
    # In whole tenths: adding 0.1 again and again would collect rounding errors.
    return [step / 10 for step in range(round(start * 10), 10)]


def _validate_start(start: float) -> None:
    if start not in (0, 0.1):
        raise _bad_start(start)


def _bad_start(start: float) -> BadOption:
    return BadOption(f"Invalid start={start!r}. Available: 0 (the unperturbed accuracy counts), 0.1.")


def _tenth_curve(records: Sequence[Record], weights_RN: Array, *, start: float = 0) -> Curves:
    return _tenths(start), mean_curve(records, weights_RN, "correct")


@metric(paper="TransAtt, Sec. 4", better="lower", curve=_tenth_curve, aliases=ALIASES)
def positive_perturbation(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    replacement: str | None = None,
    start: float = 0,
) -> list[Record]:
    """Area (×100) under the accuracy when the most relevant 0, 10 … 90 % of the pixels are made black.

    `target="label"` explains the true class. `start=0.1` leaves the unperturbed accuracy out, as the paper's text.
    """
    shares = _tenths(start)
    correct_NK = _correct(model, cases, target, against, shares, replacement=replacement)
    return _area_records("positive-perturbation", correct_NK, shares, scale=100)


@metric(paper="TransAtt, Sec. 4", better="higher", curve=_tenth_curve, aliases=ALIASES)
def negative_perturbation(
    model: Model,
    cases: list[ExplainedExample],
    *,
    target: str = "prediction",
    against: str = "label",
    replacement: str | None = None,
    start: float = 0,
) -> list[Record]:
    """Area (×100) under the accuracy when the least relevant 0, 10 … 90 % of the pixels are made black.

    `target="label"` explains the true class. `start` is that of positive-perturbation.
    """
    shares = _tenths(start)
    correct_NK = _correct(model, cases, target, against, shares, replacement=replacement, lowest=True)
    return _area_records("negative-perturbation", correct_NK, shares, scale=100)
