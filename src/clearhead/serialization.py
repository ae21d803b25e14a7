"""Saves and reads explanations as JSON or safetensors."""

import base64
import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.arrays import Array
from clearhead.check import Check
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.files import unreadable_file, write_atomically
from clearhead.joint_explanation import JointExplanation
from clearhead.model.picture_span import PictureSpan
from clearhead.model.source_span import SourceSpan
from clearhead.model.target import AnswerTarget, Target
from clearhead.plain import finite
from clearhead.version import __version__

Content = TypeVar("Content")
Saved = Explanation | JointExplanation
ARRAYS = ("relevance", "special", "layers", "pixels", "heads", "matrix")
TUPLES = ("tokens", "text", "grid", "box", "explained")
"""Fields that are tuples, or may be, which JSON knows as lists only."""
RECORDS = {"steps": Step, "source_spans": SourceSpan}
"""Fields of answers that are tuples of records, and the types of these."""
JSON_FORMATS = (1,)
"""The JSON formats that can be read; the last is written."""
SAFETENSORS_FORMATS = (1, 2)
"""The safetensors formats that can be read; the last is written."""


def to_dict(explanation: Saved) -> dict[str, Any]:
    """Return plain data for JSON: arrays as lists, the image as PNG in base64."""
    if isinstance(explanation, JointExplanation):
        return _joint_to_dict(explanation)
    plain = {attribute.name: getattr(explanation, attribute.name) for attribute in fields(explanation)}
    arrays = {name: array.tolist() for name, array in _list_arrays(explanation).items()}
    return {**plain, **arrays, **_plain_objects(explanation), **_plain_records(explanation)}


def _joint_to_dict(joint: JointExplanation) -> dict[str, Any]:
    return {
        "explanations": list(map(to_dict, joint.explanations)),
        "score": joint.score,
        "probability": joint.probability,
        "pairs": _plain_array(joint.pairs),
        "diagnostics": dict(joint.diagnostics),
        "chosen": joint.chosen,
        "check": _plain_check(joint.check),
    }


def _plain_array(array: Array | None) -> Any:
    if array is None:
        return None
    return array.tolist()


def _plain_objects(explanation: Explanation) -> dict[str, Any]:
    """Return the fields that are objects, as plain data."""
    return {
        "target": asdict(explanation.target),
        "image": _encode_png(explanation.image),
        "options": dict(explanation.options),
        "diagnostics": dict(explanation.diagnostics),
        "check": _plain_check(explanation.check),
        "source": finite(explanation.source),
    }


def _plain_check(check: Check | None) -> dict[str, Any] | None:
    if check is None:
        return None
    return asdict(check)


def _plain_records(explanation: Explanation) -> dict[str, Any]:
    """Return the records of an answer as plain data; nothing for other explanations."""
    if not isinstance(explanation, AnswerExplanation):
        return {}
    records = {name: list(map(asdict, getattr(explanation, name))) for name in RECORDS}
    return {**records, "picture_spans": list(map(_plain_picture, explanation.picture_spans))}


def _plain_picture(span: PictureSpan) -> dict[str, Any]:
    # Not by `asdict`, which would copy the image.
    return {"tokens": span.tokens, "areas": span.areas, "image": _encode_png(span.image), "box": span.box}


def _read_picture(plain: Mapping[str, Any]) -> PictureSpan:
    areas = tuple(map(tuple, plain["areas"]))
    return PictureSpan(tuple(plain["tokens"]), areas, _decode_png(plain["image"]), _read_tuple(plain["box"]))


def read_dict(plain: Mapping[str, Any]) -> Saved:
    """Return the explanation, of one input or of several together, that `to_dict` turned into plain data."""
    if "explanations" in plain:
        return _joint_from_dict(plain)
    return from_dict(plain)


def _joint_from_dict(plain: Mapping[str, Any]) -> JointExplanation:
    values = dict(plain)
    values["explanations"] = tuple(map(from_dict, values["explanations"]))
    values["pairs"] = _read_array("pairs", values["pairs"])
    values["check"] = _read_check(values["check"])
    return JointExplanation(**values)


