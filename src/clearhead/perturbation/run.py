"""Run the model on inputs with features removed, in full batches.

A mask says of every feature of one input (see features.py) whether it is present; what replaces a removed one is
explicit. Perturbed inputs of many examples are sorted by length, equal ones are computed once, and only one batch of
them exists at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_inference
from clearhead.errors import BadInput
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, finite_logits
from clearhead.model.target import Target
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.replacement import Replacement, make_replacement, resolve_replacement
from clearhead.perturbation.rows import Rows, chunk_rows
from clearhead.validation import require_choice

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
    _check_masks(batch, masks, units)
    replacer = make_replacement(model, batch, resolve_replacement(model, batch, replacement))
    logits = _run_rows(model, _stack_rows(masks, units), replacer, batch_size)
    return list(logits.split_with_sizes(list(map(len, masks))))


def _run_rows(model: Model, rows: Rows, replacer: Replacement, batch_size: int | None) -> Tensor:
    """Return the logits of every row; equal rows are computed once."""
    lengths_R = replacer.lengths(rows)
    first_R = _find_first_equal(_row_keys(rows, replacer, lengths_R))
    order_N = _longest_first(torch.unique(first_R), lengths_R)
    logits = _run_batches(model, rows, replacer, order_N, lengths_R[order_N], batch_size)
    position_R = invert_order(order_N, len(lengths_R))
    return logits[position_R[first_R]]


def _longest_first(chosen_N: Tensor, lengths_R: Tensor) -> Tensor:
    """Sort row numbers by length, longest first, ties by number."""
    # A batch is as wide as its first row, and what does not fit into memory shows at once.
    return chosen_N[torch.argsort(lengths_R[chosen_N], descending=True, stable=True)]


def invert_order(order_N: Tensor, size: int) -> Tensor:
    """Return where each of `size` numbers stands in an order of them; undefined for those that it does not list."""
    position_R = torch.empty(size, dtype=torch.long)
    position_R[order_N] = torch.arange(len(order_N))
    return position_R


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
    require_choice("output", output, OUTPUTS)
    is_probability = output == "probability"
    if target.span is not None:
        return _score_span(logits.double(), target.span, is_probability)
    return _score_class(_class_scores(logits, problem, is_probability), target)


def _class_scores(logits_NC: Tensor, problem: str, is_probability: bool) -> Tensor:
    """Return the probabilities, or the logits, of all classes."""
    if is_probability and problem != "regression":
        return class_probabilities(logits_NC, problem)
    # float64, as the probabilities: curves subtract scores that are close to each other.
    return logits_NC.double()


def _score_class(scores_NC: Tensor, target: Target) -> Tensor:
    score_N = scores_NC[:, target.number]
    if isinstance(target.versus, int):
        return score_N - scores_NC[:, target.versus]
    return score_N


def _score_span(logits_N2T: Tensor, span: tuple[int | None, int | None], is_probability: bool) -> Tensor:
    """Return the product of the probabilities of start and end, or the sum of their logits."""
    # Start and end are independent outputs, so the probability of a span is a product.
    if is_probability:
        return _select_sides(logits_N2T.softmax(-1), span).prod(0)
    return _select_sides(logits_N2T, span).sum(0)


def _select_sides(scores_N2T: Tensor, span: tuple[int | None, int | None]) -> Tensor:
    """Return the scores at the span's start and end; the explanation of one side alone has None for the other."""
    sides = []
    for side, position in enumerate(span):
        if position is not None:
            sides.append(scores_N2T[:, side, position])
    return torch.stack(sides)


def _stack_rows(masks: Sequence[Tensor], units: Sequence[Features]) -> Rows:
    return Rows(_number_rows(masks), _stack_masks(masks, units), _stack_labels(units))


def _stack_masks(masks: Sequence[Tensor], units: Sequence[Features]) -> Tensor:
    columns = _count_columns(units)
    return torch.cat([_pad_mask(mask, columns) for mask in masks])


def _count_columns(units: Sequence[Features]) -> int:
    """Return the number of features of the input that has most of them."""
    return max(features.count for features in units)


def _number_rows(masks: Sequence[Tensor]) -> Tensor:
    """Return for each row of the stacked masks the number of its example."""
    counts_E = torch.tensor(list(map(len, masks)))
    return torch.repeat_interleave(counts_E)


def _stack_labels(units: Sequence[Features]) -> Tensor:
    return torch.stack([features.labels.flatten().cpu() for features in units])


def _pad_mask(mask: Tensor, columns: int) -> Tensor:
    """Add column 0 for what is never removed, and columns for features that other examples have."""
    # Present, so that nothing is removed for a column that the example does not have.
    return F.pad(mask.cpu(), (1, columns - mask.shape[1]), value=True)


def _check_masks(batch: Inputs, masks: Sequence[Tensor], units: Sequence[Features]) -> None:
    inputs = len(batch)
    if not inputs == len(masks) == len(units):
        raise BadInput(f"{inputs} inputs need as many mask tensors and units, not {len(masks)} and {len(units)}.")
    for index, (mask, features) in enumerate(zip(masks, units, strict=True)):
        if not _fits(mask, features):
            raise _bad_mask(index, mask, features)
    if not any(map(len, masks)):
        raise BadInput("There is no mask, so there is nothing to run: give each input at least one row.")


def _fits(mask: Tensor, features: Features) -> bool:
    # Integers would pass silently, and `~` would flip all of their bits.
    return mask.dtype == torch.bool and mask.shape[1:] == (features.count,)


