"""Read and write Parquet; the only module that imports pyarrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, BadOption, first_line


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    arrow = _import_arrow()
    try:
        rows: list[dict[str, Any]] = arrow.parquet.read_table(path).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise BadFile(f"'{path}' cannot be read as Parquet: {first_line(error)}") from error
    return rows


def read_column_names(path: Path) -> list[str]:
    """Return the columns of a Parquet file without reading its rows; none if it is damaged."""
    arrow = _import_arrow()
    try:
        return list(arrow.parquet.read_schema(path).names)
    # The error is raised when the rows are read.
    except (OSError, arrow.ArrowException):
        return []


def to_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return rows of plain data as the content of a Parquet file."""
    arrow = _import_arrow()
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def _import_arrow() -> Any:
    # An optional dependency, imported when it is first needed.
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadOption("Parquet needs pyarrow: pip install 'clearhead[tables]', or use .csv or .jsonl.") from error
    return pyarrow