def from_dict(plain: Mapping[str, Any]) -> Explanation:
    """Return the explanation of one input that `to_dict` turned into plain data."""
    values = dict(plain)
    values["target"] = _read_target(values["target"])
    values["image"] = _decode_png(values["image"])
    values["offsets"] = _read_offsets(values["offsets"])
    values["check"] = _read_check(values.get("check"))
    # Files of earlier versions have no heads, and only answers a matrix.
    for name in values.keys() & set(ARRAYS):
        values[name] = _read_array(name, values[name])
    for name in values.keys() & set(TUPLES):
        values[name] = _read_tuple(values[name])
    # Only answers have steps.
    if "steps" not in values:
        return Explanation(**values)
    for name in values.keys() & RECORDS.keys():
        values[name] = tuple(RECORDS[name](**record) for record in values[name])
    # Files of earlier versions have none.
    values["picture_spans"] = tuple(map(_read_picture, values.get("picture_spans", ())))
    return AnswerExplanation(**values)


def _read_offsets(offsets: Any) -> Any:
    if offsets is None:
        return None
    return tuple(map(tuple, offsets))


def _list_arrays(explanation: Explanation) -> dict[str, Array]:
    """Return the arrays that an explanation has, by field name."""
    arrays = {name: getattr(explanation, name, None) for name in ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def _read_array(name: str, value: Any) -> Array | None:
    if value is None:
        return None
    # An explanation without tokens has an empty list, which NumPy would take for numbers.
    dtype = bool if name == "special" else None
    return np.asarray(value, dtype=dtype)


def _read_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_target(plain: Mapping[str, Any]) -> Target:
    # JSON knows spans, steps and tokens as lists.
    values = {name: _read_tuple(value) for name, value in plain.items()}
    if "steps" in values:
        return AnswerTarget(**values)
    return Target(**values)


def _read_check(plain: Mapping[str, Any] | None) -> Check | None:
    # Files of earlier versions have none.
    if plain is None:
        return None
    return Check(**{**plain, "strongest": tuple(plain["strongest"])})


def _encode_png(image: Image.Image | None) -> str | None:
    if image is None:
        return None
    return base64.b64encode(_to_png(image)).decode()


def _to_png(image: Image.Image) -> bytes:
    # PNG keeps every pixel, so that a saved explanation is equal to the original.
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _decode_png(text: str | None) -> Image.Image | None:
    if text is None:
        return None
    return Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def save(explanation: Saved, path: Path) -> Path:
    """Write an explanation atomically, in the format of the path's suffix."""
    if path.suffix not in WRITERS:
        raise BadOption(f"'{path.name}' ends neither in .json nor in .safetensors.")
    write_atomically(path, WRITERS[path.suffix](explanation))
    return path


def _to_json(explanation: Saved) -> bytes:
    plain = to_dict(explanation)
    body = {
        "format": JSON_FORMATS[-1],
        "clearhead": __version__,
        "explanation": plain,
        "sha256": json_checksum(plain),
    }
    # A relevance may be NaN, which Python's JSON reads and writes though the standard does not know it.
    return json.dumps(body, ensure_ascii=False, allow_nan=True).encode()


def json_checksum(plain: Mapping[str, Any]) -> str:
    """Return the digest of plain data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _to_safetensors(explanation: Saved) -> bytes:
    from safetensors.numpy import save

    rest = to_dict(explanation)
    arrays = {name: np.ascontiguousarray(array) for name, array in _name_arrays(explanation).items()}
    # The arrays stay out of the metadata, which is text.
    _fill_arrays(rest, dict.fromkeys(arrays))
    format_number = SAFETENSORS_FORMATS[-1]
    metadata = {
        "format": str(format_number),
        "clearhead": __version__,
        "explanation": json.dumps(rest),
        "sha256": _safetensors_checksum(format_number, rest, arrays),
    }
    return bytes(save(arrays, metadata))


def _name_arrays(explanation: Saved) -> dict[str, Array]:
    """Return the arrays by field name; behind those of single inputs stands the number of the input."""
    if not isinstance(explanation, JointExplanation):
        return _list_arrays(explanation)
    arrays = {}
    if explanation.pairs is not None:
        arrays["pairs"] = explanation.pairs
    for number, member in enumerate(explanation.explanations):
        # Behind the name, where a dot cannot be part of a field.
        for name, array in _list_arrays(member).items():
            arrays[f"{name}.{number}"] = array
    return arrays


def _fill_arrays(plain: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """Put arrays under their names into the plain data of an explanation."""
    for name, array in arrays.items():
        field, _, number = name.partition(".")
        fields = plain["explanations"][int(number)] if number else plain
        fields[field] = array


WRITERS: dict[str, Callable[[Saved], bytes]] = {".json": _to_json, ".safetensors": _to_safetensors}


def _safetensors_checksum(format_number: int, rest: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the digest of everything saved; format 1 leaves out the names, types and shapes of the arrays."""
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    # Sorted: the order of arrays in a file is not that in which they were saved.
    for name in sorted(arrays):
        if format_number > 1:
            digest.update(_describe_array(name, arrays[name]))
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _describe_array(name: str, array: Array) -> bytes:
    return repr((name, array.dtype.name, array.shape)).encode()


def as_path(path: Any) -> Path:
    """Return a path, or raise BadInput for something that does not name a file."""
    if not _is_path(path):
        raise BadInput(f"{path!r} does not name a file: give a path such as 'one.json'.")
    return Path(path)


def _is_path(path: Any) -> bool:
    # The operating system would refuse a null character with a ValueError of its own.
    return isinstance(path, str | os.PathLike) and "\0" not in str(path)


def read(path: str | Path) -> Any:
    """Read an explanation saved as .json or .safetensors, after checking format and checksum.

    Returns an Explanation, an AnswerExplanation or a JointExplanation, whichever was saved.
    """
    return parse_file(as_path(path), _parse, "is not a saved explanation: {}")


def parse_file(path: Path, parse: Callable[[bytes, Path], Content], message: str) -> Content:
    """Return what a file holds, or raise BadFile with a message about any error on the way."""
    content = read_bytes(path)
    try:
        return parse(content, path)
    # Format and checksum have messages of their own.
    except BadFile:
        raise
    except Exception as error:
        # A damaged file can fail anywhere: in JSON, in a header, for want of a key.
        raise BadFile(f"'{path}' {message.format(_describe_error(error))}") from error


def _describe_error(error: Exception) -> str:
    # Of a missing key, Python tells the name alone.
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _parse(content: bytes, path: Path) -> Saved:
    if path.suffix == ".safetensors":
        return _from_safetensors(content, path)
    return _from_json(content, path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, or raise BadFile."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable_file(path, error) from error


def _from_json(content: bytes, path: Path) -> Saved:
    body = json.loads(content)
    check_format(body["format"], JSON_FORMATS, path)
    check_checksum(json_checksum(body["explanation"]), body["sha256"], path)
    return read_dict(body["explanation"])


def _from_safetensors(content: bytes, path: Path) -> Saved:
    from safetensors.numpy import load

    metadata = _read_metadata(content)
    format_number = int(metadata["format"])
    check_format(format_number, SAFETENSORS_FORMATS, path)
    arrays = load(content)
    # All but the arrays, in whose places it holds None.
    rest = json.loads(metadata["explanation"])
    check_checksum(_safetensors_checksum(format_number, rest, arrays), metadata["sha256"], path)
    _fill_arrays(rest, arrays)
    return read_dict(rest)


def _read_metadata(content: bytes) -> dict[str, str]:
    """Read the metadata from the header, since safetensors.numpy.load returns arrays only."""
    metadata: dict[str, str] = _read_header(content)["__metadata__"]
    return metadata


def _read_header(content: bytes) -> Any:
    # A safetensors file begins with the size of its JSON header, in eight bytes.
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])


def check_format(format_number: int, formats: tuple[int, ...], path: Path) -> None:
    """Raise BadFile for a format that this version does not know."""
    if format_number not in formats:
        raise BadFile(
            f"'{path}' has format {format_number}; this version of Clearhead reads {', '.join(map(str, formats))}."
        )


def check_checksum(computed: str, stored: str, path: Path) -> None:
    """Raise BadFile if the content of a file is not what was saved."""
    if computed != stored:
        raise BadFile(f"'{path}' was changed or damaged since it was saved: its checksum does not match.")
