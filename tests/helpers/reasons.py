"""Reasons and snapshots made by hand."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from clearhead.model_diff import WORD, Noise, NoiseDraw, Reasons, Snapshot


def make_reasons(text: str | None, shares: Any, **changes: Any) -> Reasons:
    """Return reasons whose words are those of a text between blanks."""
    spans = ()
    if text is not None:
        spans = tuple((0, *match.span()) for match in re.finditer(r"\S+", text))
    values = {"id": "0", "digest": str(text), "prediction": "positive", "probability": 0.9, "kind": WORD}
    values |= {"spans": spans, "text": text, "shares": np.array(shares, dtype=float)}
    return Reasons(**{**values, **changes})


def make_snapshot(examples: Sequence[Reasons], **changes: Any) -> Snapshot:
    values = {"model": "tiny", "checksum": "0", "labels": ("negative", "positive"), "task": "reviews"}
    values |= {"task_digest": "0", "method": "balanced-cat", "options": {}, "examples": tuple(examples)}
    return Snapshot(**{**values, **changes})


def make_noise(shift_DN: Any, word_shift: float = 0.0) -> Noise:
    """Return noise with a draw for each row of shifts."""
    draws = [NoiseDraw(f"draw {row}", shift_N, 1 - shift_N, word_shift, 0) for row, shift_N in enumerate(shift_DN)]
    return Noise(tuple(draws))
