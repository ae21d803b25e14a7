"""The explanation: one relevance per token, with where it came from, and its way to disk and back."""

import base64
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.files import write_atomically
from clearhead.model.target import Target
from clearhead.validation import require_integer
from clearhead.version import __version__

Array = np.ndarray[Any, np.dtype[Any]]
REDUCTIONS: dict[str, Callable[[Array], float]] = {
    "sum": lambda values: float(values.sum()),
    "mean": lambda values: float(values.mean()),
    "max": lambda values: float(values.max()),
    "strongest": lambda values: float(values[np.abs(values).argmax()]),
    "first": lambda values: float(values[0]),
}


@dataclass(frozen=True)
class Word:
    """A word of the original text with its relevance; `segment` counts the texts of a pair."""

    text: str
    relevance: float
    start: int
    end: int
    segment: int = 0


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model gave one input its score: relevance per token, and the provenance of the numbers.

    `relevance` has one number per token without padding; `special` marks class, separator and register tokens;
    `offsets` point into `text`. Images have a `grid` of patches instead of a text.
    """

    tokens: tuple[str, ...]
    relevance: Array
    special: Array
    target: Target
    label: str
    method: str
    text: str | tuple[str, str] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    layers: Array | None = None
    grid: tuple[int, int] | None = None
    pixels: Array | None = None
    image: Image.Image | None = None
    box: tuple[float, float, float, float] | None = None
    probability: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        best = ", ".join(f"{token} {value:+.3g}" for token, value in self.top(3))
        return f"<Explanation of '{self.label}' by {self.method}: {best}>"

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.fragment(self)

    def top(self, k: int = 10) -> list[tuple[str, float]]:
        """The k tokens with the highest relevance, special tokens left out; ties by position."""
        require_integer("k", k, 0)
        order = np.lexsort((np.arange(len(self.relevance)), -self.relevance))
        kept = [place for place in order if not self.special[place]][:k]
        return [(self.tokens[place], float(self.relevance[place])) for place in kept]

    def words(self, reduction: str = "sum") -> list[Word]:
        """Words between blanks with the relevance of their sub-words: sum, mean, max, strongest or first."""
        if not isinstance(reduction, str) or reduction not in REDUCTIONS:
            raise BadOption(f"reduction={reduction!r} is not a choice. Use one of {', '.join(REDUCTIONS)}.")
        if self.text is None or self.offsets is None:
            raise BadOption("This explanation has no original text, so it has no words: use its tokens.")
        segments = self.text if isinstance(self.text, tuple) else (self.text,)
        return [
            Word(match.group(), REDUCTIONS[reduction](self.relevance[places]), *match.span(), number)
            for number, segment in enumerate(segments)
            for match in re.finditer(r"\S+", segment)
            if len(places := self._tokens_within(number, *match.span()))
        ]

    def _tokens_within(self, segment: int, start: int, end: int) -> list[int]:
        return [
            place
            for place, offset in enumerate(self.offsets or ())
            if not self.special[place]
            and offset[-1] > offset[-2]
            and (len(offset) == 2 or offset[0] == segment)
            and start <= offset[-2] < end
        ]

    def heatmap(self) -> Array:
        """Relevance over the original picture (rows × columns), NaN where the model did not look."""
        if self.grid is None or self.box is None:
            raise BadOption("Only the explanation of an image has a heat map.")
        source = self.relevance[~self.special].reshape(self.grid) if self.pixels is None else self.pixels
        left, top, right, bottom = self.box
        width, height = self.image.size if self.image is not None else (round(right), round(bottom))
        return _placed(source, (left, top, right, bottom), width, height)

    def save(self, path: str | Path) -> Path:
        """Writes .json or .safetensors, whole or not at all; `clearhead.read` brings it back."""
        return _save(self, _path(path))


def like(one: Explanation, **changes: Any) -> Explanation:
    """The same with other values: `dataclasses.replace` for thousands of them, without setting every field anew."""
    found = object.__new__(Explanation)
    found.__dict__.update(one.__dict__, **changes)
    return found


def stretched(source: Array, height: int, width: int) -> Array:
    """A map stretched bilinearly to another size."""
    return _placed(source, (0, 0, width, height), width, height)


def _placed(source: Array, box: tuple[float, float, float, float], width: int, height: int) -> Array:
    """The source map stretched bilinearly over the box, on a canvas of the original size."""
    left, top, right, bottom = box
    columns = (np.arange(width) + 0.5 - left) / (right - left)
    rows = (np.arange(height) + 0.5 - top) / (bottom - top)
    inside = ((rows >= 0) & (rows <= 1))[:, None] & ((columns >= 0) & (columns <= 1))[None, :]
    across = _interpolation(columns, source.shape[1])
    down = _interpolation(rows, source.shape[0])
    return np.where(inside, down @ source.astype(np.float64) @ across.T, np.nan)


def _interpolation(places: Array, cells: int) -> Array:
    """Weights (places × cells) of linear interpolation between cell centres, flat beyond the outermost."""
    centre = np.clip(places * cells - 0.5, 0, cells - 1)
    lower = np.minimum(centre.astype(int), max(cells - 2, 0))
    weights = np.zeros((len(places), cells))
    rows = np.arange(len(places))
    weights[rows, lower] = 1 - (centre - lower)
    weights[rows, np.minimum(lower + 1, cells - 1)] += centre - lower
    return weights


# --- on disk ---------------------------------------------------------------------------------------------------

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
    plain["image"] = _png(explanation.image)
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
    values["image"] = _picture(values["image"])
    for name in ("tokens", "text", "grid", "box"):
        values[name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
    if values["offsets"] is not None:
        values["offsets"] = tuple(tuple(offset) for offset in values["offsets"])
    return Explanation(**values)


def _png(image: Image.Image | None) -> str | None:
    if image is None:
        return None
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _picture(text: str | None) -> Image.Image | None:
    return None if text is None else Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def _save(explanation: Explanation, path: Path) -> Path:
    plain = to_dict(explanation)
    if path.suffix == ".json":
        body = {"format": JSON_FORMATS[-1], "clearhead": __version__, "explanation": plain}
        content = json.dumps({**body, "sha256": _digest(plain)}, ensure_ascii=False, allow_nan=True).encode()
    elif path.suffix == ".safetensors":
        content = _safetensors(explanation, plain)
    else:
        raise BadOption(f"'{path.name}' ends neither in .json nor in .safetensors.")
    write_atomically(path, content)
    return path


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _safetensors(explanation: Explanation, plain: dict[str, Any]) -> bytes:
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


def _path(given: Any) -> Path:
    """What names a file, as a path."""
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise BadInput(f"{given!r} does not name a file: give a path such as 'one.json'.")
    return Path(given)


def read(path: str | Path) -> Explanation:
    """Reads an explanation saved as .json or .safetensors, after checking version and checksum."""
    path = _path(path)
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
