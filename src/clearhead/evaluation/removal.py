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
from clearhead.model.placement import weight_versions
from clearhead.perturbation.curves import removal_masks
from clearhead.perturbation.features import Features, holds_images, label_positions
from clearhead.perturbation.ranking import pixel_map, removal_stages, removal_stages_of_maps
from clearhead.perturbation.run import perturbed_logits

MAPS_PER_SORT = 16
"""Maps of pixels that are ranked at a time: enough for a GPU, and some ten megabytes."""


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
    staging = _Staging(tuple(shares), lowest)
    # Where the label is what the model predicts, both have one explanation, and the same parts are removed.
    setting = (staging, replacement, keep, model.network, _describe_weights(model))
    names = [(setting, explanation_for(case, key).relevance.tobytes()) for case in cases]
    missing = {id(case): (case, name) for case, name in zip(cases, names, strict=True) if name not in case.removals}
    missing_cases = [case for case, _ in missing.values()]
    computed = _compute_logits(model, missing_cases, key, staging, replacement=replacement, keep=keep)
    for (case, name), logits in zip(missing.values(), computed, strict=True):
        case.removals[name] = logits
    return [case.removals[name] for case, name in zip(cases, names, strict=True)]


def _describe_weights(model: Model) -> str:
    # As text, which computes its hash once.
    return str(weight_versions(model))


def _compute_logits(
    model: Model,
    cases: Sequence[ExplainedExample],
    key: str,
    staging: "_Staging",
    *,
    replacement: str | None,
    keep: bool,
) -> list[Tensor]:
    if not cases:
        return []
    inputs = collate_examples(model, cases)
    features = _stage_examples(inputs, cases, key, staging)
    # Every example has the same stages, so all of them share one tensor of masks.
    masks = [staging.masks(keep)] * len(cases)
    logits = perturbed_logits(model, inputs, masks, features, replacement=replacement)
    return [rows.cpu() for rows in logits]


@dataclass(frozen=True)
class _Staging:
    """The shares at which tokens or pixels are removed, the most relevant first or, with `lowest`, the least."""

    shares: tuple[float, ...]
    lowest: bool

    def number(self, relevance: Array) -> Tensor:
        """Return the label of each token: the first share that removes it, counted from 1."""
        # Label 0 is for what is never removed.
        return torch.from_numpy(removal_stages(relevance, self.shares, lowest=self.lowest) + 1)

    def number_maps(self, relevance_NX: Tensor) -> Tensor:
        """Return the labels of the pixels of many maps (N,X), on the CPU."""
        stages_NX = removal_stages_of_maps(relevance_NX, self.shares, lowest=self.lowest)
        # Small numbers: a photo has fifty thousand of them, and the photos of many methods are kept together.
        return (stages_NX + 1).to(_smallest_type(len(self.shares) + 1)).cpu()

    def features(self, labels: Tensor) -> Features:
        # The last stage holds what no share removes.
        return Features("stage", labels, len(self.shares) + 1)

    def masks(self, keep: bool) -> Tensor:
        """Return which stages are present at each share (shares × stages)."""
        stages = range(len(self.shares) + 1)
        # Stages are removed one after the other: at share k the stages 0 … k are gone.
        return removal_masks(stages, stages[1:], reveal=keep)


def _smallest_type(highest: int) -> torch.dtype:
    return torch.uint8 if highest <= torch.iinfo(torch.uint8).max else torch.int16


def _stage_examples(inputs: Inputs, cases: Sequence[ExplainedExample], key: str, staging: _Staging) -> list[Features]:
    """Group the tokens or pixels of every input by the share at which they are removed."""
    if holds_images(inputs):
        explanations = [explanation_for(case, key) for case in cases]
        return _stage_pixels(inputs.tensors["pixel_values"], explanations, staging)
    features = []
    for row, case in enumerate(cases):
        features.append(_stage_text(inputs, row, case, explanation_for(case, key), staging))
    return features


def _stage_text(
    inputs: Inputs, row: int, case: ExplainedExample, explanation: Explanation, staging: _Staging
) -> Features:
    is_special = np.array(inputs.items[row].special, dtype=bool)
    _check_length(explanation, len(is_special), case.example.id)
    width = inputs.tensors["input_ids"].shape[1]
    return _stage_tokens(width, np.flatnonzero(~is_special), explanation, staging)


def _stage_tokens(width: int, real: Array, explanation: Explanation, staging: _Staging) -> Features:
    stages = staging.number(explanation.relevance[real])
    return staging.features(label_positions(width, torch.from_numpy(real), stages))


def _stage_pixels(pixels_ECPQ: Tensor, explanations: Sequence[Explanation], staging: _Staging) -> list[Features]:
    features: list[Features] = []
    height, width = pixels_ECPQ.shape[-2:]
    for start in range(0, len(explanations), MAPS_PER_SORT):
        # Pixels of the upsampled map are ranked, not patches, as in TransAtt.
        maps = [pixel_map(explanation, height, width) for explanation in explanations[start : start + MAPS_PER_SORT]]
        relevance_NX = torch.from_numpy(np.stack(maps)).flatten(1).to(_sorting_device(pixels_ECPQ))
        labels_NPQ = staging.number_maps(relevance_NX).reshape(-1, height, width)
        features += map(staging.features, labels_NPQ)
    return features


def _sorting_device(pixels_ECPQ: Tensor) -> torch.device:
    # Maps are float64, which accelerators other than CUDA's may not have.
    return pixels_ECPQ.device if pixels_ECPQ.is_cuda else torch.device("cpu")


def _check_length(explanation: Explanation, tokens: int, name: str) -> None:
    """Raise BadInput unless the explanation has a relevance for each token of the input that will be perturbed."""
    explained = len(explanation.relevance)
    if tokens != explained:
        raise _wrong_length(name, tokens, explained)


def _wrong_length(name: str, tokens: int, explained: int) -> BadInput:
    problem = f"Example '{name}' has {tokens} tokens, its explanation {explained}: "
    return BadInput(problem, "explain it with ", Argument("overflow", "truncate"), " before measuring.")
