"""Run folder: manifest, shards and summary on disk, safe against being killed and against mixing two runs.

RUN/manifest.json                     what is run: plan, versions, seeds, hashes; fixed from the first shard on
RUN/shards/00000-explanations.parquet one row per example, method and explained class
RUN/shards/00000-values.parquet       one row per example, method and metric; written last: then the shard is complete
RUN/shards/00000-notes.json           methods that refused the model, examples that were skipped
RUN/times/00000.json                  seconds, apart from the shards because they differ from run to run
RUN/summary.json                      the table with its intervals, written at the end
"""

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from clearhead.data.parquet import read_parquet, to_parquet
from clearhead.errors import BadFile
from clearhead.files import write_atomically
from clearhead.version import __version__

FORMAT = 1
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
LOCK = "lock"
DATA_FOLDERS = ("shards", "times")
# Temporary files of `write_atomically`, which a killed process leaves behind: a dot, the name, and a random ending.
TEMPORARY = re.compile(r"\.(manifest\.json|summary\.json|\d{5}\.json|\d{5}-\w+\.(json|parquet))\.\w+")
# Packages whose versions must not change within a run.
DECISIVE_PACKAGES = ("clearhead", "torch", "transformers")
# Packages whose versions are recorded, besides Clearhead and Python.
RECORDED_PACKAGES = ("torch", "transformers", "numpy")
MAX_SHOWN_CHARACTERS = 80
RESUME_HINT = "Completed shards are kept: the same command resumes the run."

Row = dict[str, Any]


@dataclass(frozen=True)
class ShardResult:
    """Result of one job: rows for the two Parquet files, seconds by step, and what was refused or skipped."""

    number: int
    explanations: Sequence[Mapping[str, Any]]
    values: Sequence[Mapping[str, Any]]
    seconds: Mapping[str, float]
    notes: Mapping[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The files of a run."""

    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def has_shard(self, number: int) -> bool:
        """Return whether a shard is complete."""
        return self._shard_path(number, "values.parquet").exists()

    def count_shards(self, total: int) -> int:
        """Return how many of `total` shards are complete."""
        return sum(self.has_shard(number) for number in range(total))

    def write_shard(self, result: ShardResult) -> None:
        """Write a shard; its values come last, so that a shard with values is complete."""
        number = result.number
        _write(self.folder / "times" / f"{number:05d}.json", _to_json(result.seconds))
        _write(self._shard_path(number, "notes.json"), _to_json(result.notes))
        _write(self._shard_path(number, "explanations.parquet"), _to_table(result.explanations))
        _write(self._shard_path(number, "values.parquet"), _to_table(result.values))

    def values(self) -> Iterator[Row]:
        """Yield the value rows of every complete shard, in the order of the examples."""
        for path in self._shard_paths("values.parquet"):
            yield from map(_parse_record, read_parquet(path))

    def explanations(self) -> Iterator[Row]:
        """Yield the explanations of every shard, as records with an `example` each."""
        for path in self._shard_paths("explanations.parquet"):
            yield from read_parquet(path)

    def notes(self) -> list[Row]:
        """Return what was refused and skipped, by shard."""
        return list(map(_read_json, self._shard_paths("notes.json")))

    def seconds(self) -> list[dict[str, float]]:
        """Return the seconds by step, by shard."""
        # Sorted, because the order in which a file system lists files is arbitrary.
        return list(map(_read_json, sorted((self.folder / "times").glob("*.json"))))

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run, None before its end."""
        path = self.folder / SUMMARY
        if not path.exists():
            return None
        return _read_json(path)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        _write(self.folder / SUMMARY, _to_json(summary))

    def _shard_path(self, number: int, name: str) -> Path:
        return self.folder / "shards" / f"{number:05d}-{name}"

    def _shard_paths(self, name: str) -> list[Path]:
        # Sorted, because the order in which a file system lists files is arbitrary.
        return sorted((self.folder / "shards").glob(f"*-{name}"))


def _parse_record(row: Row) -> Row:
    # Records differ between metrics, so Parquet holds them as JSON.
    return {**row, "record": json.loads(row["record"])}


def _to_table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return to_parquet(list(map(dict, rows)))


@contextmanager
def open_run(folder: Path, manifest: Mapping[str, Any]) -> Iterator[RunFolder]:
    """Open the run folder of this manifest, new or begun, locked against other processes."""
    _check_free(folder)
    _make_folders(folder)
    with _lock(folder):
        # Under the lock, because another process may still be writing.
        _remove_temporary_files(folder)
        _settle_manifest(folder, manifest)
        yield RunFolder(folder)


def _make_folders(folder: Path) -> None:
    with _write_errors(folder):
        for name in DATA_FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)


