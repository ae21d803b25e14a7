"""Read and write Parquet and Arrow; the only module that imports pyarrow."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.data.table_endings import ARROW_ENDINGS, file_suffix
from clearhead.errors import BadFile, BadOption, first_line

# Rows that are converted to Python objects together.
ROWS_AT_ONCE = 1024


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file, with those of the named columns that it has."""
    with read_errors(path, "Parquet"), import_arrow().parquet.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read(columns).to_pylist()
    return rows


def read_small_parquet(path: Path, max_bytes: int, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows as `read_parquet`; raise BadFile if they take more memory, however small the file is."""
    rows: list[dict[str, Any]] = []
    size = 0
    with read_errors(path, "Parquet"), import_arrow().parquet.ParquetFile(path) as file:
        _check_unpacked(path, _count_unpacked(file.metadata), max_bytes)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            size += batch.nbytes
            _check_unpacked(path, size, max_bytes)
            rows += batch.to_pylist()
    return rows


def _count_unpacked(metadata: Any) -> int:
    """Return the bytes of all row groups before compression, as the footer tells them."""
    return sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))


def _check_unpacked(path: Path, size: int, max_bytes: int) -> None:
    # Repeated values are stored once, so that the size that the footer tells may still be far too small.
    if size > max_bytes:
        raise BadFile(f"'{path}' holds more than {max_bytes // 1_000_000} MB of rows, which is not read here.")


def iterate_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or Arrow file."""
    if file_suffix(path) in ARROW_ENDINGS:
        return iterate_arrow(path)
    return iterate_parquet(path)


def iterate_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, a few at a time, so that a file of any size takes little memory."""
    with read_errors(path, "Parquet"), import_arrow().parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            yield from batch.to_pylist()


def iterate_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow file or stream (IPC, Feather), a batch at a time."""
    with read_errors(path, "Arrow"), import_arrow().memory_map(str(path)) as file:
        for batch in _open_arrow(file):
            yield from batch_rows(batch)


def batch_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow batch, whose size is not ours to choose, a few at a time."""
    for start in range(0, batch.num_rows, ROWS_AT_ONCE):
        yield from batch.slice(start, ROWS_AT_ONCE).to_pylist()


def _open_arrow(file: Any) -> Iterator[Any]:
    arrow = import_arrow()
    try:
        reader = arrow.ipc.open_file(file)
    except arrow.ArrowInvalid:
        # Not a file with a table of contents: `datasets` writes streams.
        file.seek(0)
        yield from arrow.ipc.open_stream(file)
        return
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def count_parquet(path: Path) -> int:
    """Return the number of rows of a Parquet file, from its footer."""
    with read_errors(path, "Parquet"):
        return int(import_arrow().parquet.read_metadata(path).num_rows)


def count_arrow(path: Path) -> int:
    """Return the number of rows of an Arrow file or stream, without converting them."""
    with read_errors(path, "Arrow"), import_arrow().memory_map(str(path)) as file:
        return sum(batch.num_rows for batch in _open_arrow(file))


@contextmanager
def read_errors(path: Path, name: str) -> Iterator[None]:
    """Re-raise errors of pyarrow as BadFile."""
    arrow = import_arrow()
    try:
        yield
    except (OSError, arrow.ArrowException) as error:
        raise BadFile(f"'{path}' cannot be read as {name}: {first_line(error)}") from error


def read_column_names(path: Path) -> list[str]:
    """Return the columns of a Parquet file without reading its rows; none if it is damaged."""
    arrow = import_arrow()
    try:
        return list(arrow.parquet.read_schema(path).names)
    # The error is raised when the rows are read.
    except (OSError, arrow.ArrowException):
        return []


def to_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return rows of plain data as the content of a Parquet file."""
    arrow = import_arrow()
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def import_arrow() -> Any:
    """Import pyarrow, or raise BadOption that says how to install it."""
    # An optional dependency, imported when it is first needed.
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise BadOption("Parquet needs pyarrow: pip install 'clearhead[tables]', or use .csv or .jsonl.") from error
    return pyarrow
