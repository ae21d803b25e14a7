"""Logits of explained examples with their most relevant features removed, or shown alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.errors import Argument, BadInput
from clearhead.evaluation.examples import collate_examples, explanation_for
from clearhead.evaluation.metric import ExplainedExample
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.curves import removal_masks
from clearhead.perturbation.features import Features, holds_images, label_positions
from clearhead.perturbation.ranking import pixel_map, removal_stages
from clearhead.perturbation.run import perturbed_logits


def removed_logits(
    model: Model,
    cases: Sequence[ExplainedExample],
    key: str,
    shares: Sequence[float],
    *,
    replacement: str | None,
    lowest: bool = False,
    keep: bool = False,
) -> list[Tensor]:
    """Return for each example the logits at each share: its most relevant part removed or, with `keep`, shown alone.

    All examples go through the perturbation engine in one call. Special tokens are never removed.
    """
    inputs = collate_examples(model, cases)
    staging = _Staging(shares, lowest)
    features = []
    for row, case in enumerate(cases):
        features.append(_stage_example(inputs, row, case, explanation_for(case, key), staging))
    # Every example has the same stages, so all of them share one tensor of masks.
    masks = [staging.masks(keep)] * len(cases)
    logits = perturbed_logits(model, inputs, masks, features, replacement=replacement)
    return [rows.cpu() for rows in logits]


@dataclass(frozen=True)
class _Staging:
    """The shares at which tokens or pixels are removed, the most relevant first or, with `lowest`, the least."""

    shares: Sequence[float]
    lowest: bool

    def number(self, relevance: Array) -> Tensor:
        """Return the label of each token or pixel: the first share that removes it, counted from 1."""
        # Label 0 is for what is never removed.
        return torch.from_numpy(removal_stages(relevance, self.shares, lowest=self.lowest) + 1)

    def features(self, labels: Tensor) -> Features:
        # The last stage holds what no share removes.
        return Features("stage", labels, len(self.shares) + 1)

    def masks(self, keep: bool) -> Tensor:
        """Return which stages are present at each share (shares × stages)."""
        stages = range(len(self.shares) + 1)
        # Stages are removed one after the other: at share k the stages 0 … k are gone.
        return removal_masks(stages, stages[1:], reveal=keep)


def _stage_example(
    inputs: Inputs, row: int, case: ExplainedExample, explanation: Explanation, staging: _Staging
) -> Features:
    """Group the tokens or pixels of one input by the share at which they are removed."""
    if holds_images(inputs):
        return _stage_pixels(inputs.tensors["pixel_values"], explanation, staging)
    is_special = np.array(inputs.items[row].special, dtype=bool)
    _check_length(explanation, len(is_special), case.example.id)
    width = inputs.tensors["input_ids"].shape[1]
    return _stage_tokens(width, np.flatnonzero(~is_special), explanation, staging)


def _stage_tokens(width: int, real: Array, explanation: Explanation, staging: _Staging) -> Features:
    stages = staging.number(explanation.relevance[real])
    return staging.features(label_positions(width, torch.from_numpy(real), stages))


def _stage_pixels(pixels_ECPQ: Tensor, explanation: Explanation, staging: _Staging) -> Features:
    height, width = pixels_ECPQ.shape[-2:]
    # Pixels of the upsampled map are ranked, not patches, as in TransAtt.
    relevance = pixel_map(explanation, height, width).flatten()
    return staging.features(staging.number(relevance).reshape(height, width))


def _check_length(explanation: Explanation, tokens: int, name: str) -> None:
    """Raise BadInput unless the explanation has a relevance for each token of the input that will be perturbed."""
    explained = len(explanation.relevance)
    if tokens != explained:
        raise _wrong_length(name, tokens, explained)


def _wrong_length(name: str, tokens: int, explained: int) -> BadInput:
    problem = f"Example '{name}' has {tokens} tokens, its explanation {explained}: "
    return BadInput(problem, "explain it with ", Argument("overflow", "truncate"), " before measuring.")
