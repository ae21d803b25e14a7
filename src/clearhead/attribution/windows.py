"""Sliding windows over texts that are longer than the model takes, explained one by one and stitched together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.batch import explain_batch
from clearhead.attribution.batch_sizes import cut_rows
from clearhead.attribution.effects import mean_effect
from clearhead.attribution.input_context import describe_predictions
from clearhead.attribution.method import MethodSpec
from clearhead.engine.context import eager_inference
from clearhead.errors import UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.coverage import COVERAGE, UNKNOWN_TOKEN, describe_coverage
from clearhead.model.inputs import Encoded, Item, collate
from clearhead.model.model import Model, max_tokens
from clearhead.model.outputs import finite_logits, target_probability
from clearhead.model.sequence_inputs import shorten_prompt
from clearhead.model.target import Target, TargetLike, make_seeds, resolve_target, target_score
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
    windows = windows_of(model, encoded)
    batches = batch_windows(model, windows, batch_size)
    # Twice over the windows: the target of all of them depends on the logits of all of them.
    with progress(2 * len(windows), "windows") as advance:
        logits_C = _mean_logits(model, batches, advance)
        common = resolve_target(target, int(logits_C.argmax()), model.labels)
        rows = _explain_batches(model, batches, common, specs, advance)
    slices = _window_slices(model, encoded)
    # Transposed: method by method instead of window by window.
    stitched = [_stitch(encoded.item, slices, by_window) for by_window in zip(*rows, strict=True)]
    return [_with_outputs(model, explanation, logits_C) for explanation in stitched]


def batch_windows(model: Model, windows: Sequence[Encoded], batch_size: int | None) -> list[Sequence[Encoded]]:
    """Cut the windows of a text into batches."""
    # The last window may be shorter, but all are padded to the longest.
    longest = max(window.length for window in windows)
    return [windows[rows] for rows in cut_rows(model, [longest] * len(windows), batch_size)]


def _explain_batches(
    model: Model,
    batches: Sequence[Sequence[Encoded]],
    target: TargetLike,
    specs: Sequence[MethodSpec],
    advance: Callable[[int], None],
) -> list[list[Explanation]]:
    """Return for each window its explanations in the order of the methods."""
    rows: list[list[Explanation]] = []
    for batch in _report(batches, advance):
        rows += explain_batch(model, collate(model, batch), [target] * len(batch), specs)
    return rows


def _report(batches: Sequence[Sequence[Encoded]], advance: Callable[[int], None]) -> Iterator[Sequence[Encoded]]:
    """Yield batches, and report each as done when the next is asked for."""
    for batch in batches:
        yield batch
        advance(len(batch))


def windows_of(model: Model, encoded: Encoded) -> list[Encoded]:
    """Return the half-overlapping windows of a text, each with the special tokens of the whole."""
    # The same for all windows, which have different tokens in the middle only.
    inner = _inner_slice(encoded.item)
    return [_cut_window(encoded, inner, window) for window in _window_slices(model, encoded)]


def _inner_slice(item: Item) -> slice:
    """Return the slice of the tokens between the special tokens at both ends."""
    positions = np.flatnonzero(~np.array(item.special))
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _window_slices(model: Model, encoded: Encoded) -> list[slice]:
    """Return the tokens of each window, without special ones, as slices of the whole text."""
    inner = _inner_slice(encoded.item)
    special = encoded.length - (inner.stop - inner.start)
    return _slide(inner, _window_width(model, special))


def _slide(inner: slice, width: int) -> list[slice]:
    return [slice(start, min(start + width, inner.stop)) for start in _window_starts(inner, width)]


def _window_starts(inner: slice, width: int) -> range:
    # Half overlapping, and at least one token further each time.
    step = width - width // 2
    # The last window reaches the end of the text; a text that fits has one window.
    last_start = max(inner.start, inner.stop - width)
    return range(inner.start, last_start + step, step)


def _window_width(model: Model, special: int) -> int:
    """Return how many tokens of a text the model takes besides special tokens."""
    limit = max_tokens(model)
    # Only inputs that are longer than the limit are cut.
    assert limit is not None
    _require_space(model, limit, special)
    return limit - special


def _require_space(model: Model, limit: int, special: int) -> None:
    if limit <= special:
        raise UnsupportedModel(f"{model.name} takes {limit} tokens, which leaves no room for a text.")


def _cut_window(encoded: Encoded, inner: slice, window: slice) -> Encoded:
    """Keep a window of the text and the special tokens at both ends."""

    def cut(row: Row) -> Row:
        return row[: inner.start] + row[window] + row[inner.stop :]

    values = {name: cut(row) for name, row in encoded.values.items()}
    item = replace(encoded.item, tokens=cut(encoded.item.tokens), special=cut(encoded.item.special))
    if item.offsets is not None:
        item = replace(item, offsets=cut(item.offsets))
    return Encoded(item, values)


def shorten(encoded: Encoded, tokens: int) -> Encoded:
    """Return about so many tokens: a text's beginning, or a prompt's end with its answer; images as they are."""
    if encoded.item.answer is not None:
        return shorten_prompt(encoded, tokens)
    inner = np.flatnonzero(~np.array(encoded.item.special, dtype=bool))
    if tokens >= encoded.length or not len(inner):
        return encoded
    whole = _inner_slice(encoded.item)
    special = encoded.length - (whole.stop - whole.start)
    return _cut_window(encoded, whole, slice(whole.start, whole.start + max(1, tokens - special)))


def _mean_logits(model: Model, batches: Sequence[Sequence[Encoded]], advance: Callable[[int], None]) -> Tensor:
    logits = []
    for batch in _report(batches, advance):
        # In float64, as probabilities are computed.
        logits.append(window_logits(model, batch).cpu().double())
    return torch.cat(logits).mean(0)


def window_logits(model: Model, windows: Sequence[Encoded]) -> Tensor:
    """Return the logits of each window."""
    tensors = collate(model, windows).tensors
    with eager_inference(model.network, model.device):
        return finite_logits(model, model.network(**tensors))


def _stitch(item: Item, windows: Sequence[slice], explanations: Sequence[Explanation]) -> Explanation:
    """Join the explanations of windows to one of the whole text, without special tokens."""
    inner = _inner_slice(item)
    # Tokenizers without character offsets give none.
    offsets = item.offsets
    if offsets is not None:
        offsets = offsets[inner]
    return replace(
        explanations[0],
        tokens=item.tokens[inner],
        relevance=_join([explanation.relevance for explanation in explanations], windows),
        special=np.array(item.special[inner]),
        offsets=offsets,
        layers=_join_layers(windows, explanations),
        heads=_mean_heads(explanations),
        diagnostics={**_merge_diagnostics(explanations), **_describe_whole(item, explanations)},
    )


def _describe_whole(item: Item, explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Return how many windows there are, and which tokens of the whole text are unknown."""
    names = _collect_unknown(explanations)
    return {**describe_coverage(item, next(iter(names), None)), "windows": len(explanations)}


