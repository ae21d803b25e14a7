"""Baseline inputs of path methods, and the completeness of what starts from them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution
from clearhead.engine.embeddings import Point, scores_at
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.model.model import input_embedding
from clearhead.perturbation.replacement import black_pixels, token_id


def interpolate(trace: Trace, baseline: Tensor, row: int, share: float) -> Tensor:
    """Return the point this share of the way from the baseline to the input."""
    return baseline[row] + share * (trace.leaf[row] - baseline[row])


def zeros_for_sum(leaf: Tensor) -> Tensor:
    """Return zeros of the same shape, in float32 or wider, because half precision would lose small summands."""
    return torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))


def with_diagnostics(attribution: Attribution, diagnostics: Sequence[dict[str, Any]]) -> Attribution:
    """Return the attribution with diagnostics."""
    return replace(attribution, diagnostics=diagnostics)


def score_effects(trace: Trace, baseline: Tensor, batch: int | None) -> Tensor:
    """Return f(input) − f(baseline) of every input, in float64."""
    points = [Point(row, partial(interpolate, trace, baseline, row, 0.0)) for row in range(len(baseline))]
    return trace.score_B.double() - scores_at(trace, points, batch=batch).double()


def completeness_gap(trace: Trace, product: Tensor, effect_B: Tensor) -> Tensor:
    """Return how far the relevance of real tokens is from summing to the effect."""
    relevance = product.double()
    # What falls on padding belongs to no token of the explanation.
    if not trace.is_image:
        relevance = relevance * trace.mask_BT[..., None]
    return (relevance.flatten(1).sum(1) - effect_B).abs()


def make_baseline(trace: Trace, baseline: str) -> Tensor:
    """Return the embeddings or pixels of the baseline input."""
    leaf = trace.leaf
    choices = ("zero", "black") if trace.is_image else ("zero", "pad", "mask")
    if baseline not in choices:
        raise BadOption(f"Invalid baseline={baseline!r}. Available here: {', '.join(choices)}.")
    if baseline == "zero":
        return torch.zeros_like(leaf)
    if baseline == "black":
        # Black before normalisation, which is not zero in the values that the network takes.
        return black_pixels(trace.model, leaf).expand_as(leaf)
    return _fill_with_token(trace, baseline)


def _fill_with_token(trace: Trace, name: str) -> Tensor:
    """Replace every token that is neither special nor padding by the embedding of the pad or mask token."""
    token = token_id(trace.model, name)
    words_VD = input_embedding(trace.model.network)
    if token is None or words_VD is None or "input_ids" not in trace.inputs.tensors:
        raise BadOption(f"{trace.model.name} has no {name} token here: use baseline='zero'.")
    row_D = words_VD[token].detach().to(trace.leaf.dtype)
    return torch.where(replaceable_tokens(trace)[..., None], row_D, trace.leaf)


def replaceable_tokens(trace: Trace) -> Tensor:
    """Return a mask that is True at real tokens that are not special (B,T)."""
    replaceable_BT = trace.mask_BT.clone()
    for row, item in enumerate(trace.inputs.items):
        special = torch.tensor(item.special, device=replaceable_BT.device)
        replaceable_BT[row, trace.mask_BT[row]] = ~special
    return replaceable_BT
