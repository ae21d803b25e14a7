"""Parquet, the only place that imports pyarrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, BadOption


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadOption("Parquet needs pyarrow: pip install 'clearhead[tables]', or use .csv or .jsonl.") from error
    return pyarrow


def read_parquet(path: Path) -> list[dict[str, Any]]:
    arrow = _arrow()
    try:
        rows: list[dict[str, Any]] = arrow.parquet.read_table(path).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise BadFile(f"'{path}' cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    return rows


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file, without reading it; none where it is damaged."""
    arrow = _arrow()
    try:
        return list(arrow.parquet.read_schema(path).names)
    except (OSError, arrow.ArrowException):
        return []


def to_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Rows of plain data as the content of a Parquet file."""
    arrow = _arrow()
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())
