"""Results on disk: a run folder that survives being killed, and refuses what does not belong to it.

RUN/manifest.json                     what is run: plan, versions, seeds, hashes; kept from the first shard on
RUN/shards/00000-explanations.parquet one row per example, method and explained class
RUN/shards/00000-values.parquet       one row per example, method and metric; written last: then the shard is done
RUN/shards/00000-notes.json           methods that refused the model, examples that were skipped
RUN/times/00000.json                  seconds, which differ from run to run and so live apart
RUN/summary.json                      the table with its intervals, written at the end
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from clearhead.data.parquet import read_parquet, to_parquet
from clearhead.errors import BadFile
from clearhead.version import __version__

FORMAT = 1
MANIFEST, SUMMARY, LOCK = "manifest.json", "summary.json", "lock"
PARTIAL = ".partial-"
DECISIVE = ("clearhead", "torch", "transformers")
ARROWS = {"higher": "↑", "lower": "↓"}
AGAIN = "What is done is kept: the same command goes on from there."


@dataclass(frozen=True)
class ShardResult:
    """What one job found: rows for the two Parquet files, and the seconds it took, by what they went to."""

    number: int
    explanations: Sequence[Mapping[str, Any]]
    values: Sequence[Mapping[str, Any]]
    seconds: Mapping[str, float]
    notes: Mapping[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """A run folder."""

    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def has(self, number: int) -> bool:
        return self._shard(number, "values").exists()

    def keep(self, outcome: ShardResult) -> None:
        """Writes a shard; its values come last, so that a shard with values is whole."""
        write(self._times(outcome.number), _json(outcome.seconds))
        write(self.folder / "shards" / f"{outcome.number:05d}-notes.json", _json(outcome.notes))
        write(self._shard(outcome.number, "explanations"), to_parquet([dict(row) for row in outcome.explanations]))
        write(self._shard(outcome.number, "values"), to_parquet([dict(row) for row in outcome.values]))

    def values(self) -> Iterator[dict[str, Any]]:
        """The rows of every shard that is done, in the order of the examples."""
        for path in sorted((self.folder / "shards").glob("*-values.parquet")):
            yield from ({**row, "record": json.loads(row["record"])} for row in read_parquet(path))

    def explanations(self) -> Iterator[dict[str, Any]]:
        """The explanations of every shard that is done, as records with an `example` each."""
        for path in sorted((self.folder / "shards").glob("*-explanations.parquet")):
            yield from read_parquet(path)

    def notes(self) -> Iterator[dict[str, Any]]:
        """By shard what was refused and skipped."""
        yield from (_parsed(path) for path in sorted((self.folder / "shards").glob("*-notes.json")))

    def seconds(self) -> list[dict[str, float]]:
        return [_parsed(path) for path in sorted((self.folder / "times").glob("*.json"))]

    def summary(self) -> dict[str, Any] | None:
        """What was found at the end of a finished run."""
        path = self.folder / SUMMARY
        return dict(_parsed(path)) if path.exists() else None

    def finish(self, summary: Mapping[str, Any]) -> None:
        write(self.folder / SUMMARY, _json(summary))

    def _shard(self, number: int, kind: str) -> Path:
        return self.folder / "shards" / f"{number:05d}-{kind}.parquet"

    def _times(self, number: int) -> Path:
        return self.folder / "times" / f"{number:05d}.json"


# --- the folder ------------------------------------------------------------------------------------------------


@contextmanager
def open_run(folder: Path, manifest: Mapping[str, Any]) -> Iterator[RunFolder]:
    """The run folder of this manifest, new or as it was left; nobody else writes into it meanwhile."""
    _check_free(folder)
    with _writing(folder):
        for name in ("shards", "times"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (folder / MANIFEST).exists() and any((folder / "shards").glob("*-values.parquet")):
            check_same(folder, manifest)
        else:
            write(folder / MANIFEST, _json(manifest))
        yield RunFolder(folder)


def _check_free(folder: Path) -> None:
    """A folder with something else in it is left alone."""
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    ours = {"shards", "times", LOCK, PARTIAL + MANIFEST}
    others = sorted(one.name for one in folder.iterdir() if one.name not in ours)
    if others:
        raise BadFile(f"'{folder}' is no run folder and not empty (it holds '{others[0]}'). Choose another --out.")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the system drops the lock of a killed one."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with _writing(folder):
        file = open(folder / LOCK, "w")  # noqa: SIM115
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadFile(
                f"Another process is writing into '{folder}'. Wait for it, or choose another --out."
            ) from error
        except OSError:
            pass  # a file system without locks
        yield


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadFile(f"'{path}' cannot be written: {error.strerror or error}. {AGAIN}") from error


def write(path: Path, content: bytes) -> None:
    """Writes beside the place, waits until it is on the disk, and moves: a file is whole or not there."""
    beside = path.with_name(PARTIAL + path.name)
    with _writing(path):
        try:
            with open(beside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
            _settle(path.parent)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise


def _settle(folder: Path) -> None:
    """The new name, too, is on the disk."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _json(plain: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


# --- the manifest ----------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Of everything that can change a number; read without importing it."""
    found = {"clearhead": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "numpy"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def fingerprint(parts: Mapping[str, Any]) -> str:
    """One number for everything that decides the values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def hash_files(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files in a folder."""
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    try:
        for file in files:
            found.update(b"" if path.is_file() else str(file.relative_to(path)).encode())
            with open(file, "rb") as opened_file:
                found.update(hashlib.file_digest(opened_file, "sha256").digest())
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error
    return found.hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder, after checking that this version reads it."""
    path = folder / MANIFEST
    if not path.exists():
        raise BadFile(
            f"'{folder}' is no run folder: it has no {MANIFEST}. Make one with clearhead bench … --out {folder}."
        )
    found = _parsed(path)
    if found.get("format") != FORMAT:
        raise BadFile(
            f"'{folder}' has format {found.get('format')}, written by Clearhead {_of(found, 'clearhead')}; this "
            f"version reads format {FORMAT}. Use that version, or choose another folder."
        )
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadFile(f"'{path}' cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadFile(f"'{path}' cannot be read: it holds no object.")
    return found


def _of(manifest: Mapping[str, Any], name: str) -> str:
    return str((manifest.get("versions") or {}).get(name, "?"))


def check_same(folder: Path, wanted: Mapping[str, Any]) -> None:
    """Results of one thing never mix with those of another: the first difference is named."""
    kept = read_manifest(folder)
    for name in DECISIVE:
        before, now = _of(kept, name), _of(wanted, name)
        if before != now:
            raise BadFile(
                f"'{folder}' was begun with {name} {before}; this is {name} {now}. Finish it there, or choose another "
                "--out."
            )
    if kept["fingerprint"] != wanted["fingerprint"]:
        raise BadFile(f"'{folder}' holds another run: {_difference(kept, wanted)}. Choose another --out.")


def _difference(kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    for part in ("plan", "hashes"):
        for name in sorted({*kept[part], *wanted[part]}):
            before, now = kept[part].get(name), wanted[part].get(name)
            if before != now:
                return f"its {name} was {_said(before)}, and is now {_said(now)}"
    return "it was planned differently"


def _said(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"'{text}'" if len(text) < 80 else f"'{text[:77]}…'"


def format_number(value: float) -> str:
    """A value as tables show it: three decimals, two for what is counted in percent, one digit of what is tiny."""
    if abs(value) < 0.0005:
        return "0" if value == 0 else f"{value:.1g}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"
