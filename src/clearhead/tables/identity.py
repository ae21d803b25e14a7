"""Where an input comes from: file, row, id, gold label and the other columns of its table."""

from typing import Any

from clearhead.tables.columns import ClassReader, TableColumns
from clearhead.tables.source import TableRow


def describe_source(row: TableRow, columns: TableColumns, classes: ClassReader) -> dict[str, Any]:
    """Return the `source` of the explanation of a row."""
    source: dict[str, Any] = {
        "file": _name_file(row),
        "row": row.number,
        "id": columns.find_id(row),
        "columns": columns.select_passed(row),
    }
    if columns.label is not None and classes.has_gold:
        source.update(_describe_gold(row, columns.label, classes))
    return source


def _describe_gold(row: TableRow, column: str, classes: ClassReader) -> dict[str, Any]:
    gold, is_class = classes.read_gold(row, column)
    if gold is None or is_class:
        return {"gold": gold}
    # Such a label cannot be compared with a prediction.
    return {"gold": gold, "gold_is_class": False}


def _name_file(row: TableRow) -> str | None:
    if row.file is None:
        return None
    return row.file_name or row.file.name
