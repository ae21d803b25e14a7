"""Run the model on inputs with features removed, in full batches.

A mask says of every feature of one input (see features.py) whether it is present; what replaces a removed one is
explicit. Perturbed inputs of many examples are sorted by length, equal ones are computed once, and only one batch of
them exists at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_inference
from clearhead.errors import BadInput
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits
from clearhead.model.target import Target
from clearhead.perturbation.answer_scores import AnswerReader
from clearhead.perturbation.features import Features, group_features
from clearhead.perturbation.replacement import make_replacement, resolve_replacement
from clearhead.perturbation.rows import Replacement, Rows, chunk_rows
from clearhead.perturbation.scores import score_targets
from clearhead.perturbation.shared_prefixes import (
    PrefixRow,
    build_tree,
    can_share_prefixes,
    read_row,
    run_tree,
)

TOKENS_PER_BATCH = {"cpu": 512, "cuda": 65536}
CALL_TOKENS = {"cpu": 80}
"""The tokens that take as long as a call of the embedded models itself: more padding costs more than another call."""


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
    return _read_perturbed(model, inputs, masks, units, replacement, batch_size)


def _read_perturbed(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    units: Sequence[Features] | None,
    replacement: str | None,
    batch_size: int | None,
    reader: AnswerReader | None = None,
) -> list[Tensor]:
    """Return for each input the logits under each of its masks, or what a reader reads from them."""
    batch = as_inputs(model, inputs)
    if units is None:
        units = group_features(model, batch)
    _check_masks(batch, masks, units)
    replacer = make_replacement(model, batch, resolve_replacement(model, batch, replacement))
    outputs = _run_rows(PerturbedPass(model, _stack_rows(masks, units), replacer, reader), batch_size)
    return list(outputs.split_with_sizes(list(map(len, masks))))


@dataclass(frozen=True)
class PerturbedPass:
    """Runs a network on rows of masks; a reader keeps only a part of each row's logits."""

    model: Model
    rows: Rows
    replacer: Replacement
    reader: AnswerReader | None = None

    def compute(self, chosen: Tensor, width: int) -> Tensor:
        """Return the logits of some rows, or what the reader reads from them."""
        return self.read(self.model.network(**self.build(chosen, width)), chosen)

    def build(self, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """Return the network's input for some rows."""
        return self.replacer.build(self.rows, chosen, width)

    def read(self, output: Any, chosen: Tensor) -> Tensor:
        """Return the logits in the network's output for some rows, or what the reader reads from them."""
        example_N = self.rows.example_R[chosen]
        logits = self.replacer.finish(finite_logits(self.model, output), example_N)
        return logits if self.reader is None else self.reader.read(logits, example_N)

    def keys(self, lengths_R: Tensor) -> Iterator[bytes]:
        """Yield a key per row, equal for rows with the same output."""
        for chunk in chunk_rows(len(lengths_R)):
            keys = self.replacer.keys(self.rows, chunk, lengths_R[chunk])
            yield from map(bytes.__add__, keys, self._suffixes(chunk))

    def _suffixes(self, chosen: Tensor) -> list[bytes]:
        """Return what tells rows with equal inputs from each other: what is read from their logits."""
        if self.reader is None:
            return [b""] * len(chosen)
        return [self.reader.keys[example] for example in self.rows.example_R[chosen].tolist()]


def _run_rows(perturbed: PerturbedPass, batch_size: int | None) -> Tensor:
    """Return the output of every row; equal rows are computed once."""
    lengths_R = perturbed.replacer.lengths(perturbed.rows)
    first_R = _find_first_equal(perturbed.keys(lengths_R))
    order_N = _longest_first(torch.unique(first_R), lengths_R)
    outputs = _run_distinct(perturbed, order_N, lengths_R[order_N], batch_size)
    position_R = invert_order(order_N, len(lengths_R))
    return outputs[position_R[first_R]]


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
    output: str | None = None,
    replacement: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """Return for each input the score of its own resolved target under each of its masks (see `score_targets`)."""
    target_sets = [(target,) for target in targets]
    scores = score_target_sets(
        model, inputs, masks, target_sets, units, output=output, replacement=replacement, batch_size=batch_size
    )
    return [score_1N[0] for score_1N in scores]


def score_target_sets(
    model: Model,
    inputs: Any,
    masks: Sequence[Tensor],
    target_sets: Sequence[Sequence[Target]],
    units: Sequence[Features] | None = None,
    *,
    output: str | None = None,
    replacement: str | None = None,
    batch_size: int | None = None,
) -> list[Tensor]:
    """Return for each input the scores of all of its targets under each of its masks (targets × masks)."""
    if not model.writes:
        logits = perturbed_logits(model, inputs, masks, units, replacement=replacement, batch_size=batch_size)
        pairs = zip(logits, target_sets, strict=True)
        return [_score_each(rows, targets, model.problem, output) for rows, targets in pairs]
    reader = AnswerReader(target_sets)
    read = _read_perturbed(model, inputs, masks, units, replacement, batch_size, reader)
    return [reader.score_each(read[example], example, output) for example in range(len(target_sets))]


def _score_each(logits: Tensor, targets: Sequence[Target], problem: str, output: str | None) -> Tensor:
    return torch.stack([score_targets(logits, target, problem, output) for target in targets])


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
    _require_rows(masks)


def _require_rows(masks: Sequence[Tensor]) -> None:
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


def _run_distinct(perturbed: PerturbedPass, order_N: Tensor, lengths_N: Tensor, batch_size: int | None) -> Tensor:
    """Return the outputs of the rows in `order_N`, longest first."""
    model = perturbed.model
    # Frozen and in inference mode once around all batches, not once per batch.
    with eager_inference(model.network, model.device):
        outputs = None
        if batch_size is None and can_share_prefixes(model.network, model.device):
            outputs = _run_prefixes(perturbed, order_N, lengths_N)
        if outputs is None:
            outputs = _run_batches(perturbed, order_N, lengths_N, batch_size)
    # Cloned outside inference mode, the result is an ordinary tensor that autograd accepts.
    return torch.cat(outputs).clone()


def _run_prefixes(perturbed: PerturbedPass, order_N: Tensor, lengths_N: Tensor) -> list[Tensor] | None:
    """Return the outputs of rows whose shared tokens are computed once; None if that would be slower, or wrong."""
    rows = _list_prefix_rows(perturbed, order_N, lengths_N)
    if rows is None:
        return None
    tree = build_tree(rows)
    if not tree.saves_time:
        return None
    network, tokens = perturbed.model.network, _batch_tokens(perturbed.model.device)
    outputs = run_tree(network, tree, tokens, lambda logits, row: perturbed.read(logits, order_N[[row]]))
    probe = tree.first_shared()
    # A network may do with its cache what it likes.
    if not _is_close(perturbed.model, outputs[probe], perturbed.compute(order_N[[probe]], int(lengths_N[probe]))):
        return None
    return outputs


def _list_prefix_rows(perturbed: PerturbedPass, order_N: Tensor, lengths_N: Tensor) -> list[PrefixRow] | None:
    """Return the tokens of each row, None if some row cannot start from another's tokens."""
    rows = []
    for number, length in zip(order_N, lengths_N.tolist(), strict=True):
        row = read_row(perturbed.build(number[None], length))
        if row is None:
            return None
        rows.append(row)
    return rows


def _run_batches(perturbed: PerturbedPass, order_N: Tensor, lengths_N: Tensor, batch_size: int | None) -> list[Tensor]:
    """Return the outputs of the rows in `order_N` in batches."""
    model = perturbed.model
    outputs: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        outputs.append(perturbed.compute(order_N[start:stop], int(lengths_N[start])))

    size = _rows_per_batch(model, batch_size)
    tokens = _batch_tokens(model.device)
    alike = _reads_padding(perturbed, lengths_N)
    overhead = CALL_TOKENS.get(model.device.type) if size is None else None
    in_batches(lengths_N.tolist(), compute, tokens=tokens, size=size, alike=alike, label="inputs", overhead=overhead)
    return outputs


def _rows_per_batch(model: Model, batch_size: int | None) -> int | None:
    # Without padding only single rows are sure to be of one length.
    if not model.can_pad:
        return 1
    return batch_size


def _batch_tokens(device: torch.device) -> int:
    """Return the tokens of a full batch: on a CPU more would leave its caches, unless many threads share them."""
    # Other accelerators get the CPU's size, which is small enough for any of them.
    tokens = TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH["cpu"])
    if device.type == "cpu":
        tokens *= max(1, torch.get_num_threads() // 4)
    return tokens


def _reads_padding(perturbed: PerturbedPass, lengths_N: Tensor) -> bool:
    """Return whether padding changes the logits of this network when tokens are removed from attention."""
    may_read = _may_read_padding(perturbed.model, perturbed.replacer, lengths_N)
    return may_read and _changes_with_padding(perturbed)


def _may_read_padding(model: Model, replacer: Replacement, lengths_N: Tensor) -> bool:
    # Without padding, or where rows of one length need none, there is nothing to find out.
    return replacer.removes_attention and model.can_pad and not _is_constant(lengths_N)


def _changes_with_padding(perturbed: PerturbedPass) -> bool:
    """Return whether the logits of a probe differ with and without padding.

    In DeBERTa a token without attention attends to all positions equally, padding included. The probe is the shortest
    input of two features or more, with either half of them removed.
    """
    lengths_E = _example_lengths(perturbed.rows, perturbed.replacer)
    example, halves = _make_probe(perturbed.rows, lengths_E)
    probe = replace(perturbed, rows=halves)
    tight = probe.compute(torch.arange(2), int(lengths_E[example]))
    padded = probe.compute(torch.arange(2), int(lengths_E.max()))
    return not _is_close(perturbed.model, tight, padded)


def _is_constant(values_N: Tensor) -> bool:
    return bool((values_N == values_N[0]).all())


def _is_close(model: Model, first: Tensor, second: Tensor) -> bool:
    # Half of the model's digits: rounding differs with the width of a batch, reading padding changes far more.
    return torch.allclose(first, second, rtol=0, atol=torch.finfo(model.dtype).eps ** 0.5)


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
