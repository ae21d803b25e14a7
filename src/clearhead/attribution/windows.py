"""Texts longer than the model takes: overlapping windows, explained one by one and stitched together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.assemble import predictions
from clearhead.attribution.method import MethodSpec
from clearhead.engine.context import eager_inference
from clearhead.errors import Argument, BadInput, UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, Inputs, Item, collate
from clearhead.model.model import Model, max_tokens
from clearhead.model.outputs import finite_logits, target_probability
from clearhead.model.target import TargetLike, make_seeds, resolve_target, target_score
from clearhead.progress import progress

ExplainBatch = Callable[[Model, Inputs, Sequence[TargetLike], Sequence[MethodSpec]], list[list[Explanation]]]
Row = TypeVar("Row", tuple[Any, ...], list[Any])


def is_too_long(model: Model, one: Encoded) -> bool:
    """Whether an input has more tokens than the model takes."""
    limit = max_tokens(model)
    return limit is not None and one.length > limit


def explain_windows(
    model: Model,
    whole: Encoded,
    target: TargetLike,
    spellings: Sequence[MethodSpec],
    size: int,
    explain_batch: ExplainBatch,
) -> list[Explanation]:
    """Explains half-overlapping windows for one common target; a token in two windows gets their mean.

    What the model says of the whole text, its prediction too, are its logits averaged over the windows. Special tokens
    are left out, since every window has its own.
    """
    windows, places = windows_of(model, whole), _places(model, whole)
    step = size if model.can_pad else 1
    parts = [windows[start : start + step] for start in range(0, len(windows), step)]
    rows: list[list[Explanation]] = []
    with progress(2 * len(windows), "windows") as advance:
        logits_C = _mean_logits(model, parts, advance)
        common = resolve_target(target, int(logits_C.argmax()), model.labels)
        for part in parts:
            rows += explain_batch(model, collate(model, part), [common] * len(part), spellings)
            advance(len(part))
    stitched = [_stitched(whole.item, places, column) for column in zip(*rows, strict=True)]
    return [_decided(model, one, logits_C) for one in stitched]


def windows_of(model: Model, whole: Encoded) -> list[Encoded]:
    """The half-overlapping windows of a text, each with the special tokens of the whole; what has none is refused."""
    if isinstance(whole.item.text, tuple):
        cut = Argument("long", "truncate")
        raise BadInput("A pair of texts cannot be cut into windows: use ", cut, ", or explain shorter texts.")
    if model.problem == "span":
        raise UnsupportedModel("Windows are not defined for answer spans: give the passage that holds the answer.")
    own = _own(whole.item)
    return [_window(whole, own, place) for place in _places(model, whole)]


def _own(item: Item) -> slice:
    """The tokens between the special ones at both ends."""
    places = np.flatnonzero(~np.array(item.special))
    return slice(int(places[0]), int(places[-1]) + 1)


def _places(model: Model, whole: Encoded) -> list[slice]:
    """Where the windows stand among the tokens of the whole."""
    limit, own = max_tokens(model), _own(whole.item)
    assert limit is not None
    room = limit - (whole.length - (own.stop - own.start))
    if room < 1:
        raise UnsupportedModel(f"{model.name} takes {limit} tokens, which leaves no room for a text.")
    step = room - room // 2
    starts = range(own.start, max(own.start, own.stop - room) + step, step)
    return [slice(start, min(start + room, own.stop)) for start in starts]


def _window(whole: Encoded, own: slice, place: slice) -> Encoded:
    item = whole.item

    def cut(row: Row) -> Row:
        return row[: own.start] + row[place] + row[own.stop :]

    offsets = None if item.offsets is None else cut(item.offsets)
    seen = replace(item, tokens=cut(item.tokens), special=cut(item.special), offsets=offsets)
    return Encoded(seen, {name: cut(row) for name, row in whole.values.items()})


def _mean_logits(model: Model, parts: Sequence[Sequence[Encoded]], advance: Callable[[int], None]) -> Tensor:
    logits = []
    for part in parts:
        logits.append(window_logits(model, part).cpu().double())
        advance(len(part))
    return torch.cat(logits).mean(0)


def window_logits(model: Model, windows: Sequence[Encoded]) -> Tensor:
    """What the model says of each window."""
    tensors = collate(model, windows).tensors
    with eager_inference(model.network, model.device):
        return finite_logits(model, model.network(**tensors))


def _stitched(whole: Item, places: Sequence[slice], parts: Sequence[Explanation]) -> Explanation:
    """One explanation of the whole text, of its own tokens only."""
    own, layers = _own(whole), [part.layers for part in parts if part.layers is not None]
    return replace(
        parts[0],
        tokens=whole.tokens[own],
        relevance=_joined([part.relevance for part in parts], places),
        special=np.array(whole.special[own]),
        offsets=None if whole.offsets is None else whole.offsets[own],
        layers=_joined(layers, places) if layers else None,
        diagnostics={**_merged(parts), "windows": len(parts)},
    )


def _joined(rows: Sequence[Array], places: Sequence[slice]) -> Array:
    """The numbers of the windows' own tokens on the whole text; the mean where windows overlap."""
    first, count = places[0].start, places[-1].stop
    total = np.zeros((*rows[0].shape[:-1], count), rows[0].dtype)
    windows = np.zeros(count, rows[0].dtype)
    for row, place in zip(rows, places, strict=True):
        total[..., place] += row[..., first : first + place.stop - place.start]
        windows[place] += 1
    joined: Array = total[..., first:] / windows[first:]
    return joined


def _merged(parts: Sequence[Explanation]) -> dict[str, Any]:
    """Gaps and steps are the largest of any window, effects their mean; everything else is the first window's."""
    merged = dict(parts[0].diagnostics)
    for key in merged:
        if key.endswith("_gap") or key in ("dropped", "steps"):
            merged[key] = max(part.diagnostics[key] for part in parts)
        elif key == "effect":
            merged[key] = float(np.mean([part.diagnostics[key] for part in parts]))
    return merged


def _decided(model: Model, stitched: Explanation, logits_C: Tensor) -> Explanation:
    """The same with what the model says of the whole text."""
    target, logits_1C = stitched.target, logits_C[None]
    said = {
        "score": float(target_score(make_seeds([target], logits_1C), logits_1C)),
        **predictions(model, logits_1C)[0],
    }
    share = target_probability(target, logits_C, model.problem)
    return replace(stitched, probability=share, diagnostics={**stitched.diagnostics, **said})
