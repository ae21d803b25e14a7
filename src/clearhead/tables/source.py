"""Where the rows of a table come from: files that are streamed, or objects in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from clearhead.data import objects, parquet
from clearhead.data.readers.hugging_face import is_saved_dataset
from clearhead.data.readers.tables import named_rows
from clearhead.data.table_endings import ARROW_ENDINGS, DELIMITERS, JSON_ENDINGS, TABLE_ENDINGS, file_suffix
from clearhead.data.task import BadRow
from clearhead.data.text_files import Numbered, iterate_lines, json_lines
from clearhead.errors import BadFile, BadInput
from clearhead.manifest import fingerprint, hash_files


@dataclass(frozen=True)
class TableRow:
    """A row with named columns, its number from 1 in its table, the file of the table, and what that is called."""

    number: int
    values: Mapping[str, Any]
    file: Path | None = None
    error: str | None = None
    file_name: str | None = None

    @property
    def folder(self) -> Path:
        """The folder that paths in the row are relative to."""
        if self.file is None:
            return Path()
        return self.file.parent


class Table(Protocol):
    """Rows that can be streamed from the beginning, at least once."""

    @property
    def name(self) -> str:
        """Name of the table in messages and manifests."""

    @property
    def class_names(self) -> Mapping[str, Sequence[str]]:
        """By column the names that its numbers stand for."""

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows in order."""

    def count(self) -> int | None:
        """Return the number of rows, None if it is unknown."""

    def digest(self) -> str | None:
        """Return the hash of the content, None if that would need all rows."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that are read."""


@dataclass(frozen=True)
class FileTable:
    """A file; of a .tsv file without a header the columns are numbers. `file_name` is what its rows call it."""

    path: Path
    text_column: str | None = None
    file_name: str | None = None
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.path)

    def rows(self) -> Iterator[TableRow]:
        for number, (_, row) in enumerate(self._numbered(), 1):
            if isinstance(row, BadRow):
                yield TableRow(number, {}, self.path, str(row), self.file_name)
            else:
                yield TableRow(number, row, self.path, None, self.file_name)

    @property
    def _ending(self) -> str:
        return file_suffix(self.path)

    def _numbered(self) -> Numbered:
        if self._ending in DELIMITERS:
            rows, _, _ = named_rows(self.path, DELIMITERS[self._ending], self.text_column, None)
            return rows
        if self._ending in JSON_ENDINGS:
            return json_lines(self.path)
        return enumerate(parquet.iterate_table(self.path), 1)

    def count(self) -> int:
        if self._ending == ".parquet":
            return parquet.count_parquet(self.path)
        if self._ending in ARROW_ENDINGS:
            return parquet.count_arrow(self.path)
        if self._ending in JSON_ENDINGS:
            return self._count_lines()
        return sum(1 for _ in self._numbered())

    def _count_lines(self) -> int:
        # Without parsing the objects, which would take longer than the count is worth.
        return sum(bool(line.strip()) for line in iterate_lines(self.path))

    def digest(self) -> str:
        return hash_files(self.path)

    @property
    def files(self) -> list[Path]:
        return [self.path]


@dataclass(frozen=True)
class FileTables:
    """Several files, one after the other."""

    tables: Sequence[FileTable]
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return ", ".join(table.name for table in self.tables)

    def rows(self) -> Iterator[TableRow]:
        return chain.from_iterable(table.rows() for table in self.tables)

    def count(self) -> int:
        return sum(table.count() for table in self.tables)

    def digest(self) -> str:
        digests = [table.digest() for table in self.tables]
        return fingerprint({"files": digests})

    @property
    def files(self) -> list[Path]:
        return [table.path for table in self.tables]


