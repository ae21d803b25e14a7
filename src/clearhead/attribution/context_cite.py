"""ContextCite: which sources of a prompt an answer came from."""

from functools import partial

import torch
from torch import Tensor

from clearhead.attribution.lasso import fit_lasso
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.perturbed_features import (
    Perturbation,
    PerturbationOptions,
    draw_masks,
    prepare,
)
from clearhead.attribution.sampling_error import grouped_error, relative_error
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.model.target import AnswerTarget, Target
from clearhead.perturbation.answer_scores import LOG_ODDS
from clearhead.validation import require_integer


@method(
    paper="ContextCite, Cohen-Wang et al. 2024",
    signed=True,
    class_specific=True,
    needs=(),
    shares_passes=True,
)
def context_cite(
    trace: Trace,
    *,
    samples: int = 64,
    seed: int = 0,
    penalty: float = 0.01,
    unit: str | None = None,
    replacement: str | None = None,
    batch: int | None = None,
) -> Attribution:
    """Weights of a sparse linear model of the answer's log-odds on which sources are there, each with a coin's toss.

    A source of weight log 10 makes the answer's odds ten times larger. `unit` is source (default; the sentences of a
    prompt unless sources are given), sentence, word or sub-word; `penalty` is the Lasso's, for each explained token.
    """
    require_integer("samples", samples)
    _check_penalty(penalty)
    perturbation = prepare(trace, _make_options(trace, unit, replacement, batch))
    if trace.model.writes:
        _require_sources(perturbation)
    masks = perturbation.draw(draw_masks, samples, seed)
    rows = perturbation.score_rows(masks)
    diagnostics = perturbation.describe(rows, samples=samples, seed=seed)
    values = []
    for entry, row, target in zip(diagnostics, rows, trace.targets, strict=True):
        fit = partial(_fit_samples, row.score_N.cpu(), masks[row.index], target, penalty)
        value_U = fit(slice(None))
        entry["sampling_error"] = relative_error(grouped_error(fit, samples), value_U)
        values.append(value_U)
    return perturbation.attribute(values, diagnostics)


def _fit_samples(score_N: Tensor, mask_NU: Tensor, target: Target, penalty: float, chosen: Tensor | slice) -> Tensor:
    """Return the weights of the sources that some of the samples give."""
    # Per token, so that one penalty suits answers of any length.
    tokens = _count_tokens(target)
    weight_U = fit_lasso(mask_NU[chosen].double().numpy(), score_N[chosen].numpy() / tokens, penalty)
    return torch.from_numpy(weight_U * tokens)


def _check_penalty(penalty: float) -> None:
    # A comparison that NaN fails.
    if not 0 <= penalty < float("inf"):
        raise BadOption(f"Invalid penalty={penalty!r} for 'context-cite': it must be finite and not below zero.")


def _make_options(trace: Trace, unit: str | None, replacement: str | None, batch: int | None) -> PerturbationOptions:
    """Return what is hidden: sources of a prompt, or sentences of a text that is classified."""
    _require_odds(trace)
    # Texts that are classified have no sources.
    if unit is None:
        unit = "source" if trace.model.writes else "sentence"
    return PerturbationOptions(unit, replacement, LOG_ODDS, prefix=False, batch=batch)


def _require_odds(trace: Trace) -> None:
    if trace.is_image or trace.model.problem == "regression":
        raise UnsupportedModel("context-cite explains the odds of an answer or a class by parts of a text.")


def _require_sources(perturbation: Perturbation) -> None:
    """Raise BadInput if a prompt has a single source: that it matters at all is no answer to which does."""
    for features in perturbation.groups:
        if features.count < 2:
            raise BadInput(
                f"context-cite compares the parts of a text, but this one has a single {features.kind}: give sources=, "
                "or unit='word'."
            )


def _count_tokens(target: Target) -> int:
    if isinstance(target, AnswerTarget):
        return len(target.steps)
    return 1
