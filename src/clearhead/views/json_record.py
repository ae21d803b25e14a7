"""Plain data of an explanation for programs, with stable keys (docs/json.md)."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation, Word
from clearhead.joint_explanation import JointExplanation
from clearhead.plain import convert_value, encode_json, finite
from clearhead.version import __version__
from clearhead.views.answers import has_foil, spell_foil
from clearhead.views.text_spans import has_text
from clearhead.views.trust import format_check

# A change that would break a reader gets a new number.
FORMAT = 1
NO_POSITION: Mapping[str, int | None] = dict.fromkeys(("segment", "start", "end"))


def record(explanation: Explanation | JointExplanation, name: str | None = None) -> dict[str, Any]:
    """Return one explanation as plain data; `name` is the method as the user wrote it."""
    if isinstance(explanation, JointExplanation):
        return _joint_record(explanation, name)
    plain = _common_record(explanation, name)
    if isinstance(explanation, AnswerExplanation):
        plain["answer"] = _answer_record(explanation)
    return plain


def _joint_record(joint: JointExplanation, name: str | None) -> dict[str, Any]:
    """Return what all inputs share, and a record per input."""
    return {
        "format": FORMAT,
        "clearhead": __version__,
        "model": joint.model,
        "method": joint.method,
        "name": name or joint.method,
        "target": _target_record(joint.explanations[0]),
        "label": joint.label,
        "score": joint.score,
        "probability": joint.probability,
        "shares": list(joint.shares),
        "pairs": None if joint.pairs is None else joint.pairs.tolist(),
        "diagnostics": _convert_values(joint.diagnostics),
        "inputs": [_common_record(explanation, name) for explanation in joint.explanations],
    }


def _common_record(explanation: Explanation, name: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "clearhead": __version__,
        "model": explanation.model,
        "method": explanation.method,
        "name": name or explanation.method,
        "options": _convert_values(explanation.options),
        "text": _list_if_tuple(explanation.text),
        "target": _target_record(explanation),
        "label": explanation.label,
        "probability": explanation.probability,
        "tokens": _token_records(explanation),
        "words": _word_records(explanation),
        "grid": _list_if_tuple(explanation.grid),
        "heads": _list_heads(explanation),
        "diagnostics": _convert_values(explanation.diagnostics),
        "check": _check_record(explanation),
        "source": _source_record(explanation),
    }


def _check_record(explanation: Explanation) -> dict[str, Any] | None:
    """Return the check with what it means in words."""
    if explanation.check is None:
        return None
    return {**asdict(explanation.check), "caption": format_check(explanation)}


def _source_record(explanation: Explanation) -> dict[str, Any]:
    """Return where the input comes from, and whether its prediction is wrong, as far as that is known."""
    source: dict[str, Any] = finite(explanation.source)
    if explanation.is_wrong is not None:
        source["wrong"] = explanation.is_wrong
    return source


def _answer_record(explanation: AnswerExplanation) -> dict[str, Any]:
    """Return what only the explanation of an answer has."""
    return {
        "text": explanation.answer,
        "steps": _step_records(explanation),
        "shares": explanation.shares,
        "first_token_share": explanation.first_token_share,
        "matrix": None if explanation.matrix is None else explanation.matrix.tolist(),
        **_picture_records(explanation),
    }


def _picture_records(explanation: AnswerExplanation) -> dict[str, Any]:
    """Return the parts of each picture with their relevance, row by row; nothing for a prompt without pictures."""
    records = [{"grid": picture.grid, "relevance": picture.relevance.tolist()} for picture in explanation.pictures]
    return {"pictures": records} if records else {}


def _step_records(explanation: AnswerExplanation) -> list[dict[str, Any]]:
    records = []
    for index, step in enumerate(explanation.steps):
        records.append({**asdict(step), "explained": index in explanation.explained})
    return records


def line(explanation: Explanation | JointExplanation, name: str | None = None) -> str:
    """Return the record as one line of JSON; NaN and infinity become null."""
    return encode_json(record(explanation, name))


def row(explanation: Explanation | JointExplanation, name: str | None = None) -> dict[str, Any]:
    """Return the record as a table row; values whose keys differ between methods become JSON text."""
    columns: dict[str, Any] = finite(record(explanation, name))
    # Models that compare inputs have a record per input.
    if "inputs" in columns:
        columns["inputs"] = list(map(_make_columns, columns["inputs"]))
    return _make_columns(columns)


def _make_columns(plain: dict[str, Any]) -> dict[str, Any]:
    columns = dict(plain)
    for key in columns.keys() & {"options", "target", "diagnostics", "answer", "check", "source"}:
        columns[key] = json.dumps(columns[key])
    # A column has one type: the second text of a pair is a column of its own.
    if "text" in columns:
        columns["text"], columns["second"] = _split_pair(columns["text"])
    return columns


def _split_pair(text: Any) -> tuple[Any, Any]:
    if isinstance(text, list):
        first, second = text
        return first, second
    return text, None


def _list_if_tuple(value: Any) -> Any:
    # JSON would write both alike, but users of `record` get what `json.loads` would return.
    if isinstance(value, tuple):
        return list(value)
    return value


def _list_heads(explanation: Explanation) -> list[list[float]] | None:
    if explanation.heads is None:
        return None
    rows: list[list[float]] = explanation.heads.tolist()
    return rows


def _target_record(explanation: Explanation) -> dict[str, Any]:
    target = explanation.target
    return {"index": target.index, "versus": _name_versus(explanation), "span": _list_if_tuple(target.span)}


def _name_versus(explanation: Explanation) -> Any:
    """Return the class, or the words instead of an answer, that the target is contrasted with."""
    if isinstance(explanation, AnswerExplanation) and has_foil(explanation):
        return spell_foil(explanation.steps)
    return explanation.target.versus


def _token_records(explanation: Explanation) -> list[dict[str, Any]]:
    # All at once, whatever their types are in a file: the numbers of an array are slow to convert one by one.
    relevance = np.asarray(explanation.relevance, dtype=np.float64).tolist()
    special = np.asarray(explanation.special, dtype=bool).tolist()
    rows = enumerate(zip(explanation.tokens, relevance, special, strict=True))
    return [_token_record(explanation, index, *row) for index, row in rows]


def _token_record(
    explanation: Explanation, index: int, token: str, relevance: float, is_special: bool
) -> dict[str, Any]:
    position = NO_POSITION if is_special else _token_position(explanation, index)
    return {"token": token, "relevance": relevance, "special": is_special, **position}


def _token_position(explanation: Explanation, index: int) -> Mapping[str, int | None]:
    if explanation.offsets is None:
        return NO_POSITION
    *pair_index, start, end = explanation.offsets[index]
    # Offsets of a single text do not name it.
    segment = pair_index[0] if pair_index else 0
    return {"segment": segment, "start": start, "end": end}


def _word_records(explanation: Explanation) -> list[dict[str, Any]] | None:
    if not has_text(explanation):
        return None
    return list(map(_word_record, explanation.units()))


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
    return {key: convert_value(value) for key, value in values.items()}