def _settle_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile if the folder holds shards of another run; write the manifest if it holds none."""
    if _is_begun(folder):
        check_same(folder, manifest)
    else:
        # Nothing has been computed yet, so the folder may be planned anew.
        _write(folder / MANIFEST, _to_json(manifest))


def _is_begun(folder: Path) -> bool:
    return (folder / MANIFEST).exists() and any((folder / "shards").glob("*-values.parquet"))


def _check_free(folder: Path) -> None:
    """Raise BadFile if the folder holds anything but a run."""
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    for path in sorted(folder.iterdir()):
        _check_leftover(path)


def _check_leftover(path: Path) -> None:
    if not _is_leftover(path.name):
        raise BadFile(
            f"'{path.parent}' is not empty and is not a run folder (it holds '{path.name}'). Choose another --out."
        )


def _is_leftover(name: str) -> bool:
    """Return whether a run that was killed before its manifest was written leaves a file of this name."""
    return name in (*DATA_FOLDERS, LOCK) or TEMPORARY.fullmatch(name) is not None


def _remove_temporary_files(folder: Path) -> None:
    """Delete what killed processes were writing."""
    for path in folder.rglob(".*"):
        if TEMPORARY.fullmatch(path.name):
            # A file that cannot be deleted does no harm: nothing reads it.
            with suppress(OSError):
                path.unlink()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; the system releases that of a killed process."""
    # Windows has no fcntl: two processes there are not kept apart.
    if find_spec("fcntl") is None:
        yield
        return
    with _write_errors(folder):
        file = open(folder / LOCK, "w")  # noqa: SIM115  closed below
    with file:
        _lock_file(file, folder)
        yield


def _lock_file(file: TextIO, folder: Path) -> None:
    import fcntl

    # Some network file systems have no locks: run without one rather than not at all.
    with suppress(OSError):
        try:
            # Without waiting: the other process may run for hours.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _make_lock_error(folder) from error


def _make_lock_error(folder: Path) -> BadFile:
    return BadFile(f"Another process is writing into '{folder}'. Wait for it, or choose another --out.")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Re-raise OSError as BadFile that says how to resume."""
    try:
        yield
    except OSError as error:
        raise BadFile(f"'{path}' cannot be written: {error.strerror or error}. {RESUME_HINT}") from error


def _write(path: Path, content: bytes) -> None:
    """Write a file that survives a crash complete or is absent after it."""
    try:
        write_atomically(path, content, durable=True)
    except BadFile as error:
        raise BadFile(f"{error}. {RESUME_HINT}") from error


def _to_json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # A path may hold bytes that are not UTF-8, which Python represents as surrogates.
    return text.encode("utf-8", "surrogatepass")


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


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run folder; raise BadFile if this version cannot read it."""
    _check_manifest_exists(folder)
    manifest = _read_json(folder / MANIFEST)
    _check_format(folder, manifest)
    return manifest


def _check_manifest_exists(folder: Path) -> None:
    if not (folder / MANIFEST).exists():
        raise BadFile(
            f"'{folder}' is not a run folder: it has no {MANIFEST}. Make one with clearhead bench … --out {folder}."
        )


def _check_format(folder: Path, manifest: Mapping[str, Any]) -> None:
    number = manifest.get("format")
    if number != FORMAT:
        raise BadFile(
            f"'{folder}' has format {number}, written by Clearhead {_recorded_version(manifest, 'clearhead')}; "
            f"this version reads format {FORMAT}. Use that version, or choose another folder."
        )


def _read_json(path: Path) -> dict[str, Any]:
    content = _parse_json(path)
    if not isinstance(content, dict):
        raise BadFile(f"'{path}' cannot be read: it holds no JSON object.")
    return content


def _parse_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    # ValueError: broken JSON, or bytes that are not UTF-8.
    except (OSError, ValueError) as error:
        raise BadFile(f"'{path}' cannot be read: {error}") from error


def _recorded_version(manifest: Mapping[str, Any], name: str) -> str:
    recorded = manifest.get("versions") or {}
    return str(recorded.get(name, "?"))


def check_same(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile, naming the first difference, if the folder holds results of another plan or other versions."""
    existing = read_manifest(folder)
    # Versions first: they are the simpler explanation if both differ.
    _check_same_versions(folder, existing, manifest)
    if existing["fingerprint"] != manifest["fingerprint"]:
        raise BadFile(
            f"'{folder}' holds another run: {_describe_difference(existing, manifest)}. Choose another --out."
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
        _list_differences(existing["hashes"], manifest["hashes"]),
    )
    return next(differences, "it was planned differently")


def _list_differences(existing: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    # Either may lack a name, if an option came with another version.
    for name in sorted({*existing, *current}):
        before = existing.get(name)
        now = current.get(name)
        if before != now:
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
