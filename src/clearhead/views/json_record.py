"""Plain data of an explanation for programs, with stable keys (docs/json.md)."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from clearhead.explanation import Explanation, Word
from clearhead.version import __version__

FORMAT = 1


def record(explanation: Explanation, name: str | None = None) -> dict[str, Any]:
    """Return one explanation as plain data; `name` is the method as the user wrote it."""
    text = explanation.text
    return {
        "format": FORMAT,
        "clearhead": __version__,
        "model": explanation.model,
        "method": explanation.method,
        "name": name or explanation.method,
        "options": _convert_values(explanation.options),
        "text": list(text) if isinstance(text, tuple) else text,
        "target": _target_record(explanation),
        "label": explanation.label,
        "probability": explanation.probability,
        "tokens": _token_records(explanation),
        "words": _word_records(explanation),
        "grid": list(explanation.grid) if explanation.grid else None,
        "diagnostics": _convert_values(explanation.diagnostics),
    }


def line(explanation: Explanation, name: str | None = None) -> str:
    """Return the record as one line of JSON; NaN and infinity become null."""
    return json.dumps(finite(record(explanation, name)), ensure_ascii=False, allow_nan=False)


def row(explanation: Explanation, name: str | None = None) -> dict[str, Any]:
    """Return the record as a table row; values whose keys differ between methods become JSON text."""
    columns: dict[str, Any] = finite(record(explanation, name))
    for key in ("options", "target", "diagnostics"):
        columns[key] = json.dumps(columns[key])
    columns["second"] = None
    if isinstance(columns["text"], list):
        columns["text"], columns["second"] = columns["text"]
    return columns


def _target_record(explanation: Explanation) -> dict[str, Any]:
    target = explanation.target
    span = list(target.span) if target.span else None
    return {"index": target.index, "versus": target.versus, "span": span}


def _token_records(explanation: Explanation) -> list[dict[str, Any]]:
    records = []
    for index, token in enumerate(explanation.tokens):
        fields = {
            "token": token,
            "relevance": float(explanation.relevance[index]),
            "special": bool(explanation.special[index]),
        }
        records.append({**fields, **_token_position(explanation, index)})
    return records


def _token_position(explanation: Explanation, index: int) -> dict[str, int | None]:
    if explanation.offsets is None or explanation.special[index]:
        return {"segment": None, "start": None, "end": None}
    offset = explanation.offsets[index]
    segment = offset[0] if len(offset) == 3 else 0
    return {"segment": segment, "start": offset[-2], "end": offset[-1]}


def _word_records(explanation: Explanation) -> list[dict[str, Any]] | None:
    if explanation.text is None or explanation.offsets is None:
        return None
    return list(map(_word_record, explanation.words()))


def _word_record(word: Word) -> dict[str, Any]:
    return {
        "word": word.text,
        "relevance": word.relevance,
        "segment": word.segment,
        "start": word.start,
        "end": word.end,
    }


def _convert_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with NumPy scalars converted to Python numbers."""
    # Diagnostics may hold NumPy scalars, which the json module does not accept.
    plain = dict(values)
    for key, value in plain.items():
        if isinstance(value, np.generic):
            plain[key] = value.item()
    return plain


def finite(value: Any) -> Any:
    """Return plain data as JSON can hold it: NaN and infinity become null, values of unknown types their text."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, float):
        # JSON has no NaN and no infinity.
        return value if np.isfinite(value) else None
    if isinstance(value, str | int | bool | type(None)):
        return value
    return str(value)