@dataclass(frozen=True)
class ObjectTable:
    """A data frame, a data set, a column, a list or a generator."""

    content: Any

    @property
    def name(self) -> str:
        return type(self.content).__name__

    @property
    def class_names(self) -> Mapping[str, Sequence[str]]:
        return objects.find_class_names(self.content)

    def rows(self) -> Iterator[TableRow]:
        for number, row in enumerate(objects.iterate_rows(self.content), 1):
            yield TableRow(number, row)

    def count(self) -> int | None:
        return objects.count_rows(self.content)

    def digest(self) -> None:
        # The rows of completed shards are compared one by one instead.
        return None

    @property
    def files(self) -> tuple[Path, ...]:
        return ()


def open_table(table: Any, text_column: str | None = None) -> Table:
    """Return the table at a path or a list of paths, or around an object with rows."""
    if isinstance(table, str | Path):
        return _open_files(_list_files(Path(table)), text_column)
    if _is_list_of_paths(table):
        return _open_files(_list_all_files(table), text_column)
    if not hasattr(table, "__iter__") and not objects.is_frame(table):
        raise BadInput(f"A {type(table).__name__} is not a table: give a file, a data frame, a data set or rows.")
    _refuse_entries(table)
    return ObjectTable(table)


def _refuse_entries(table: Any) -> None:
    # Its names would be explained as texts: `load_dataset` gives the splits of a data set in a dict.
    if isinstance(table, Mapping):
        name = type(table).__name__
        raise BadInput(f"A {name} is not a table: give one of its entries ({', '.join(map(str, table))}), or rows.")


def _is_list_of_paths(table: Any) -> bool:
    # Texts are inputs, so that only what is certainly a file counts.
    return isinstance(table, list | tuple) and bool(table) and all(map(_names_table, table))


def _names_table(value: Any) -> bool:
    return isinstance(value, Path) or (isinstance(value, str) and is_table_path(value))


def is_table_path(argument: str) -> bool:
    """Return whether an argument names a table that exists, by its ending; a folder counts if it holds tables."""
    path = Path(argument)
    try:
        return (path.is_file() and file_suffix(path) in TABLE_ENDINGS) or bool(_list_tables(path))
    except (OSError, ValueError):
        # A text can be too long for a path, or hold characters that no path may have.
        return False


def _list_files(path: Path) -> list[Path]:
    """Return a file, or the tables in a folder."""
    _require_path(path)
    if path.is_dir():
        return _require_tables(path)
    _require_table_ending(path)
    return [path]


def _require_path(path: Path) -> None:
    if not path.exists():
        raise BadFile(f"There is no file '{path}'. Check the name and the folder.")


def _require_table_ending(path: Path) -> None:
    if file_suffix(path) not in TABLE_ENDINGS:
        raise BadFile(f"'{path}' is no table by its ending. Supported: {', '.join(TABLE_ENDINGS)}.")


def _list_all_files(paths: Sequence[str | Path]) -> list[Path]:
    return list(chain.from_iterable(map(_list_files, map(Path, paths))))


def _require_tables(folder: Path) -> list[Path]:
    files = _list_tables(folder)
    if not files:
        raise BadFile(f"'{folder}' holds no table. Supported: {', '.join(TABLE_ENDINGS)}.")
    return files


def _list_tables(folder: Path) -> list[Path]:
    """Return the tables in a folder, such as the shards of a data set, in the order of their names."""
    if not folder.is_dir():
        return []
    # `save_to_disk` writes its rows as .arrow beside caches and descriptions.
    pattern = "data-*.arrow" if is_saved_dataset(folder) else "*"
    return sorted(filter(_is_table_file, folder.glob(pattern)))


def _is_table_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and file_suffix(path) in TABLE_ENDINGS


def _open_files(paths: Sequence[Path], text_column: str | None) -> Table:
    tables = [FileTable(path, text_column, name) for path, name in zip(paths, name_files(paths), strict=True)]
    if len(tables) == 1:
        return tables[0]
    return FileTables(tables)


def name_files(paths: Sequence[Path]) -> list[str]:
    """Return the name of each file, or its path if a file of another folder has the same name."""
    folders: dict[str, set[Path]] = {}
    for path in paths:
        folders.setdefault(path.name, set()).add(path.parent)
    return [path.name if len(folders[path.name]) == 1 else path.as_posix() for path in paths]