def _bad_mask(index: int, mask: Tensor, features: Features) -> BadInput:
    return BadInput(
        f"Input {index} has {features.count} units ({features.kind}), so its masks must be a boolean tensor "
        f"(masks, {features.count}), not {mask.dtype} {tuple(mask.shape)}."
    )


def _find_first_equal(keys: Iterable[bytes]) -> Tensor:
    """Return for each row the number of the first row that has the same key (R)."""
    first_rows: dict[bytes, int] = {}
    firsts = [first_rows.setdefault(key, row) for row, key in enumerate(keys)]
    return torch.tensor(firsts, dtype=torch.long)


def _row_keys(rows: Rows, replacer: Replacement, lengths_R: Tensor) -> Iterator[bytes]:
    """Yield a key per row, equal for rows that give the network the same input."""
    for chunk in chunk_rows(len(lengths_R)):
        yield from replacer.keys(rows, chunk, lengths_R[chunk])


def _run_batches(
    model: Model, rows: Rows, replacer: Replacement, order_N: Tensor, lengths_N: Tensor, batch_size: int | None
) -> Tensor:
    """Return the logits of the rows in `order_N`, longest first."""
    logits: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        logits.append(_forward(model, rows, replacer, order_N[start:stop], int(lengths_N[start])))

    size = _rows_per_batch(model, batch_size)
    tokens = _batch_tokens(model.device)
    # Frozen and in inference mode once around all batches, not once per batch.
    with eager_inference(model.network, model.device):
        alike = _reads_padding(model, rows, replacer, lengths_N)
        in_batches(lengths_N.tolist(), compute, tokens=tokens, size=size, alike=alike, label="inputs")
    # Cloned outside inference mode, the result is an ordinary tensor that autograd accepts.
    return torch.cat(logits).clone()


def _rows_per_batch(model: Model, batch_size: int | None) -> int | None:
    # Without padding only single rows are sure to be of one length.
    if not model.can_pad:
        return 1
    return batch_size


def _forward(model: Model, rows: Rows, replacer: Replacement, chosen: Tensor, width: int) -> Tensor:
    output = model.network(**replacer.build(rows, chosen, width))
    return replacer.finish(finite_logits(model, output), rows.example_R[chosen])


def _batch_tokens(device: torch.device) -> int:
    """Return the tokens of a full batch: on a CPU more would leave its caches, unless many threads share them."""
    # Other accelerators get the CPU's size, which is small enough for any of them.
    tokens = TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH["cpu"])
    if device.type == "cpu":
        tokens *= max(1, torch.get_num_threads() // 4)
    return tokens


def _reads_padding(model: Model, rows: Rows, replacer: Replacement, lengths_N: Tensor) -> bool:
    """Return whether padding changes the logits of this network when tokens are removed from attention."""
    return _may_read_padding(model, replacer, lengths_N) and _changes_with_padding(model, rows, replacer)


def _may_read_padding(model: Model, replacer: Replacement, lengths_N: Tensor) -> bool:
    # Without padding, or where rows of one length need none, there is nothing to find out.
    return replacer.removes_attention and model.can_pad and not _is_constant(lengths_N)


def _changes_with_padding(model: Model, rows: Rows, replacer: Replacement) -> bool:
    """Return whether the logits of a probe differ with and without padding.

    In DeBERTa a token without attention attends to all positions equally, padding included. The probe is the shortest
    input of two features or more, with either half of them removed.
    """
    lengths_E = _example_lengths(rows, replacer)
    example, probe = _make_probe(rows, lengths_E)
    tight = _forward(model, probe, replacer, torch.arange(2), int(lengths_E[example]))
    padded = _forward(model, probe, replacer, torch.arange(2), int(lengths_E.max()))
    return not _is_close(tight, padded)


def _is_constant(values_N: Tensor) -> bool:
    return bool((values_N == values_N[0]).all())


def _is_close(first: Tensor, second: Tensor) -> bool:
    # Half of the digits: rounding differs with the width of a batch, reading padding changes far more.
    return torch.allclose(first, second, rtol=0, atol=torch.finfo(first.dtype).eps ** 0.5)


def _example_lengths(rows: Rows, replacer: Replacement) -> Tensor:
    """Return the length of every example with all of its tokens (E)."""
    examples_E = torch.arange(len(rows.labels_EX))
    # No mask is read for lengths here: only "delete", which keeps attention, shortens rows.
    return replacer.lengths(Rows(examples_E, rows.present_RU[:0], rows.labels_EX))


def _make_probe(rows: Rows, lengths_E: Tensor) -> tuple[Tensor, Rows]:
    """Return the number of the shortest example with two features or more, and its two halves as rows."""
    count_E = rows.labels_EX.amax(1)
    shortest = torch.where(count_E > 1, lengths_E, lengths_E.max()).argmin()
    return shortest, _halve_features(rows, shortest, count_E[shortest] // 2)


def _halve_features(rows: Rows, example: Tensor, half: Tensor) -> Rows:
    """Return two rows of one example: the first half of its features present, then the second."""
    return Rows(example.expand(2), _half_masks(rows.present_RU.shape[1], half), rows.labels_EX)


def _half_masks(columns: int, half: Tensor) -> Tensor:
    feature_U = torch.arange(columns)
    is_first_U = feature_U <= half
    # Column 0 stands for what is never removed, so it is present in both.
    return torch.stack([is_first_U, ~is_first_U | (feature_U == 0)])
