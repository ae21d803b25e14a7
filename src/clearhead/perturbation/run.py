"""Run the model on inputs with features removed, in full batches.

A mask says of every feature of one input (see features.py) whether it is present; what replaces a removed one is
explicit. Perturbed inputs of many examples are sorted by length, equal ones are computed once, and only one batch of
them exists at a time.
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
from clearhead.model.outputs import class_probabilities, finite_logits
from clearhead.model.target import Target
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.replacement import Replacement, Rows, chunk_rows, make_replacement, resolve_replacement

TOKENS_PER_BATCH = {"cpu": 512, "cuda": 65536}
OUTPUTS = ("probability", "logit")


def perturbed_logits(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    units: Sequence[Features] | None = None,
    *,
    replacement: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """Return for each input the logits under each of its masks (masks × features, True = present).

    Perturbed inputs of all examples share batches, sorted by length; equal ones are computed once. Answer-span models
    give (masks, 2, T), −inf at padding. `replacement` says what a removed feature becomes: for text "mask", "pad",
    "delete", "attention" or "mask-attention"; for images "zero" (black), "mean" or "blur".

    >>> perturbed_logits(model, "a fine film", [torch.tensor([[True, False, True]])])     # doctest: +SKIP
    """
    batch = as_inputs(model, inputs)
    if units is None:
        units = group_features(model, batch)
    rows = _stack_rows(batch, masks, units)
    replacer = make_replacement(model, batch, resolve_replacement(model, batch, replacement))
    lengths_R = replacer.lengths(rows)
    distinct_N, first_R = _find_distinct(rows, replacer, lengths_R)
    # Longest first: a batch is as wide as its first row, and what does not fit shows at once.
    order_N = distinct_N[torch.argsort(lengths_R[distinct_N], descending=True, stable=True)]
    logits = _run_batches(model, rows, replacer, order_N, lengths_R[order_N], batch_size)
    # Only first rows of equal ones were computed, so only their positions are set, and only those are read.
    position_R = torch.empty(len(lengths_R), dtype=torch.long)
    position_R[order_N] = torch.arange(len(order_N))
    return list(logits[position_R[first_R]].split_with_sizes([len(mask) for mask in masks]))


def perturbed_scores(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    targets: Sequence[Target],
    units: Sequence[Features] | None = None,
    *,
    output: str = "probability",
    replacement: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """Return for each input the probability (or logit) of its own resolved target under each of its masks."""
    logits = perturbed_logits(model, inputs, masks, units, replacement=replacement, batch_size=batch_size)
    return [score_targets(rows, target, model.problem, output) for rows, target in zip(logits, targets, strict=True)]


def score_targets(logits: Tensor, target: Target, problem: str, output: str = "probability") -> Tensor:
    """Return the target's probability (or logit) in each row of logits, in float64.

    A contrast is the difference of its two classes, a regression has its value only.
    """
    if output not in OUTPUTS:
        raise BadOption(f"Invalid output={output!r}. Available: {', '.join(OUTPUTS)}.")
    is_probability = output == "probability"
    if target.span is not None:
        return _score_span(logits.double(), target.span, is_probability)
    scores_NC = logits.double()
    if is_probability and problem != "regression":
        scores_NC = class_probabilities(logits, problem)
    score_N = scores_NC[:, target.number]
    if isinstance(target.versus, int):
        score_N = score_N - scores_NC[:, target.versus]
    return score_N


def _score_span(logits_N2T: Tensor, span: tuple[int | None, int | None], is_probability: bool) -> Tensor:
    """Return the product of the probabilities of start and end, or the sum of their logits."""
    scores_N2T = logits_N2T.softmax(-1) if is_probability else logits_N2T
    # The explanation of one side alone has None for the other.
    sides = [scores_N2T[:, side, position] for side, position in enumerate(span) if position is not None]
    stacked = torch.stack(sides)
    return stacked.prod(0) if is_probability else stacked.sum(0)


def _stack_rows(batch: Inputs, masks: Sequence[Tensor], units: Sequence[Features]) -> Rows:
    _check_masks(batch, masks, units)
    columns = max(features.count for features in units)
    present_RU = torch.cat([_pad_mask(mask, columns) for mask in masks])
    example_R = torch.repeat_interleave(torch.tensor([len(mask) for mask in masks]))
    labels_EX = torch.stack([features.labels.flatten().cpu() for features in units])
    return Rows(example_R, present_RU, labels_EX)


def _pad_mask(mask: Tensor, columns: int) -> Tensor:
    """Add column 0 for what is never removed, and columns for features that other examples have."""
    with_first = F.pad(mask.cpu(), (1, 0), value=True)
    return F.pad(with_first, (0, columns - mask.shape[1]), value=True)


def _check_masks(batch: Inputs, masks: Sequence[Tensor], units: Sequence[Features]) -> None:
    if not len(batch) == len(masks) == len(units):
        raise BadInput(f"{len(batch)} inputs need as many mask tensors and units, not {len(masks)} and {len(units)}.")
    for index, (mask, features) in enumerate(zip(masks, units, strict=True)):
        if mask.dim() != 2 or mask.shape[1] != features.count or mask.dtype != torch.bool:
            raise BadInput(
                f"Input {index} has {features.count} units ({features.kind}), so its masks must be a boolean tensor "
                f"(masks, {features.count}), not {mask.dtype} {tuple(mask.shape)}."
            )
    if not any(map(len, masks)):
        raise BadInput("There is no mask, so there is nothing to run: give each input at least one row.")


def _find_distinct(rows: Rows, replacer: Replacement, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first row of every group of equal ones (N), and for each row the first of its group (R)."""
    first_rows: dict[bytes, int] = {}
    firsts: list[int] = []
    for chunk in chunk_rows(len(lengths_R)):
        for key in replacer.keys(rows, chunk, lengths_R[chunk].tolist()):
            firsts.append(first_rows.setdefault(key, len(firsts)))
    distinct = sorted(first_rows.values())
    return torch.tensor(distinct, dtype=torch.long), torch.tensor(firsts, dtype=torch.long)


