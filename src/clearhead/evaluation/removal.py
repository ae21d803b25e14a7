"""Logits of explained examples with their most relevant features removed, or shown alone."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.evaluation.examples import collate_examples, explanation_for
from clearhead.evaluation.metric import ExplainedExample
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.curves import removal_masks
from clearhead.perturbation.features import Features, holds_images
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
    features = _stage_examples(inputs, cases, key, shares, lowest)
    # Every example has the same stages, so all of them share one tensor of masks.
    masks = [_stage_masks(len(shares), keep)] * len(cases)
    logits = perturbed_logits(model, inputs, masks, features, replacement=replacement)
    return [rows.cpu() for rows in logits]


def _stage_masks(shares: int, keep: bool) -> Tensor:
    """Return which stages are present at each share (shares × stages)."""
    # Stages are removed one after the other: at share k the stages 0 … k are gone, the last one never.
    return removal_masks(range(shares + 1), range(1, shares + 1), reveal=keep)


def _stage_examples(
    inputs: Inputs, cases: Sequence[ExplainedExample], key: str, shares: Sequence[float], lowest: bool
) -> list[Features]:
    """Group the tokens or pixels of every input by the share at which they are removed."""
    features = []
    for row, case in enumerate(cases):
        explanation = explanation_for(case, key)
        if holds_images(inputs):
            features.append(_stage_pixels(inputs.tensors["pixel_values"], explanation, shares, lowest))
        else:
            _check_length(explanation, len(inputs.items[row].special), case.example.id)
            features.append(_stage_tokens(inputs, row, explanation, shares, lowest))
    return features


def _stage_tokens(
    inputs: Inputs, row: int, explanation: Explanation, shares: Sequence[float], lowest: bool
) -> Features:
    real = np.flatnonzero(~np.array(inputs.items[row].special, dtype=bool))
    stages = removal_stages(explanation.relevance[real], shares, lowest=lowest)
    # Label 0, of special tokens and padding, is never removed; stages are numbered from 1.
    labels = torch.zeros(inputs.tensors["input_ids"].shape[1], dtype=torch.long)
    labels[torch.from_numpy(real)] = torch.from_numpy(stages + 1)
    return Features("stage", labels, len(shares) + 1)


def _stage_pixels(pixels_ECPQ: Tensor, explanation: Explanation, shares: Sequence[float], lowest: bool) -> Features:
    height, width = pixels_ECPQ.shape[-2:]
    # Pixels of the upsampled map are ranked, not patches, as in TransAtt.
    relevance = pixel_map(explanation, height, width).flatten()
    stages = removal_stages(relevance, shares, lowest=lowest)
    labels = torch.from_numpy(stages + 1).reshape(height, width)
    return Features("stage", labels, len(shares) + 1)


def _check_length(explanation: Explanation, tokens: int, name: str) -> None:
    """Raise BadInput unless the explanation has a relevance for each token of the input that will be perturbed."""
    explained = len(explanation.relevance)
    if tokens != explained:
        problem = f"Example '{name}' has {tokens} tokens, its explanation {explained}: "
        raise BadInput(problem, "explain it with ", Argument("overflow", "truncate"), " before measuring.")
