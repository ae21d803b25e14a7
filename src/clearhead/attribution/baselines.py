"""Baseline inputs of path methods, and the completeness of what starts from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.effects import describe_effect, differentiated_output
from clearhead.attribution.method import Attribution
from clearhead.engine.embeddings import Point, scores_at
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.model.inputs import Item
from clearhead.model.model import input_embedding
from clearhead.model.target import explained_score
from clearhead.perturbation.replacement import black_pixels
from clearhead.perturbation.token_replacement import token_id

IMAGE_BASELINES = ("zero", "black")
TEXT_BASELINES = ("zero", "pad", "mask")


@dataclass(frozen=True)
class BaselinePath:
    """The straight path from a baseline to every input of a trace; `batch` limits the points per forward pass."""

    trace: Trace
    baseline: Tensor
    batch: int | None = None

    def point(self, row: int, share: float) -> Point:
        """Return the point this share of the way from the baseline to an input."""
        # A partial: the embeddings of a point are made only when its batch is run.
        return Point(row, partial(self._interpolate, row, share))

    def _interpolate(self, row: int, share: float) -> Tensor:
        return interpolate(self.baseline[row], self.trace.leaf[row], share)

    @cached_property
    def base_B(self) -> Tensor:
        """f(baseline) of every input, in float64."""
        points = [self.point(row, 0.0) for row in range(len(self.baseline))]
        return scores_at(self.trace, points, batch=self.batch).double()

    @cached_property
    def prediction_B(self) -> Tensor:
        """f(input) of every input, in float64."""
        # Not the trace's own score, which is linear in the logits even where a log-probability is explained.
        return explained_score(self.trace.targets, self.trace.logits).double()

    def completeness_gap(self, product: Tensor) -> Tensor:
        """Return how far the relevance of real tokens is from summing to the effect."""
        # In float64: the gap is the difference of sums that are nearly equal.
        return (self._clear_padding(product.double()).flatten(1).sum(1) - (self.prediction_B - self.base_B)).abs()

    def _clear_padding(self, relevance: Tensor) -> Tensor:
        if self.trace.is_image:
            return relevance
        # What falls on padding belongs to no token of the explanation.
        return relevance * self.trace.mask_BT[..., None]

    def describe(self, product: Tensor) -> list[dict[str, Any]]:
        """Return the completeness gap and the effect of every input as diagnostics."""
        output = differentiated_output(self.trace.targets[0], self.trace.model.problem)
        numbers_B3 = torch.stack([self.completeness_gap(product), self.base_B, self.prediction_B], 1)
        diagnostics = []
        for gap, base, prediction in numbers_B3.tolist():
            diagnostics.append({"completeness_gap": gap, "effect": describe_effect(output, base, prediction)})
        return diagnostics


def interpolate(start: Tensor, end: Tensor, share: float) -> Tensor:
    """Return the point this share of the way from start to end."""
    return start + share * (end - start)


def zeros_for_sum(leaf: Tensor) -> Tensor:
    """Return zeros of the same shape, in float32 or wider, because half precision would lose small summands."""
    return torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))


def with_diagnostics(attribution: Attribution, diagnostics: Sequence[dict[str, Any]]) -> Attribution:
    """Return the attribution with diagnostics."""
    return replace(attribution, diagnostics=diagnostics)


def make_baseline(trace: Trace, baseline: str) -> Tensor:
    """Return the embeddings or pixels of the baseline input."""
    _check_baseline(trace, baseline)
    if baseline == "zero":
        return torch.zeros_like(trace.leaf)
    if baseline == "black":
        return _make_black(trace)
    return _fill_with_token(trace, baseline)


def _make_black(trace: Trace) -> Tensor:
    # Black before normalisation, which is not zero in the values that the network takes.
    return black_pixels(trace.model, trace.leaf).expand_as(trace.leaf)


def _check_baseline(trace: Trace, baseline: str) -> None:
    choices = IMAGE_BASELINES if trace.is_image else TEXT_BASELINES
    if baseline not in choices:
        raise BadOption(f"Invalid baseline={baseline!r}. Available here: {', '.join(choices)}.")


def _fill_with_token(trace: Trace, name: str) -> Tensor:
    """Replace every token that is neither special nor padding by the embedding of the pad or mask token."""
    row_D = _token_embedding(trace, name).to(trace.leaf.dtype)
    return torch.where(replaceable_tokens(trace)[..., None], row_D, trace.leaf)


def _token_embedding(trace: Trace, name: str) -> Tensor:
    token = token_id(trace.model, name)
    words_VD = input_embedding(trace.model.network)
    # Inputs that are embeddings already need not come from this table.
    has_ids = "input_ids" in trace.inputs.tensors
    if token is None or words_VD is None or not has_ids:
        raise BadOption(f"{trace.model.name} has no {name} token here: use baseline='zero'.")
    return words_VD[token].detach()


def replaceable_tokens(trace: Trace) -> Tensor:
    """Return a mask that is True at real tokens that are not special (B,T)."""
    # A copy, because the trace keeps its mask.
    replaceable_BT = trace.mask_BT.clone()
    for row, item in enumerate(trace.inputs.items):
        mask_T = trace.mask_BT[row]
        replaceable_BT[row, mask_T] = _ordinary_tokens(item, mask_T.device)
    return replaceable_BT


def _ordinary_tokens(item: Item, device: torch.device) -> Tensor:
    return ~torch.tensor(item.special, device=device)