def _run_batches(
    model: Model, rows: Rows, replacer: Replacement, order_N: Tensor, lengths_N: Tensor, batch_size: int | None
) -> Tensor:
    """Return the logits of the rows in `order_N`, longest first."""
    logits: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        logits.append(_forward(model, rows, replacer, order_N[start:stop], int(lengths_N[start])))

    # Without padding only single rows are sure to be of one length.
    size = batch_size if model.can_pad else 1
    tokens = _batch_tokens(model.device)
    with eager_inference(model.network, model.device):
        alike = _reads_padding(model, rows, replacer, lengths_N)
        in_batches(lengths_N.tolist(), compute, tokens=tokens, size=size, alike=alike, label="inputs")
    # Cloned outside inference mode, the result is an ordinary tensor that autograd accepts.
    return torch.cat(logits).clone()


def _forward(model: Model, rows: Rows, replacer: Replacement, chosen: Tensor, width: int) -> Tensor:
    output = model.network(**replacer.build(rows, chosen, width))
    return replacer.finish(finite_logits(model, output), rows.example_R[chosen])


def _batch_tokens(device: torch.device) -> int:
    """Return the tokens of a full batch: on a CPU more would leave its caches, unless many threads share them."""
    tokens = TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH["cpu"])
    if device.type == "cpu":
        tokens *= max(1, torch.get_num_threads() // 4)
    return tokens


def _reads_padding(model: Model, rows: Rows, replacer: Replacement, lengths_N: Tensor) -> bool:
    """Return whether padding changes the logits of this network when tokens are removed from attention.

    In DeBERTa a token without attention attends to all positions equally, padding included. The network is probed:
    the shortest input of two features or more, with either half of them removed, with and without padding.
    """
    if not replacer.removes_attention or not model.can_pad or bool((lengths_N == lengths_N[0]).all()):
        return False
    # No mask is read for lengths here: only "delete", which keeps attention, shortens rows.
    lengths_E = replacer.lengths(Rows(torch.arange(len(rows.labels_EX)), rows.present_RU[:0], rows.labels_EX))
    longest = int(lengths_E.max())
    count_E = rows.labels_EX.amax(1)
    shortest = torch.where(count_E > 1, lengths_E, longest).argmin()
    probe = _halve_features(rows, shortest, count_E[shortest] // 2)
    tight = _forward(model, probe, replacer, torch.arange(2), int(lengths_E[shortest]))
    padded = _forward(model, probe, replacer, torch.arange(2), longest)
    return not torch.allclose(tight, padded, rtol=0, atol=torch.finfo(tight.dtype).eps ** 0.5)


def _halve_features(rows: Rows, example: Tensor, half: Tensor) -> Rows:
    """Return two rows of one example: the first half of its features present, then the second."""
    feature_U = torch.arange(rows.present_RU.shape[1])
    # Column 0 stands for what is never removed, so it is present in both.
    first_U = feature_U <= half
    second_U = (feature_U < 1) | (feature_U > half)
    return Rows(example.expand(2), torch.stack([first_U, second_U]), rows.labels_EX)
