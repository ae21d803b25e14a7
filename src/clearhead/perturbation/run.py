"""One engine that hides parts of many inputs and runs the model on all of them in full batches.

A mask says of every unit of one input (see units.py) whether it is present; what a hidden one looks like is explicit.
Perturbed inputs of many examples are packed by length, equal ones are computed once, and only one batch of them exists
at a time.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_inference
from clearhead.errors import BadInput, BadOption
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits
from clearhead.model.target import Target
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.replacement import Replacement, Rows, make_replacement, parts, resolve_replacement

TOKENS = {"cpu": 512, "cuda": 65536}


def perturbed_logits(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    units: Sequence[Features] | None = None,
    *,
    absent: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """For each input, the logits under each of its masks (masks × units, True = present).

    Perturbed inputs of all examples share batches, sorted by length; equal ones are computed once. Answer-span models
    give (masks, 2, T), −inf at padding. What is hidden looks as `absent` says: for text "mask", "pad", "delete",
    "attention" or "mask-attention"; for images "zero" (black), "mean" or "blurred".

    >>> perturbed_logits(model, "a fine film", [torch.tensor([[True, False, True]])])     # doctest: +SKIP
    """
    batch = as_inputs(model, inputs)
    units = group_features(model, batch) if units is None else units
    rows = _rows(batch, masks, units)
    hidden = make_replacement(model, batch, resolve_replacement(model, batch, absent))
    lengths_R = hidden.lengths(rows)
    first_N, twin_R = _distinct(rows, hidden, lengths_R)
    order_N = first_N[torch.argsort(lengths_R[first_N], descending=True, stable=True)]
    logits = _run(model, rows, hidden, order_N, lengths_R[order_N], batch_size)
    place_R = torch.empty(len(lengths_R), dtype=torch.long)
    place_R[order_N] = torch.arange(len(order_N))
    return list(logits[place_R[twin_R]].split_with_sizes([len(mask) for mask in masks]))


def perturbed_scores(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    targets: Sequence[Target],
    units: Sequence[Features] | None = None,
    *,
    output: str = "probability",
    absent: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """As `perturbed_logits`, but for each input the probability (or logit) of its own resolved target."""
    found = perturbed_logits(model, inputs, masks, units, absent=absent, batch_size=batch_size)
    return [score_targets(logits, one, model.problem, output) for logits, one in zip(found, targets, strict=True)]


def score_targets(logits: Tensor, target: Target, problem: str, output: str = "probability") -> Tensor:
    """What each row says of the target, in float64; a contrast is a difference, a regression has its value only."""
    if output not in ("probability", "logit"):
        raise BadOption(f"output={output!r} is not a choice. Use 'probability' or 'logit'.")
    values = logits.double()
    likely = output == "probability"
    if target.span is not None:
        values = values.softmax(-1) if likely else values
        chosen = [values[:, side, place] for side, place in enumerate(target.span) if place is not None]
        return torch.stack(chosen).prod(0) if likely else torch.stack(chosen).sum(0)
    if likely and problem != "regression":
        values = values.softmax(-1) if problem == "single-label" else values.sigmoid()
    score_N = values[:, target.number]
    return score_N - values[:, target.versus] if isinstance(target.versus, int) else score_N


# --- rows: one per mask of one input ----------------------------------------------------------------------------


def _rows(batch: Inputs, masks: Sequence[Tensor], units: Sequence[Features]) -> Rows:
    if not len(batch) == len(masks) == len(units):
        raise BadInput(f"{len(batch)} inputs need as many mask tensors and units, not {len(masks)} and {len(units)}.")
    for place, (mask, unit) in enumerate(zip(masks, units, strict=True)):
        if mask.dim() != 2 or mask.shape[1] != unit.count or mask.dtype != torch.bool:
            raise BadInput(
                f"Input {place} has {unit.count} units ({unit.kind}), so its masks must be a boolean tensor "
                f"(masks, {unit.count}), not {mask.dtype} {tuple(mask.shape)}."
            )
    if not any(map(len, masks)):
        raise BadInput("There is no mask, so there is nothing to run: give each input at least one row.")
    widest = max(unit.count for unit in units)
    present = [F.pad(F.pad(mask.cpu(), (1, 0), value=True), (0, widest - mask.shape[1]), value=True) for mask in masks]
    example_R = torch.repeat_interleave(torch.tensor([len(mask) for mask in masks]))
    return Rows(example_R, torch.cat(present), torch.stack([unit.labels.flatten().cpu() for unit in units]))


def _distinct(rows: Rows, hidden: Replacement, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of every group of equal ones, and for each row the first of its group."""
    seen: dict[bytes, int] = {}
    keys = [key for part in parts(len(lengths_R)) for key in hidden.keys(rows, part, lengths_R[part].tolist())]
    twins = [seen.setdefault(key, place) for place, key in enumerate(keys)]
    return torch.tensor(sorted(seen.values()), dtype=torch.long), torch.tensor(twins, dtype=torch.long)


def _run(
    model: Model, rows: Rows, hidden: Replacement, order_N: Tensor, lengths_N: Tensor, batch_size: int | None
) -> Tensor:
    found: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        chosen = order_N[start:stop]
        tensors = hidden.build(rows, chosen, int(lengths_N[start]))
        found.append(hidden.finish(finite_logits(model, model.network(**tensors)), rows.example_R[chosen]))

    size = batch_size if model.can_pad else 1
    with eager_inference(model.network, model.device):
        alike = _reads_padding(model, rows, hidden, lengths_N)
        in_batches(lengths_N.tolist(), compute, tokens=_room(model.device), size=size, alike=alike, label="inputs")
    return torch.cat(found).clone()


def _room(device: torch.device) -> int:
    """Tokens of a full batch: on a CPU more would leave its caches, unless many threads share them."""
    tokens = TOKENS.get(device.type, TOKENS["cpu"])
    return tokens * max(1, torch.get_num_threads() // 4) if device.type == "cpu" else tokens


def _reads_padding(model: Model, rows: Rows, hidden: Replacement, lengths_N: Tensor) -> bool:
    """Whether a hidden token looks at padding, as in DeBERTa where it attends to nothing, so to all alike.

    The network is asked: the shortest input of two units or more with either half hidden, with and without padding.
    """
    if not hidden.removes_attention or not model.can_pad or bool((lengths_N == lengths_N[0]).all()):
        return False
    lengths_E = hidden.lengths(Rows(torch.arange(len(rows.labels_EX)), rows.present_RU[:0], rows.labels_EX))
    count_E, longest = rows.labels_EX.amax(1), int(lengths_E.max())
    shortest = torch.where(count_E > 1, lengths_E, longest).argmin()
    place_U, half = torch.arange(rows.present_RU.shape[1]), count_E[shortest] // 2
    present_2U = torch.stack([place_U <= half, (place_U < 1) | (place_U > half)])
    probe = Rows(shortest.expand(2), present_2U, rows.labels_EX)
    tight, padded = (
        hidden.finish(
            finite_logits(model, model.network(**hidden.build(probe, torch.arange(2), width))), probe.example_R
        )
        for width in (int(lengths_E[shortest]), longest)
    )
    return not torch.allclose(tight, padded, rtol=0, atol=torch.finfo(tight.dtype).eps ** 0.5)
