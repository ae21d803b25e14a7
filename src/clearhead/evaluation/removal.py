"""Logits of explained examples with their most relevant features removed, or shown alone."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.evaluation.metric import ExplainedExample, collate_examples, explanation_for
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.features import Features
from clearhead.perturbation.ranking import pixel_map, removal_stages
from clearhead.perturbation.run import perturbed_logits


def removed_logits(
    model: Model,
    cases: Sequence[ExplainedExample],
    key: str,
    shares: Sequence[float],
    *,
    absent: str | None,
    lowest: bool = False,
    keep: bool = False,
) -> list[Tensor]:
    """For each case the logits at each share: its most relevant part hidden or, with `keep`, shown alone.

    All cases go through the perturbation engine in one call. Special tokens are never touched.
    """
    inputs = collate_examples(model, cases)
    units = [
        _staged_features(inputs, explanation_for(case, key), shares, lowest, place, case.example.id)
        for place, case in enumerate(cases)
    ]
    stage_U, step_K = torch.arange(len(shares) + 1), torch.arange(len(shares))
    hidden_KU = stage_U[None, :] <= step_K[:, None]
    masks = [hidden_KU if keep else ~hidden_KU] * len(cases)
    return [logits.cpu() for logits in perturbed_logits(model, inputs, masks, units, absent=absent)]


def _staged_features(
    inputs: Inputs, explanation: Explanation, shares: Sequence[float], lowest: bool, place: int, name: str
) -> Features:
    if "pixel_values" in inputs.tensors:
        height, width = inputs.tensors["pixel_values"].shape[-2:]
        found = removal_stages(pixel_map(explanation, height, width).flatten(), shares, lowest=lowest)
        return Features("stage", torch.from_numpy(found + 1).reshape(height, width), len(shares) + 1)
    special = inputs.items[place].special
    if len(special) != len(explanation.relevance):
        differ = f"Example '{name}' has {len(special)} tokens, its explanation {len(explanation.relevance)}: "
        raise BadInput(differ, "explain it with ", Argument("long", "truncate"), " before measuring.")
    real = ~np.array(special, dtype=bool)
    labels = torch.zeros(inputs.tensors["input_ids"].shape[1], dtype=torch.long)
    labels[: len(real)][torch.from_numpy(real)] = torch.from_numpy(
        removal_stages(explanation.relevance[real], shares, lowest=lowest) + 1
    )
    return Features("stage", labels, len(shares) + 1)
