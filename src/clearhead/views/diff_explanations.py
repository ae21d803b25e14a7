"""The reasons of two models, and their difference, as explanations, which every other view can show."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.model_diff import ExampleDiff, ModelDiff, Reasons, Snapshot
from clearhead.views.numbers import SHARE_CHANGE


def has_text(row: ExampleDiff) -> bool:
    """Return whether the words of an example can be shown."""
    return bool(row.first.words)


def show_row(diff: ModelDiff, row: ExampleDiff) -> list[Explanation]:
    """Return an example as both models explain it, and what changed: positive where the second gives more weight."""
    first = _as_explanation(row.first, diff.first)
    second = _as_explanation(row.second, diff.second)
    change = replace(first, relevance=_subtract(row.first, row.second), label="the second model", probability=None)
    # Points on a fixed scale of colours: shares of what changed would make a small change look like a large one.
    change = replace(change, diagnostics={"effect": {"unit": SHARE_CHANGE}})
    return [first, second, replace(change, model=f"{diff.first.model} → {diff.second.model}")]


def _subtract(first: Reasons, second: Reasons) -> Array:
    """Return the second model's share of each word of the first, less that of the first; 0 where it has none."""
    shares = dict(zip(second.spans, second.shares, strict=True))
    own_U = np.array([shares.get(span, share) for span, share in zip(first.spans, first.shares, strict=True)])
    return own_U - first.shares


def _as_explanation(reasons: Reasons, snapshot: Snapshot) -> Explanation:
    # It imports torch, without which the tables of a diff are printed.
    from clearhead.model.target import Target

    return Explanation(
        tokens=reasons.words,
        relevance=np.asarray(reasons.shares),
        special=np.zeros(len(reasons.shares), dtype=bool),
        target=Target(),
        label=reasons.prediction,
        method=snapshot.method,
        text=reasons.text,
        offsets=_make_offsets(reasons),
        probability=reasons.probability,
        model=snapshot.model,
    )


def _make_offsets(reasons: Reasons) -> tuple[tuple[int, ...], ...]:
    # Only those of a pair name their text.
    if isinstance(reasons.text, tuple):
        return reasons.spans
    return tuple(span[1:] for span in reasons.spans)


def select_shown(diff: ModelDiff, count: int) -> Sequence[ExampleDiff]:
    """Return the examples that a view shows: the first of those with the same answer, and of those with another."""
    return [*diff.unchanged[:count], *diff.changed[:count]]


def show_first(diff: ModelDiff) -> list[Explanation]:
    """Return the example whose reasons moved most, for an image; raise BadInput if its words are unknown."""
    row = diff.rows[0]
    _require_text(row)
    return show_row(diff, row)


def _require_text(row: ExampleDiff) -> None:
    if not has_text(row):
        raise BadInput("An image shows the words of a text, which these snapshots do not have: use .html or .md.")
