"""TODO."""

import base64
import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.files import write_atomically
from clearhead.model.target import Target
from clearhead.version import __version__

ARRAYS = ("relevance", "special", "layers", "pixels")


JSON_FORMATS = (1,)


SAFETENSORS_FORMATS = (1, 2)
"""The formats that are read; the last is written."""


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Plain data for JSON: arrays as lists, the picture as PNG in base64."""
    plain = {one.name: getattr(explanation, one.name) for one in fields(explanation)}
    target = explanation.target
    plain |= {name: None if plain[name] is None else plain[name].tolist() for name in ARRAYS}
    plain["target"] = {"index": target.index, "versus": target.versus, "span": target.span}
    plain["image"] = _encode_png(explanation.image)
    return {**plain, "options": dict(explanation.options), "diagnostics": dict(explanation.diagnostics)}


def from_dict(plain: Mapping[str, Any]) -> Explanation:
    """The inverse of `to_dict`."""
    values = dict(plain)
    target = values["target"]
    span = None if target["span"] is None else tuple(target["span"])
    values["target"] = Target(target["index"], target["versus"], span)
    for name in ARRAYS:
        if values[name] is not None:
            values[name] = np.asarray(values[name], dtype=bool if name == "special" else None)
    values["image"] = _decode_png(values["image"])
    for name in ("tokens", "text", "grid", "box"):
        values[name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
    if values["offsets"] is not None:
        values["offsets"] = tuple(tuple(offset) for offset in values["offsets"])
    return Explanation(**values)


def _encode_png(image: Image.Image | None) -> str | None:
    if image is None:
        return None
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _decode_png(text: str | None) -> Image.Image | None:
    return None if text is None else Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def save(explanation: Explanation, path: Path) -> Path:
    plain = to_dict(explanation)
    if path.suffix == ".json":
        body = {"format": JSON_FORMATS[-1], "clearhead": __version__, "explanation": plain}
        content = json.dumps({**body, "sha256": _digest(plain)}, ensure_ascii=False, allow_nan=True).encode()
    elif path.suffix == ".safetensors":
        content = _to_safetensors(explanation, plain)
    else:
        raise BadOption(f"'{path.name}' ends neither in .json nor in .safetensors.")
    write_atomically(path, content)
    return path


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _to_safetensors(explanation: Explanation, plain: dict[str, Any]) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(value) for name in ARRAYS if (value := getattr(explanation, name)) is not None}
    rest = {**plain, **dict.fromkeys(ARRAYS)}
    number = SAFETENSORS_FORMATS[-1]
    metadata = {"format": str(number), "clearhead": __version__, "explanation": json.dumps(rest)}
    return bytes(save(arrays, {**metadata, "sha256": _checksum(number, rest, arrays)}))


def _checksum(number: int, rest: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Of everything that is kept; format 1 leaves the names, types and shapes of the arrays out."""
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(arrays):
        one = arrays[name]
        found.update(repr((name, one.dtype.name, one.shape)).encode() if number > 1 else b"")
        found.update(one.tobytes())
    return found.hexdigest()


def as_path(given: Any) -> Path:
    """What names a file, as a path."""
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise BadInput(f"{given!r} does not name a file: give a path such as 'one.json'.")
    return Path(given)


def read(path: str | Path) -> Explanation:
    """Reads an explanation saved as .json or .safetensors, after checking version and checksum."""
    path = as_path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error
    try:
        return _from_safetensors(content, path) if path.suffix == ".safetensors" else _from_json(content, path)
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"'{path}' is not a saved explanation: {error}") from error


def _from_json(content: bytes, path: Path) -> Explanation:
    body = json.loads(content)
    _check_format(body["format"], JSON_FORMATS, path)
    if _digest(body["explanation"]) != body["sha256"]:
        raise BadFile(f"'{path}' was changed or damaged since it was saved: its checksum does not match.")
    return from_dict(body["explanation"])


def _from_safetensors(content: bytes, path: Path) -> Explanation:
    from safetensors.numpy import load

    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = header["__metadata__"]
    number = int(metadata["format"])
    _check_format(number, SAFETENSORS_FORMATS, path)
    arrays, rest = load(content), json.loads(metadata["explanation"])
    if _checksum(number, rest, arrays) != metadata["sha256"]:
        raise BadFile(f"'{path}' was changed or damaged since it was saved: its checksum does not match.")
    return from_dict({**rest, **{name: arrays.get(name) for name in ARRAYS}})


def _check_format(number: int, known: tuple[int, ...], path: Path) -> None:
    if number not in known:
        raise BadFile(f"'{path}' has format {number}; this version of Clearhead reads {', '.join(map(str, known))}.")
