"""The hidden folder beside an output file in which a table is explained shard by shard.

.OUT.run/manifest.json                  what is run: options, versions, hashes; fixed from the first shard on
.OUT.run/shards/000000-HASH.json        counts of the shard: rows, errors, wrong predictions, bytes of its records
.OUT.run/shards/000000-HASH.parquet     its records (.jsonl for other outputs); written last: then it is complete
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, ClearheadError
from clearhead.files import sync_path
from clearhead.manifest import MANIFEST, check_same
from clearhead.run_files import lock_folder, read_json, to_json, write_durably, write_errors
from clearhead.tables.counts import Counts, count_records
from clearhead.tables.records import Record
from clearhead.tables.shards import Shard
from clearhead.tables.writers import TableFormat

SHARDS = "shards"
BYTES = "bytes"


def folder_of(out: Path) -> Path:
    """Return the folder in which the table for this output file is explained."""
    return out.with_name(f".{out.name}.run")


@dataclass(frozen=True)
class TableRun:
    """The shards of a table that is being explained."""

    folder: Path
    table_format: TableFormat

    def has_shard(self, shard: Shard) -> bool:
        """Return whether a shard is complete; raise BadFile if a shard of other rows is."""
        path = self._path(shard)
        if path.exists():
            # A file of another size was damaged since, and is written again.
            return path.stat().st_size == self._read_entry(shard).get(BYTES)
        for other in self._find_numbered(shard):
            raise _changed_rows(self.folder, shard, other)
        return False

    def _find_numbered(self, shard: Shard) -> Iterator[Path]:
        """Yield the records of shards with this number, whatever their rows."""
        yield from (self.folder / SHARDS).glob(f"{shard.prefix}*{self.table_format.shard_ending}")

    def write_shard(self, shard: Shard, records: Sequence[Record]) -> Counts:
        """Write a shard and count its rows; its records come last, so that a shard with records is complete."""
        counts = count_records(records)
        content = self.table_format.encode(records)
        write_durably(self._counts_path(shard), to_json({**asdict(counts), BYTES: len(content)}))
        write_durably(self._path(shard), content)
        return counts

    def read_counts(self, shard: Shard) -> Counts:
        """Return what became of the rows of a complete shard."""
        entry = self._read_entry(shard)
        del entry[BYTES]
        return Counts(**entry)

    def _read_entry(self, shard: Shard) -> dict[str, Any]:
        return read_json(self._counts_path(shard))

    def join(self, count: int, out: Path) -> None:
        """Write the output file from all shards, atomically, and remove the folder."""
        shards = self._list_shards()
        _check_count(self.folder, len(shards), count)
        joined = self.folder / f"joined{out.suffix}"
        with write_errors(out):
            self.table_format.join(shards, joined)
            sync_path(joined)
            os.replace(joined, out)
        self._remove()

    def _remove(self) -> None:
        # Renamed first: a folder that is half removed must not be taken for a run.
        old = self.folder.with_name(f"{self.folder.name}.old")
        with write_errors(self.folder):
            os.replace(self.folder, old)
        shutil.rmtree(old, ignore_errors=True)

    def _list_shards(self) -> list[Path]:
        # Sorted, because the order in which a file system lists files is arbitrary.
        return sorted((self.folder / SHARDS).glob(f"[0-9]*{self.table_format.shard_ending}"), key=_shard_number)

    def _path(self, shard: Shard) -> Path:
        return self.folder / SHARDS / f"{shard.stem}{self.table_format.shard_ending}"

    def _counts_path(self, shard: Shard) -> Path:
        return self.folder / SHARDS / f"{shard.stem}.json"


def _shard_number(path: Path) -> int:
    # As a number: the names of more than a million shards are of different lengths.
    return int(path.name.partition("-")[0])


def _check_count(folder: Path, existing: int, expected: int) -> None:
    if existing != expected:
        raise BadFile(
            f"'{folder}' holds {existing} shards of a table that has {expected}: the table has changed. Delete the "
            "folder to begin anew."
        )


def _changed_rows(folder: Path, shard: Shard, other: Path) -> BadFile:
    first, last = shard.rows[0].number, shard.rows[-1].number
    return BadFile(
        f"'{folder}' holds explanations of other rows ('{other.name}'): rows {first} to {last} of the table have "
        "changed. Choose another --out, or delete the folder to begin anew."
    )


@contextmanager
def open_run(out: Path, manifest: Mapping[str, Any], table_format: TableFormat) -> Iterator[TableRun]:
    """Open the run of an output file, new or begun, locked against other processes."""
    folder = folder_of(out)
    # What a process that was killed at the very end had not removed yet.
    shutil.rmtree(folder.with_name(f"{folder.name}.old"), ignore_errors=True)
    with write_errors(folder):
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        _settle_manifest(folder, manifest)
        _remove_temporary_files(folder)
        with _remove_if_nothing_is_kept(folder):
            yield TableRun(folder, table_format)


@contextmanager
def _remove_if_nothing_is_kept(folder: Path) -> Iterator[None]:
    """Remove the folder of a run that is refused before its first shard is complete."""
    try:
        yield
    except ClearheadError:
        if not has_shards(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _settle_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadFile if the folder holds shards of another run; write the manifest if it holds none."""
    if (folder / MANIFEST).exists() and has_shards(folder):
        check_same(folder, manifest)
        return
    # Shards without a manifest cannot be told to be those of this run.
    shutil.rmtree(folder / SHARDS)
    (folder / SHARDS).mkdir()
    write_durably(folder / MANIFEST, to_json(manifest))


def has_shards(folder: Path) -> bool:
    """Return whether a run has completed anything."""
    return any((folder / SHARDS).glob("[0-9]*"))


def _remove_temporary_files(folder: Path) -> None:
    """Delete what killed processes were writing."""
    for path in folder.rglob(".*"):
        path.unlink(missing_ok=True)


def count_kept(out: Path) -> int | None:
    """Return how many rows of an unfinished run are kept; None without one."""
    folder = folder_of(out)
    if not folder.is_dir():
        return None
    return sum(int(shard["rows"]) for shard in _read_complete(folder))


def _read_complete(folder: Path) -> list[Any]:
    """Return the counts of the complete shards."""
    return [read_json(path) for path in (folder / SHARDS).glob("[0-9]*.json") if _is_complete(path)]


def _is_complete(counts: Path) -> bool:
    """Return whether the shard of these counts has records, which are written last."""
    return any(counts.with_suffix(ending).exists() for ending in (".parquet", ".jsonl"))
