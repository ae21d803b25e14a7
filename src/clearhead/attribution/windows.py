"""Sliding windows over texts that are longer than the model takes, explained one by one and stitched together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.assemble import describe_predictions
from clearhead.attribution.batch import explain_batch, rows_per_batch
from clearhead.attribution.method import MethodSpec
from clearhead.engine.context import eager_inference
from clearhead.errors import Argument, BadInput, UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, Item, collate
from clearhead.model.model import Model, max_tokens
from clearhead.model.outputs import finite_logits, target_probability
from clearhead.model.target import TargetLike, make_seeds, resolve_target, target_score
from clearhead.progress import progress

Row = TypeVar("Row", tuple[Any, ...], list[Any])


def is_too_long(model: Model, encoded: Encoded) -> bool:
    """Return whether an input has more tokens than the model takes."""
    limit = max_tokens(model)
    return limit is not None and encoded.length > limit


def explain_windows(
    model: Model,
    encoded: Encoded,
    target: TargetLike,
    specs: Sequence[MethodSpec],
    batch_size: int | None = None,
) -> list[Explanation]:
    """Explain half-overlapping windows for one common target; a token in two windows gets their mean.

    The logits of the whole text are the mean over its windows; they decide its prediction. Special tokens are left
    out, since every window has its own.
    """
    batches = _batch_windows(model, encoded, batch_size)
    rows: list[list[Explanation]] = []
    # Twice over the windows: the target of all of them depends on the logits of all of them.
    with progress(2 * sum(map(len, batches)), "windows") as advance:
        logits_C = _mean_logits(model, batches, advance)
        common = resolve_target(target, int(logits_C.argmax()), model.labels)
        for batch in batches:
            rows += explain_batch(model, collate(model, batch), [common] * len(batch), specs)
            advance(len(batch))
    slices = _window_slices(model, encoded)
    stitched = [_stitch(encoded.item, slices, explanations) for explanations in zip(*rows, strict=True)]
    return [_with_outputs(model, explanation, logits_C) for explanation in stitched]


def _batch_windows(model: Model, encoded: Encoded, batch_size: int | None) -> list[list[Encoded]]:
    windows = windows_of(model, encoded)
    size = rows_per_batch(model, batch_size)
    return [windows[start : start + size] for start in range(0, len(windows), size)]


def windows_of(model: Model, encoded: Encoded) -> list[Encoded]:
    """Return the half-overlapping windows of a text, each with the special tokens of the whole."""
    if isinstance(encoded.item.text, tuple):
        truncate = Argument("overflow", "truncate")
        raise BadInput("A pair of texts cannot be cut into windows: use ", truncate, ", or explain shorter texts.")
    if model.problem == "span":
        raise UnsupportedModel("Windows are not defined for answer spans: give the passage that holds the answer.")
    inner = _inner_slice(encoded.item)
    return [_cut_window(encoded, inner, window) for window in _window_slices(model, encoded)]


def _inner_slice(item: Item) -> slice:
    """Return the slice of the tokens between the special tokens at both ends."""
    positions = np.flatnonzero(~np.array(item.special))
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _window_slices(model: Model, encoded: Encoded) -> list[slice]:
    """Return the tokens of each window, without special ones, as slices of the whole text."""
    limit = max_tokens(model)
    assert limit is not None
    inner = _inner_slice(encoded.item)
    special = encoded.length - (inner.stop - inner.start)
    width = limit - special
    if width < 1:
        raise UnsupportedModel(f"{model.name} takes {limit} tokens, which leaves no room for a text.")
    # Half overlapping, and at least one token further each time.
    step = width - width // 2
    starts = range(inner.start, max(inner.start, inner.stop - width) + step, step)
    return [slice(start, min(start + width, inner.stop)) for start in starts]


def _cut_window(encoded: Encoded, inner: slice, window: slice) -> Encoded:
    """Keep a window of the text and the special tokens at both ends."""
    item = encoded.item

    def cut(row: Row) -> Row:
        return row[: inner.start] + row[window] + row[inner.stop :]

    offsets = None if item.offsets is None else cut(item.offsets)
    cut_item = replace(item, tokens=cut(item.tokens), special=cut(item.special), offsets=offsets)
    return Encoded(cut_item, {name: cut(row) for name, row in encoded.values.items()})


def _mean_logits(model: Model, batches: Sequence[Sequence[Encoded]], advance: Callable[[int], None]) -> Tensor:
    logits = []
    for batch in batches:
        # In float64, as probabilities are computed.
        logits.append(window_logits(model, batch).cpu().double())
        advance(len(batch))
    return torch.cat(logits).mean(0)


def window_logits(model: Model, windows: Sequence[Encoded]) -> Tensor:
    """Return the logits of each window."""
    tensors = collate(model, windows).tensors
    with eager_inference(model.network, model.device):
        return finite_logits(model, model.network(**tensors))


def _stitch(item: Item, windows: Sequence[slice], explanations: Sequence[Explanation]) -> Explanation:
    """Join the explanations of windows to one of the whole text, without special tokens."""
    inner = _inner_slice(item)
    layers = [explanation.layers for explanation in explanations if explanation.layers is not None]
    return replace(
        explanations[0],
        tokens=item.tokens[inner],
        relevance=_join([explanation.relevance for explanation in explanations], windows),
        special=np.array(item.special[inner]),
        offsets=None if item.offsets is None else item.offsets[inner],
        layers=_join(layers, windows) if layers else None,
        diagnostics={**_merge_diagnostics(explanations), "windows": len(explanations)},
    )


def _join(rows: Sequence[Array], windows: Sequence[slice]) -> Array:
    """Place the numbers of the windows' own tokens on the whole text; the mean where windows overlap."""
    first = windows[0].start
    length = windows[-1].stop
    dtype = rows[0].dtype
    total = np.zeros((*rows[0].shape[:-1], length), dtype)
    count = np.zeros(length, dtype)
    for row, window in zip(rows, windows, strict=True):
        # Each row begins with as many special tokens as stand before the first window.
        total[..., window] += row[..., first : first + window.stop - window.start]
        count[window] += 1
    joined: Array = total[..., first:] / count[first:]
    return joined


def _merge_diagnostics(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Take the maximum of gaps and steps, the mean of effects, and everything else from the first window."""
    merged = dict(explanations[0].diagnostics)
    for key in merged:
        if key.endswith("_gap") or key in ("dropped", "steps"):
            merged[key] = max(explanation.diagnostics[key] for explanation in explanations)
        elif key == "effect":
            merged[key] = float(np.mean([explanation.diagnostics[key] for explanation in explanations]))
    return merged


def _with_outputs(model: Model, explanation: Explanation, logits_C: Tensor) -> Explanation:
    """Replace score, probability and prediction by those of the whole text."""
    target = explanation.target
    logits_1C = logits_C[None]
    score = float(target_score(make_seeds([target], logits_1C), logits_1C))
    prediction = describe_predictions(model, logits_1C)[0]
    return replace(
        explanation,
        probability=target_probability(target, logits_C, model.problem),
        diagnostics={**explanation.diagnostics, "score": score, **prediction},
    )
