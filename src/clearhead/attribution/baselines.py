"""TODO."""

from collections.abc import Sequence
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


def interpolate(trace: Trace, base: Tensor, sample: int, share: float) -> Tensor:
    """The point this share of the way from the baseline to the input."""
    return base[sample] + share * (trace.leaf[sample] - base[sample])


def zeros_for_sum(leaf: Tensor) -> Tensor:
    """Zeros to add up in: of the same shape, in float32 at least."""
    return torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))


def with_diagnostics(scores: Attribution, diagnostics: Sequence[dict[str, Any]]) -> Attribution:
    """The same scores with diagnostics."""
    return Attribution(scores.relevance_BT, scores.layers_BLT, scores.pixels_BPQ, diagnostics)


def score_effects(trace: Trace, base: Tensor, batch: int | None) -> Tensor:
    """f(input) − f(baseline) of every sample, in float64."""
    ends = [Point(one, partial(interpolate, trace, base, one, 0.0)) for one in range(len(base))]
    return trace.score_B.double() - scores_at(trace, ends, batch=batch).double()


def completeness_gap(trace: Trace, product: Tensor, effect_B: Tensor) -> Tensor:
    """How far the relevance of real tokens is from summing to the effect."""
    total = product.double() if trace.is_image else product.double() * trace.mask_BT[..., None]
    return (total.flatten(1).sum(1) - effect_B).abs()


def make_baseline(trace: Trace, baseline: str) -> Tensor:
    """The leaf of an input that says nothing."""
    leaf = trace.leaf
    choices = ("zero", "black") if trace.is_image else ("zero", "pad", "mask")
    if baseline not in choices:
        raise BadOption(f"baseline={baseline!r} is not a choice here. Use one of {', '.join(choices)}.")
    if baseline == "zero":
        return torch.zeros_like(leaf)
    if baseline == "black":
        return black_pixels(trace.model, leaf).expand_as(leaf)
    token, words = token_id(trace.model, baseline), input_embedding(trace.model.network)
    if token is None or words is None or "input_ids" not in trace.inputs.tensors:
        raise BadOption(f"{trace.model.name} has no {baseline} token here: use baseline='zero'.")
    row_D = words[token].detach().to(leaf.dtype)
    return torch.where(replaceable_tokens(trace)[..., None], row_D, leaf)


def replaceable_tokens(trace: Trace) -> Tensor:
    """True at real tokens that are not special (B,T)."""
    found_BT = trace.mask_BT.clone()
    for place, item in enumerate(trace.inputs.items):
        found_BT[place, trace.mask_BT[place]] = ~torch.tensor(item.special, device=found_BT.device)
    return found_BT
