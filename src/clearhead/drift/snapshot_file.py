"""Snapshots as files: one JSON document with a format number and a checksum."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadOption
from clearhead.files import write_atomically
from clearhead.model_diff import Noise, NoiseDraw, Reasons, Snapshot
from clearhead.serialization import as_path, check_checksum, check_format, json_checksum, parse_file
from clearhead.version import __version__

FORMATS = (1,)
"""The formats that can be read; the last is written."""
DOCUMENT = "clearhead snapshot"
"""What the file says it is, to tell it from other JSON files."""
HEADER = {"document": DOCUMENT, "format": FORMATS[-1], "clearhead": __version__}
NOISE_FIELDS = ("draws", "precisions", "methods")
PLAIN_FIELDS = ("model", "checksum", "task", "task_digest", "method")


def round_shares(shares: Array) -> Array:
    """Round to float16, the precision of files, so that a saved snapshot equals the one in memory."""
    return shares.astype(np.float16).astype(np.float64)


def is_snapshot_file(path: Any) -> bool:
    """Return whether something names a file that could be a snapshot."""
    return isinstance(path, str | Path) and _is_json_file(Path(path))


def _is_json_file(path: Path) -> bool:
    return path.suffix == ".json" and path.is_file()


def write_snapshot(snapshot: Snapshot, path: str | Path, *, texts: bool = True) -> Path:
    """Write a snapshot atomically, without the texts of the examples if `texts` is False."""
    path = as_path(path)
    _require_json(path)
    if not texts:
        snapshot = remove_texts(snapshot)
    write_atomically(path, _to_json(_to_plain(snapshot)))
    return path


def _require_json(path: Path) -> None:
    if path.suffix != ".json":
        raise BadOption(f"'{path.name}' does not end in .json, as the file of a snapshot does.")


def _to_json(plain: Mapping[str, Any]) -> bytes:
    body = {**HEADER, "snapshot": plain, "sha256": json_checksum(plain)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def remove_texts(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without the texts of its examples; the places of the words remain."""
    examples = tuple(replace(example, text=None) for example in snapshot.examples)
    return replace(snapshot, examples=examples)


def _to_plain(snapshot: Snapshot) -> dict[str, Any]:
    plain = {name: getattr(snapshot, name) for name in PLAIN_FIELDS}
    return {
        **plain,
        "labels": list(snapshot.labels),
        "options": dict(snapshot.options),
        "versions": dict(snapshot.versions),
        "noise": snapshot.noise and _plain_noise(snapshot.noise),
        "examples": list(map(_plain_reasons, snapshot.examples)),
    }


def _plain_reasons(reasons: Reasons) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": reasons.id,
        "digest": reasons.digest,
        "prediction": reasons.prediction,
        "probability": reasons.probability,
        "label": reasons.label,
        "kind": reasons.kind,
        "spans": list(map(list, reasons.spans)),
        "grid": reasons.grid,
        "text": reasons.text,
        "shares": _plain_numbers(reasons.shares),
    }
    return {**plain, **_plain_blocks(reasons.blocks)}


def _plain_blocks(share_LU: Array | None) -> dict[str, Any]:
    # Not every method has shares by block.
    if share_LU is None:
        return {}
    return {"blocks": list(map(_plain_numbers, share_LU))}


def _plain_numbers(value_N: Array) -> list[float]:
    # By way of text: 0.0333 instead of 0.033294677734375, which is the same float16.
    return [float(str(value)) for value in value_N.astype(np.float16)]


def _plain_noise(noise: Noise) -> dict[str, Any]:
    return {name: list(map(_plain_draw, getattr(noise, name))) for name in NOISE_FIELDS}


def _plain_draw(draw: NoiseDraw) -> dict[str, Any]:
    return {
        "name": draw.name,
        "shift": _plain_numbers(draw.shift_N),
        "agreement": _plain_numbers(draw.agreement_N),
        "largest_word_shift": draw.largest_word_shift,
        "changed": draw.changed,
        "block_agreement": list(draw.block_agreement),
    }


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot, after checking its format and checksum."""
    return parse_file(as_path(path), _parse, "is not a snapshot: {}. Make one with clearhead snapshot.")


def _parse(content: bytes, path: Path) -> Snapshot:
    body = json.loads(content)
    _require_snapshot(body, path)
    check_format(body["format"], FORMATS, path)
    return _from_plain(_read_checked(body, path))


def _read_checked(body: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return the snapshot of a file whose checksum is right."""
    plain: Mapping[str, Any] = body["snapshot"]
    check_checksum(json_checksum(plain), body["sha256"], path)
    return plain


def _require_snapshot(body: Any, path: Path) -> None:
    if not _is_snapshot(body):
        raise BadFile(f"'{path}' is not a snapshot: make one with clearhead snapshot.")


def _is_snapshot(body: Any) -> bool:
    return isinstance(body, Mapping) and body.get("document") == DOCUMENT


def _from_plain(plain: Mapping[str, Any]) -> Snapshot:
    # By name: later versions of the format may have fields that this one does not know.
    return Snapshot(
        **{name: plain[name] for name in PLAIN_FIELDS},
        labels=tuple(plain["labels"]),
        options=plain["options"],
        versions=plain["versions"],
        noise=plain["noise"] and _read_noise(plain["noise"]),
        examples=tuple(map(_read_reasons, plain["examples"])),
    )


def _read_reasons(plain: Mapping[str, Any]) -> Reasons:
    return Reasons(
        id=plain["id"],
        digest=plain["digest"],
        prediction=plain["prediction"],
        probability=plain["probability"],
        label=plain["label"],
        kind=plain["kind"],
        spans=tuple(map(tuple, plain["spans"])),
        grid=_read_tuple(plain["grid"]),
        text=_read_tuple(plain["text"]),
        shares=_read_numbers(plain["shares"]),
        blocks=_read_blocks(plain.get("blocks")),
    )


def _read_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_numbers(values: Any) -> Array:
    return round_shares(np.array(values, dtype=np.float64))


def _read_blocks(rows: Any) -> Array | None:
    if rows is None:
        return None
    return _read_numbers(rows)


def _read_noise(plain: Mapping[str, Any]) -> Noise:
    return Noise(**{name: tuple(map(_read_draw, plain[name])) for name in NOISE_FIELDS})


def _read_draw(plain: Mapping[str, Any]) -> NoiseDraw:
    return NoiseDraw(
        name=plain["name"],
        shift_N=_read_numbers(plain["shift"]),
        agreement_N=_read_numbers(plain["agreement"]),
        largest_word_shift=plain["largest_word_shift"],
        changed=plain["changed"],
        block_agreement=tuple(plain["block_agreement"]),
    )
