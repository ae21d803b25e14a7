"""The record: an explanation as plain data for programs, in a shape that stays (docs/json.md)."""

import json
from typing import Any

import numpy as np

from clearhead.explanation import Explanation
from clearhead.version import __version__

FORMAT = 1


def record(explanation: Explanation, name: str | None = None) -> dict[str, Any]:
    """One explanation; `name` is the method as it was spelled."""
    target = explanation.target
    return {
        "format": FORMAT,
        "clearhead": __version__,
        "model": explanation.model,
        "method": explanation.method,
        "name": name or explanation.method,
        "options": {key: _plain(value) for key, value in explanation.options.items()},
        "text": list(explanation.text) if isinstance(explanation.text, tuple) else explanation.text,
        "target": {"index": target.index, "versus": target.versus, "span": list(target.span) if target.span else None},
        "label": explanation.label,
        "probability": explanation.probability,
        "tokens": _tokens(explanation),
        "words": _words(explanation),
        "grid": list(explanation.grid) if explanation.grid else None,
        "diagnostics": {key: _plain(value) for key, value in explanation.diagnostics.items()},
    }


def line(explanation: Explanation, name: str | None = None) -> str:
    """The record as one line of JSON; numbers that JSON does not know become null."""
    return json.dumps(finite(record(explanation, name)), ensure_ascii=False, allow_nan=False)


def row(explanation: Explanation, name: str | None = None) -> dict[str, Any]:
    """The record as a row of a table: what varies from method to method is JSON text."""
    plain = finite(record(explanation, name))
    plain |= {key: json.dumps(plain[key]) for key in ("options", "target", "diagnostics")}
    text = plain["text"]
    return {
        **plain,
        "text": text[0] if isinstance(text, list) else text,
        "second": text[1] if isinstance(text, list) else None,
    }


def _tokens(explanation: Explanation) -> list[dict[str, Any]]:
    return [
        {
            "token": token,
            "relevance": float(explanation.relevance[place]),
            "special": bool(explanation.special[place]),
            **_offset(explanation, place),
        }
        for place, token in enumerate(explanation.tokens)
    ]


def _offset(explanation: Explanation, place: int) -> dict[str, Any]:
    if explanation.offsets is None or explanation.special[place]:
        return {"segment": None, "start": None, "end": None}
    offset = explanation.offsets[place]
    return {"segment": offset[0] if len(offset) == 3 else 0, "start": offset[-2], "end": offset[-1]}


def _words(explanation: Explanation) -> list[dict[str, Any]] | None:
    if explanation.text is None or explanation.offsets is None:
        return None
    return [
        {"word": one.text, "relevance": one.relevance, "segment": one.segment, "start": one.start, "end": one.end}
        for one in explanation.words()
    ]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def finite(value: Any) -> Any:
    """Plain data as JSON can hold it: NaN and infinity become null, what is unknown its text."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | type(None)) else str(value)
