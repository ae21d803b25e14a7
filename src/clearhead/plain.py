"""Plain data: what JSON and tables can hold."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PLAIN_TYPES = frozenset([str, int, bool, type(None)])


def convert_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python number, anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value


def finite(value: Any) -> Any:
    """Return plain data as JSON can hold it: NaN and infinity become null, values of unknown types their text."""
    # Tables have millions of numbers and texts: their exact types are told faster than what they inherit.
    kind = type(value)
    if kind in PLAIN_TYPES:
        return value
    if kind is float:
        return _finite_or_none(value)
    if isinstance(value, Mapping):
        return {_name_key(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return _convert_list(value)
    return _convert_scalar(value)


def encode_json(value: Any) -> str:
    """Return a value as JSON text, converted by `finite` where JSON cannot hold it."""
    try:
        # Nearly all records are plain data: to convert each of their values takes longer than to write them.
        return _dump(value)
    except (TypeError, ValueError):
        return _dump(finite(value))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _name_key(key: Any) -> str:
    # As JSON writes them: true, false, null.
    return _dump(key) if key is None or isinstance(key, bool) else str(key)


def _convert_list(values: Sequence[Any]) -> list[Any]:
    # The relevance of a photo is tens of thousands of numbers, which need not be looked at one by one.
    if set(map(type, values)) == {float} and math.isfinite(sum(values)):
        return list(values)
    return list(map(finite, values))


def _convert_scalar(value: Any) -> Any:
    value = convert_value(value)
    if isinstance(value, float):
        return _finite_or_none(value)
    if isinstance(value, str | int | bool | type(None)):
        return value
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)


def _finite_or_none(value: float) -> float | None:
    # JSON has no NaN and no infinity.
    if math.isfinite(value):
        return value
    return None