def _collect_unknown(explanations: Sequence[Explanation]) -> list[str]:
    """Return the name of the unknown token for each window that has one."""
    names = [explanation.diagnostics.get(UNKNOWN_TOKEN) for explanation in explanations]
    return list(filter(None, names))


def _join_layers(windows: Sequence[slice], explanations: Sequence[Explanation]) -> Array | None:
    layers = _collect(explanations, "layers")
    if not layers:
        return None
    return _join(layers, windows)


def _mean_heads(explanations: Sequence[Explanation]) -> Array | None:
    """Return the mean over windows, as the explained score is the mean of the windows' scores."""
    heads = _collect(explanations, "heads")
    if not heads:
        return None
    mean: Array = np.mean(heads, axis=0)
    return mean


def _collect(explanations: Sequence[Explanation], name: str) -> list[Array]:
    """Return an optional array of each window; all have it or none, since they are explained by one method."""
    arrays = map(attrgetter(name), explanations)
    return [array for array in arrays if array is not None]


def _join(rows: Sequence[Array], windows: Sequence[slice]) -> Array:
    """Place the numbers of the windows' own tokens on the whole text; the mean where windows overlap."""
    first = windows[0].start
    total, count = _make_sums(rows[0], length=windows[-1].stop)
    for row, window in zip(rows, windows, strict=True):
        # Each row begins with as many special tokens as stand before the first window.
        total[..., window] += row[..., first : first + window.stop - window.start]
        count[window] += 1
    joined: Array = total[..., first:] / count[first:]
    return joined


def _make_sums(row: Array, length: int) -> tuple[Array, Array]:
    """Return zeros for the sum over windows, with the leading axes of a row, and for the number of summands."""
    # Counts in the type of the numbers, so that the mean keeps their precision.
    return np.zeros((*row.shape[:-1], length), row.dtype), np.zeros(length, row.dtype)


def _merge_diagnostics(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Take the maximum of gaps and steps, the mean of effects and shares, and everything else from the first window."""
    merged = _drop_coverage(explanations[0].diagnostics)
    for key in merged:
        if _takes_maximum(key):
            merged[key] = _worst(_diagnostic_values(explanations, key))
        elif key == "effect":
            merged[key] = mean_effect(_diagnostic_values(explanations, key))
        elif key == "identity_share":
            merged[key] = float(np.mean(_diagnostic_values(explanations, key)))
    return merged


def _drop_coverage(diagnostics: Mapping[str, Any]) -> dict[str, Any]:
    # A window reads a part of the text, but all of them together read the whole.
    return {name: value for name, value in diagnostics.items() if name not in COVERAGE}


def _diagnostic_values(explanations: Sequence[Explanation], key: str) -> list[Any]:
    return [explanation.diagnostics[key] for explanation in explanations]


def _worst(values: Sequence[Any]) -> Any:
    """Return the largest value, None if a window has none."""
    return None if None in values else max(values)


def _takes_maximum(key: str) -> bool:
    # The worst window decides how far the whole can be trusted.
    return key.endswith(("_gap", "_error")) or key in ("dropped", "steps")


def _with_outputs(model: Model, explanation: Explanation, logits_C: Tensor) -> Explanation:
    """Replace score, probability and prediction by those of the whole text."""
    diagnostics = dict(explanation.diagnostics)
    diagnostics["score"] = _score(explanation.target, logits_C[None])
    diagnostics.update(describe_predictions(model, logits_C[None])[0])
    probability = target_probability(explanation.target, logits_C, model.problem)
    return replace(explanation, probability=probability, diagnostics=diagnostics)


def _score(target: Target, logits_1C: Tensor) -> float:
    return float(target_score(make_seeds([target], logits_1C), logits_1C))
