"""Run folder: manifest, shards and summary on disk, safe against being killed and against mixing two runs.

RUN/manifest.json                     what is run: plan, versions, seeds, hashes; fixed from the first shard on
RUN/shards/00000-explanations.parquet one row per example, method and explained class
RUN/shards/00000-values.parquet       one row per example, method and metric; written last: then the shard is complete
RUN/shards/00000-notes.json           methods that refused the model, examples that were skipped
RUN/times/00000.json                  seconds, apart from the shards because they differ from run to run
RUN/summary.json                      the table with its intervals, written at the end
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import manifest as manifests
from clearhead.data.parquet import read_parquet, read_small_parquet, to_parquet
from clearhead.errors import BadFile
from clearhead.manifest import MANIFEST, check_same
from clearhead.run_files import LOCK, lock_folder, read_json, to_json, write_durably, write_errors

FORMAT = 1
SUMMARY = "summary.json"
DATA_FOLDERS = ("shards", "times")
# Temporary files of `write_atomically`, which a killed process leaves behind: a dot, the name, and a random ending.
TEMPORARY = re.compile(r"\.(manifest\.json|summary\.json|\d{5}\.json|\d{5}-\w+\.(json|parquet))\.\w+")
# What every reader of a manifest relies on, by section.
REQUIRED = {
    "plan": ("task", "model", "methods", "metrics", "seed", "benchmark"),
    "hashes": ("task", "model"),
    "versions": (),
}
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
    # Of one file in memory; None reads files of any size.
    max_file_bytes: int | None = None

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
        write_durably(self.folder / "times" / f"{number:05d}.json", to_json(result.seconds))
        write_durably(self._shard_path(number, "notes.json"), to_json(result.notes))
        write_durably(self._shard_path(number, "explanations.parquet"), _to_table(result.explanations))
        write_durably(self._shard_path(number, "values.parquet"), _to_table(result.values))

    def values(self) -> Iterator[Row]:
        """Yield the value rows of every complete shard, in the order of the examples."""
        for path in self._shard_paths("values.parquet"):
            yield from map(_parse_record, self._read_rows(path))

    def explanations(self) -> Iterator[Row]:
        """Yield the explanations of every shard, as records with an `example` each."""
        for path in self._shard_paths("explanations.parquet"):
            yield from self._read_rows(path)

    def sources(self, shards: int) -> Iterator[Row]:
        """Yield the example and the source, with the right label, of each explanation in the first shards."""
        for number in range(shards):
            if self.has_shard(number):
                # Not the other columns, which hold every token.
                yield from self._read_rows(self._shard_path(number, "explanations.parquet"), ("example", "source"))

    def _read_rows(self, path: Path, columns: Sequence[str] | None = None) -> list[Row]:
        if self.max_file_bytes is None:
            return read_parquet(path, columns)
        return read_small_parquet(path, self.max_file_bytes, columns)

    def notes(self) -> list[Row]:
        """Return what was refused and skipped, by shard."""
        return list(map(read_json, self._shard_paths("notes.json")))

    def seconds(self) -> list[dict[str, float]]:
        """Return the seconds by step, by shard."""
        # Sorted, because the order in which a file system lists files is arbitrary.
        return list(map(read_json, sorted((self.folder / "times").glob("*.json"))))

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run, None before its end."""
        path = self.folder / SUMMARY
        if not path.exists():
            return None
        return read_json(path)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_durably(self.folder / SUMMARY, to_json(summary))

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
    with lock_folder(folder):
        # Under the lock, because another process may still be writing.
        _remove_temporary_files(folder)
        _settle_manifest(folder, manifest)
        yield RunFolder(folder)


def _make_folders(folder: Path) -> None:
    with write_errors(folder):
        for name in DATA_FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)


def _settle_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile if the folder holds shards of another run; write the manifest if it holds none."""
    if _is_begun(folder):
        check_same(folder, manifest)
    else:
        # Nothing has been computed yet, so the folder may be planned anew.
        write_durably(folder / MANIFEST, to_json(manifest))


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


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run folder; raise BadFile if this version cannot read it."""
    require_manifest(folder)
    manifest = manifests.read_manifest(folder, FORMAT)
    for section, names in REQUIRED.items():
        _check_section(folder, section, manifest.get(section), names)
    return manifest


def _check_section(folder: Path, section: str, content: Any, names: Sequence[str]) -> None:
    """Raise BadFile unless a part of the manifest has these entries, which a file edited by hand may lack."""
    if not isinstance(content, dict) or not content.keys() >= set(names):
        expected = ", ".join(names) or "packages"
        raise BadFile(f"'{folder / MANIFEST}' is damaged: its '{section}' should be an object with {expected}.")


def require_manifest(folder: Path) -> None:
    """Raise BadFile if the folder holds no run."""
    if not (folder / MANIFEST).exists():
        raise BadFile(
            f"'{folder}' is not a run folder: it has no {MANIFEST}. Make one with clearhead bench … --out {folder}."
        )
