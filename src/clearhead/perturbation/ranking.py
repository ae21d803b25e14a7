"""Tokens or pixels taken away, or shown, in the order of their relevance: what the faithfulness metrics share.

The shares at which a token goes are its stages; a stage is one unit of the perturbation engine, so that the masks are
the same few rows for a text of ten tokens and a picture of fifty thousand pixels.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.evaluation.metric import Case, explained, inputs_of
from clearhead.explanation import Array, Explanation, stretched
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.features import Units
from clearhead.perturbation.replacement import token_id
from clearhead.perturbation.run import perturbed_logits

SLACK = 1e-9


def counts(shares: Sequence[float], total: int) -> list[int]:
    """⌈share · total⌉ for each share."""
    return [min(total, math.ceil(share * total - SLACK)) for share in shares]


def ranks(relevance: Array, *, lowest: bool = False) -> Array:
    """0 for the most relevant (or the least), ties by position."""
    order = np.argsort(relevance if lowest else -relevance, kind="stable")
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order))
    return found


def stages(relevance: Array, shares: Sequence[float], *, lowest: bool = False) -> Array:
    """For each token the number of the first share that includes it, or len(shares)."""
    limits = counts(shares, len(relevance))
    return np.searchsorted(limits, ranks(relevance, lowest=lowest), side="right")


def removed_logits(
    model: Model,
    cases: Sequence[Case],
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
    inputs = inputs_of(model, cases)
    units = [
        _units(inputs, explained(case, key), shares, lowest, place, case.example.id) for place, case in enumerate(cases)
    ]
    stage_U, step_K = torch.arange(len(shares) + 1), torch.arange(len(shares))
    hidden_KU = stage_U[None, :] <= step_K[:, None]
    masks = [hidden_KU if keep else ~hidden_KU] * len(cases)
    return [logits.cpu() for logits in perturbed_logits(model, inputs, masks, units, absent=absent)]


def _units(
    inputs: Inputs, explanation: Explanation, shares: Sequence[float], lowest: bool, place: int, name: str
) -> Units:
    if "pixel_values" in inputs.tensors:
        height, width = inputs.tensors["pixel_values"].shape[-2:]
        found = stages(pixel_map(explanation, height, width).flatten(), shares, lowest=lowest)
        return Units("stage", torch.from_numpy(found + 1).reshape(height, width), len(shares) + 1)
    special = inputs.items[place].special
    if len(special) != len(explanation.relevance):
        differ = f"Example '{name}' has {len(special)} tokens, its explanation {len(explanation.relevance)}: "
        raise BadInput(differ, "explain it with ", Argument("long", "truncate"), " before measuring.")
    real = ~np.array(special, dtype=bool)
    labels = torch.zeros(inputs.tensors["input_ids"].shape[1], dtype=torch.long)
    labels[: len(real)][torch.from_numpy(real)] = torch.from_numpy(
        stages(explanation.relevance[real], shares, lowest=lowest) + 1
    )
    return Units("stage", labels, len(shares) + 1)


def pixel_map(explanation: Explanation, height: int, width: int) -> Array:
    """Relevance of every pixel the network sees."""
    assert explanation.grid is not None
    plain = explanation.relevance[~explanation.special].reshape(explanation.grid)
    return stretched(plain if explanation.pixels is None else explanation.pixels, height, width)


def masked_from_attention(model: Model) -> str | None:
    """[MASK] and no attention, as in the hiding game, or the one of them that there is; black for images."""
    if model.takes_images:
        return None
    if not model.takes_mask:
        return "mask"
    return "attention" if token_id(model, "mask") is None else "mask-attention"


def equal_shares(steps: int) -> list[float]:
    """0, 1/steps … 1."""
    return [step / steps for step in range(steps + 1)]


def trapezoid(values: Array, shares: Sequence[float]) -> float:
    """Area under the values over the shares."""
    return float(((values[1:] + values[:-1]) / 2 * np.diff(shares)).sum())
