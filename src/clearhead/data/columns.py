"""Find the text and label columns of a table and make examples of its rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from PIL import Image

from clearhead.data.task import BadRow, Example, Picture, Task, build_task
from clearhead.data.text_files import Numbered, Row, damaged_file
from clearhead.errors import Argument, BadInput
from clearhead.registry import unknown_name

# Column names that are recognised without being named, in order of preference.
TEXT_COLUMNS = ("text", "sentence", "content", "review", "document", "sentence1", "premise", "question1", "question")
SECOND_COLUMNS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "question": "sentence"}
IMAGE_COLUMNS = ("image", "path", "file", "file_name")
LABEL_COLUMNS = (
    "label",
    "labels",
    "class",
    "topic",
    "gold_label",
    "sentiment",
    "category",
    "target",
    "is_duplicate",
    "breed",
)
ID_COLUMNS = ("id", "docid", "guid", "idx", "index", "name", "pairid")
# Rows that are looked at to find the columns.
PREVIEW_ROWS = 200


def build_table_task(
    name: str, rows: Numbered, path: Path, text_column: str | None, label_column: str | None, limit: int | None
) -> Task:
    """Return a task from rows with named columns."""
    examples, _ = make_examples(name, rows, path, text_column, label_column)
    return build_task(name, examples, limit=limit)


def make_examples(
    name: str, rows: Numbered, path: Path, text_column: str | None, label_column: str | None
) -> tuple[list[Example | BadRow], str | None]:
    """Return the examples of rows with named columns, and the label column."""
    preview = list(islice(rows, PREVIEW_ROWS))
    columns = _find_columns(preview)
    if not columns:
        return [row for _, row in preview if isinstance(row, BadRow)], None
    texts = text_columns(name, columns, text_column)
    label = _find_label_column(name, columns, label_column)
    # `rows` is an iterator: the preview has been consumed.
    return list(_iterate_examples(chain(preview, rows), texts, label, path)), label


def make_example(number: int, row: Row, texts: list[str], label: str | None, path: Path) -> Example | BadRow:
    """Return the example of a row, or a BadRow with the reason why there is none."""
    try:
        cells = [_parse_cell(row.get(column), column, path) for column in texts]
        label_value = None
        if label is not None:
            label_value = parse_label(row.get(label), label)
    except BadInput as error:
        return BadRow(number, str(error))
    example_id = _find_id(number, row, label)
    if len(cells) == 2:
        return Example(example_id, (cells[0], cells[1]), label_value)
    return Example(example_id, cells[0], label_value)


def text_columns(name: str, columns: list[str], text_column: str | None) -> list[str]:
    """Return the column of texts or images, or the two columns of a pair; `name` is that of the table in messages."""
    if text_column is None:
        return _guess_text_columns(name, columns)
    # A column's own name may contain a comma.
    names = [text_column]
    if text_column not in columns:
        names = [column.strip() for column in text_column.split(",")]
    for column in names:
        if column not in columns:
            raise unknown_name(f"column of '{name}'", column, columns)
    if len(names) > 2:
        raise BadInput(Argument("text_column"), " names one column, or two with a comma for pairs of texts.")
    return names


def parse_label(value: Any, column: str) -> int | str:
    """Return a class index for numbers, also if written as text, else the label's name."""
    # Parquet and pandas store integers with gaps as floats.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int):
        raise BadInput(f"no label in column '{column}'")
    text = str(value).strip()
    if not text or damaged_file(text):
        raise BadInput(f"no label in column '{column}'")
    # Test sets without labels often say -1.
    if text.startswith("-") and text[1:].isdecimal():
        raise BadInput(f"invalid label {text} in column '{column}'")
    if isinstance(value, int) or text.isdecimal():
        return int(value)
    return text


def _find_columns(preview: Sequence[tuple[int, Row | BadRow]]) -> list[str]:
    for _, row in preview:
        if isinstance(row, dict):
            return list(row)
    return []


def _guess_text_columns(name: str, columns: list[str]) -> list[str]:
    first = _find_column(columns, (*TEXT_COLUMNS, *IMAGE_COLUMNS))
    if first is None:
        message = f"No text column found in '{name}'. Name it with "
        raise BadInput(message, Argument("text_column"), f": {', '.join(columns)}.")
    second = SECOND_COLUMNS.get(first.casefold())
    return [first, *(column for column in columns if column.casefold() == second)]


def _find_label_column(name: str, columns: list[str], label_column: str | None) -> str | None:
    if label_column is None:
        return _find_column(columns, LABEL_COLUMNS)
    if label_column not in columns:
        raise unknown_name(f"column of '{name}'", label_column, columns)
    return label_column


def _find_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the column whose name comes first in `names`, ignoring case."""
    matches = [column for column in columns if column.casefold() in names]
    return min(matches, key=lambda column: names.index(column.casefold()), default=None)


def _iterate_examples(rows: Numbered, texts: list[str], label: str | None, path: Path) -> Iterator[Example | BadRow]:
    """Yield the example of each row; repeated ids get the line number, so that ids are unique."""
    seen: Counter[str] = Counter()
    for number, row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        example = make_example(number, row, texts, label, path)
        if isinstance(example, Example):
            seen[example.id] += 1
            if seen[example.id] > 1:
                example = replace(example, id=f"{example.id}#{number}")
        yield example


def _find_id(number: int, row: Row, label: str | None) -> str:
    """Return the id in a row, or its number if it has none."""
    column = _find_column(list(row), ID_COLUMNS)
    # In some tables a column called "name" or "index" holds the label.
    if column is None or column == label or row[column] in (None, ""):
        return str(number)
    return str(row[column])


def _parse_cell(value: Any, column: str, path: Path) -> Any:
    """Return a text, or an image: bytes, {"bytes": …} as Hugging Face stores it, or a path relative to the table."""
    if isinstance(value, dict) and value.get("bytes"):
        value = value["bytes"]
    if isinstance(value, bytes):
        return Picture(value)
    if isinstance(value, Image.Image):
        return value
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"no text in column '{column}'")
    if damaged_file(value):
        raise BadInput("not UTF-8 text")
    if column.casefold() in IMAGE_COLUMNS:
        return path.parent / value
    return value
