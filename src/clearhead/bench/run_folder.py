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
from pathlib import Path
from typing import Any

from clearhead.data.parquet import read_parquet, to_parquet
from clearhead.errors import BadFile
from clearhead.files import write_atomically
from clearhead.version import __version__

FORMAT = 1
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
LOCK = "lock"
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
        explanations = [dict(row) for row in result.explanations]
        values = [dict(row) for row in result.values]
        _write(self.folder / "times" / f"{result.number:05d}.json", _to_json(result.seconds))
        _write(self._shard_path(result.number, "notes.json"), _to_json(result.notes))
        _write(self._shard_path(result.number, "explanations.parquet"), to_parquet(explanations))
        _write(self._shard_path(result.number, "values.parquet"), to_parquet(values))

    def values(self) -> Iterator[Row]:
        """Yield the value rows of every complete shard, in the order of the examples."""
        for path in self._shard_paths("values.parquet"):
            for row in read_parquet(path):
                # Records differ between metrics, so Parquet holds them as JSON.
                yield {**row, "record": json.loads(row["record"])}

    def explanations(self) -> Iterator[Row]:
        """Yield the explanations of every shard, as records with an `example` each."""
        for path in self._shard_paths("explanations.parquet"):
            yield from read_parquet(path)

    def notes(self) -> Iterator[Row]:
        """Yield what was refused and skipped, by shard."""
        for path in self._shard_paths("notes.json"):
            yield _read_json(path)

    def seconds(self) -> list[dict[str, float]]:
        """Return the seconds by step, by shard."""
        return [_read_json(path) for path in sorted((self.folder / "times").glob("*.json"))]

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
        return sorted((self.folder / "shards").glob(f"*-{name}"))


@contextmanager
def open_run(folder: Path, manifest: Mapping[str, Any]) -> Iterator[RunFolder]:
    """Open the run folder of this manifest, new or begun, locked against other processes."""
    _check_free(folder)
    with _write_errors(folder):
        for name in ("shards", "times"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        _remove_temporary_files(folder)
        if (folder / MANIFEST).exists() and any((folder / "shards").glob("*-values.parquet")):
            check_same(folder, manifest)
        else:
            # Nothing has been computed yet, so the folder may be planned anew.
            _write(folder / MANIFEST, _to_json(manifest))
        yield RunFolder(folder)


def _check_free(folder: Path) -> None:
    """Raise BadFile if the folder holds anything but a run."""
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    # What a run leaves behind that was killed before its manifest was written.
    own_names = {"shards", "times", LOCK}
    foreign_names = []
    for path in sorted(folder.iterdir()):
        if path.name not in own_names and not TEMPORARY.fullmatch(path.name):
            foreign_names.append(path.name)
    if foreign_names:
        raise BadFile(
            f"'{folder}' is not empty and is not a run folder (it holds '{foreign_names[0]}'). Choose another --out."
        )


def _remove_temporary_files(folder: Path) -> None:
    """Delete what killed processes were writing; only under the lock, when nobody else writes."""
    for path in folder.rglob(".*"):
        if TEMPORARY.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; the system releases that of a killed process."""
    try:
        import fcntl
    except ImportError:
        # Windows has no fcntl: two processes there are not kept apart.
        yield
        return
    with _write_errors(folder):
        file = open(folder / LOCK, "w")  # noqa: SIM115  closed below
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadFile(
                f"Another process is writing into '{folder}'. Wait for it, or choose another --out."
            ) from error
        except OSError:
            # Some network file systems have no locks: run without one rather than not at all.
            pass
        yield


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
    installed = {"clearhead": __version__, "python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def fingerprint(content: Mapping[str, Any]) -> str:
    """Return one hash for everything that determines the values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hash_files(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    try:
        if path.is_file():
            digest.update(_file_digest(path))
            return digest.hexdigest()
        # Sorted, because the order in which a file system lists files is arbitrary.
        for file in sorted(path.rglob("*")):
            if file.is_file():
                digest.update(str(file.relative_to(path)).encode())
                digest.update(_file_digest(file))
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run folder; raise BadFile if this version cannot read it."""
    path = folder / MANIFEST
    if not path.exists():
        raise BadFile(
            f"'{folder}' is not a run folder: it has no {MANIFEST}. Make one with clearhead bench … --out {folder}."
        )
    manifest = _read_json(path)
    if manifest.get("format") != FORMAT:
        raise BadFile(
            f"'{folder}' has format {manifest.get('format')}, written by Clearhead "
            f"{_recorded_version(manifest, 'clearhead')}; this version reads format {FORMAT}. Use that version, or "
            "choose another folder."
        )
    return manifest


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadFile(f"'{path}' cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise BadFile(f"'{path}' cannot be read: it holds no JSON object.")
    return content


def _recorded_version(manifest: Mapping[str, Any], name: str) -> str:
    recorded = manifest.get("versions") or {}
    return str(recorded.get(name, "?"))


def check_same(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile, naming the first difference, if the folder holds results of another plan or other versions."""
    existing = read_manifest(folder)
    for name in DECISIVE_PACKAGES:
        before = _recorded_version(existing, name)
        now = _recorded_version(manifest, name)
        if before != now:
            raise BadFile(
                f"'{folder}' was begun with {name} {before}; this is {name} {now}. Finish it with that version, or "
                "choose another --out."
            )
    if existing["fingerprint"] != manifest["fingerprint"]:
        raise BadFile(f"'{folder}' holds another run: {_difference(existing, manifest)}. Choose another --out.")


def _difference(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    for section in ("plan", "hashes"):
        for name in sorted({*existing[section], *manifest[section]}):
            before = existing[section].get(name)
            now = manifest[section].get(name)
            if before != now:
                return f"its {name} was {_quote(before)}, and is now {_quote(now)}"
    return "it was planned differently"


def _quote(value: Any) -> str:
    text = str(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    if len(text) >= MAX_SHOWN_CHARACTERS:
        text = f"{text[: MAX_SHOWN_CHARACTERS - 3]}…"
    return f"'{text}'"
