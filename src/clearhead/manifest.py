"""Manifest of a resumable run: what determines its values, and whether a folder holds the same run."""

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile
from clearhead.run_files import read_json
from clearhead.version import __version__

MANIFEST = "manifest.json"
# Packages whose versions must not change within a run.
DECISIVE_PACKAGES = ("clearhead", "torch", "transformers")
# Packages whose versions are recorded, besides Clearhead and Python.
RECORDED_PACKAGES = ("torch", "transformers", "numpy")
MAX_SHOWN_CHARACTERS = 80


def versions() -> dict[str, str]:
    """Return the versions of every package that can change a number, without importing them."""
    return {"clearhead": __version__, "python": platform.python_version(), **dict(_installed_versions())}


def _installed_versions() -> Iterator[tuple[str, str]]:
    for name in RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def fingerprint(content: Mapping[str, Any]) -> str:
    """Return one hash for everything that determines the values."""
    # Sorted, so that the order in which options were given does not matter.
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_files(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    try:
        for content in _iterate_content(path):
            digest.update(content)
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def _iterate_content(path: Path) -> Iterator[bytes]:
    """Yield the digest of a file, or the name and digest of every file in a folder."""
    if path.is_file():
        yield _file_digest(path)
        return
    for file in _list_files(path):
        yield str(file.relative_to(path)).encode()
        yield _file_digest(file)


def _list_files(folder: Path) -> Iterator[Path]:
    # Sorted, because the order in which a file system lists files is arbitrary.
    return filter(Path.is_file, sorted(folder.rglob("*")))


def _file_digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def read_manifest(folder: Path, format_number: int) -> dict[str, Any]:
    """Read the manifest of a run folder; raise BadFile unless it has this format."""
    manifest = read_json(folder / MANIFEST)
    _check_format(folder, manifest, format_number)
    return manifest


def _check_format(folder: Path, manifest: Mapping[str, Any], format_number: int) -> None:
    number = manifest.get("format")
    if number != format_number:
        raise BadFile(
            f"'{folder}' has format {number}, written by Clearhead {_recorded_version(manifest, 'clearhead')}; "
            f"this version reads format {format_number}. Use that version, or choose another folder."
        )


def _recorded_version(manifest: Mapping[str, Any], name: str) -> str:
    recorded = manifest.get("versions") or {}
    return str(recorded.get(name, "?"))


def check_same(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile, naming the first difference, if the folder holds results of another plan or other versions."""
    existing = read_manifest(folder, manifest["format"])
    # Versions first: they are the simpler explanation if both differ.
    _check_same_versions(folder, existing, manifest)
    if existing["fingerprint"] != manifest["fingerprint"]:
        raise BadFile(
            f"'{folder}' holds another run: {_describe_difference(existing, manifest)}. Choose another --out, or "
            "delete this folder to begin anew."
        )


def _check_same_versions(folder: Path, existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    for name in DECISIVE_PACKAGES:
        _check_same_version(folder, name, _recorded_version(existing, name), _recorded_version(manifest, name))


def _check_same_version(folder: Path, name: str, before: str, now: str) -> None:
    if before != now:
        raise BadFile(
            f"'{folder}' was begun with {name} {before}; this is {name} {now}. Finish it with that version, or "
            "choose another --out."
        )


def _describe_difference(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    differences = chain(
        _list_differences(existing["plan"], manifest["plan"]),
        _list_changes(existing["hashes"], manifest["hashes"]),
    )
    return next(differences, "it was planned differently")


def _list_changes(existing: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    # Hashes themselves tell a reader nothing.
    for name in sorted({*existing, *current}):
        if existing.get(name) != current.get(name):
            yield f"the {name} has changed since"


def _list_differences(existing: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    # Either may lack a name, if an option came with another version.
    for name in sorted({*existing, *current}):
        before = existing.get(name)
        now = current.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _list_differences(before, now)
        elif before != now:
            yield f"its {name} was {_quote(before)}, and is now {_quote(now)}"


def _quote(value: Any) -> str:
    """Return a value in quotes, cut to a length that keeps the message readable."""
    text = _join_list(value)
    if len(text) < MAX_SHOWN_CHARACTERS:
        return f"'{text}'"
    return f"'{text[: MAX_SHOWN_CHARACTERS - 3]}…'"


def _join_list(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
