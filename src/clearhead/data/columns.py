"""Find the text and label columns of a table and make examples of its rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from PIL import Image

from clearhead.data.task import BadRow, Example, Picture, Task, build_task, list_bad_rows, skip_invalid
from clearhead.data.text_files import NOT_UTF_8, Numbered, Row, damaged_file, is_text
from clearhead.errors import Argument, BadInput
from clearhead.registry import unknown_name

# Column names that are recognised without being named, in order of preference.
TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "review",
    "document",
    "sentence1",
    "premise",
    "question1",
    "question",
    "prompt",
)
SECOND_COLUMNS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "question": "sentence"}
IMAGE_COLUMNS = ("image", "path", "file", "file_name")
INPUT_COLUMNS = (*TEXT_COLUMNS, *IMAGE_COLUMNS)
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
    # The first rows may be damaged, so that a column is looked for in more than one.
    preview = list(islice(rows, PREVIEW_ROWS))
    columns = list_columns(row for _, row in preview)
    if not columns:
        return list(list_bad_rows(row for _, row in preview)), None
    texts = text_columns(name, columns, text_column)
    label = find_label_column(name, columns, label_column)
    # `rows` is an iterator: the preview has been consumed.
    return list(_iterate_examples(chain(preview, rows), texts, label, path)), label


@skip_invalid
def make_example(number: int, row: Row, texts: list[str], label: str | None, path: Path) -> Example:
    """Return the example of a row, or a BadRow with the reason why there is none."""
    return Example(find_id(number, row, label), _parse_input(row, texts, path), _parse_row_label(row, label))


def _parse_input(row: Row, texts: list[str], path: Path) -> Any:
    cells = [parse_cell(row.get(column), column, path) for column in texts]
    return join_cells(cells)


def join_cells(cells: list[Any]) -> Any:
    """Return one text or image as it is, two texts as a pair."""
    if len(cells) == 1:
        return cells[0]
    return tuple(cells)


def _parse_row_label(row: Row, label: str | None) -> int | str | None:
    if label is None:
        return None
    return parse_label(row.get(label), label)


def text_columns(name: str, columns: list[str], text_column: str | None) -> list[str]:
    """Return the column of texts or images, or the two columns of a pair; `name` is that of the table in messages."""
    if text_column is None:
        return _guess_text_columns(name, columns)
    names = _split_names(text_column, columns)
    for column in names:
        require_column(name, column, columns)
    _require_at_most_two(names)
    return names


def choose_input_columns(name: str, columns: list[str], chosen: str | None, *, images: bool) -> list[str]:
    """Return the columns as `text_columns` does, for a model of images that of images rather than of texts."""
    # The only column needs no known name.
    if chosen is None and len(columns) == 1:
        chosen = columns[0]
    if chosen is None and images:
        chosen = find_column(columns, IMAGE_COLUMNS)
    return text_columns(name, columns, chosen)


def _require_at_most_two(names: list[str]) -> None:
    if len(names) > 2:
        raise BadInput(Argument("text_column"), " names one column, or two with a comma for pairs of texts.")


def _split_names(text_column: str, columns: list[str]) -> list[str]:
    # A column's own name may contain a comma.
    if text_column in columns:
        return [text_column]
    return [column.strip() for column in text_column.split(",")]


def require_column(name: str, column: str, columns: list[str]) -> None:
    """Raise UnknownName unless the table called `name` has a column."""
    if column not in columns:
        raise unknown_name(f"column of '{name}'", column, columns)


def parse_label(value: Any, column: str) -> int | str:
    """Return a class index for numbers, also if written as text, such as 1 or 1.0, else the label's name."""
    text = _label_text(value)
    _validate_label(text, column)
    return _as_index(text)


def _as_index(label: str) -> int | str:
    """Return a class index if the label is a number."""
    # pandas writes the integers of a column with gaps as 1.0.
    digits = label.removesuffix(".0")
    if digits.isdecimal():
        return int(digits)
    return label


def _label_text(value: Any) -> str:
    """Return a label as it would be written; empty if the value is no label."""
    # Tables store the same class as 1, 1.0 or "1": all of them are read from one form.
    if _is_whole_number(value):
        return str(int(value))
    if isinstance(value, str) and not damaged_file(value):
        return value.strip()
    return ""


def _is_whole_number(value: Any) -> bool:
    # Parquet and pandas store integers with gaps as floats.
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _validate_label(text: str, column: str) -> None:
    if not text:
        raise BadInput(f"no label in column '{column}'")
    _refuse_negative(text, column)


def _refuse_negative(text: str, column: str) -> None:
    if _is_negative(text):
        raise BadInput(f"invalid label {text} in column '{column}'")


def _is_negative(text: str) -> bool:
    # Test sets without labels often say -1.
    return text.startswith("-") and text[1:].removesuffix(".0").isdecimal()


def list_columns(rows: Iterable[Row | BadRow]) -> list[str]:
    """Return the columns of the first rows that can be read, in the order in which they come."""
    readable = (row for row in rows if isinstance(row, dict))
    # JSON lines may leave out columns: the first row need not have all.
    return list(dict.fromkeys(chain.from_iterable(islice(readable, PREVIEW_ROWS))))


def _guess_text_columns(name: str, columns: list[str]) -> list[str]:
    first = find_column(columns, INPUT_COLUMNS)
    if first is None:
        raise _no_text_column(name, columns)
    return [first, *_second_columns(first, columns)]


def _second_columns(first: str, columns: list[str]) -> list[str]:
    """Return the column of the second text of a pair in a list; an empty list if the texts are no pairs."""
    second = SECOND_COLUMNS.get(first.casefold())
    return [column for column in columns if column.casefold() == second]


def _no_text_column(name: str, columns: list[str]) -> BadInput:
    message = f"No text column found in '{name}'. Name it with "
    return BadInput(message, Argument("text_column"), f": {', '.join(columns)}.")


def find_label_column(name: str, columns: list[str], label_column: str | None) -> str | None:
    """Return the column of labels, by its usual name unless it is given; None without one."""
    if label_column is None:
        return find_column(columns, LABEL_COLUMNS)
    require_column(name, label_column, columns)
    return label_column


def find_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the column whose name comes first in `names`, ignoring case."""
    matches = [column for column in columns if column.casefold() in names]
    return min(matches, key=lambda column: names.index(column.casefold()), default=None)


def _iterate_examples(rows: Numbered, texts: list[str], label: str | None, path: Path) -> Iterator[Example | BadRow]:
    """Yield the example of each row; repeated ids get the line number, so that ids are unique."""
    seen: Counter[str] = Counter()
    for number, row in rows:
        if isinstance(row, BadRow):
            yield row
        else:
            yield rename_repeated(make_example(number, row, texts, label, path), number, seen)


def rename_repeated(example: Example | BadRow, number: int, seen: Counter[str]) -> Example | BadRow:
    """Return an example under an id of its own; `seen` counts the ids so far."""
    if isinstance(example, BadRow):
        return example
    # Results are stored by id: the second of two equal ones would replace the first.
    seen[example.id] += 1
    if seen[example.id] == 1:
        return example
    return replace(example, id=f"{example.id}#{number}")


def find_id(number: int, row: Row, label: str | None) -> str:
    """Return the id in a row, or its number if it has none."""
    column = find_column(list(row), ID_COLUMNS)
    # In some tables a column called "name" or "index" holds the label.
    if column is None or column == label:
        return str(number)
    return _format_id(row[column], number)


def _format_id(value: Any, number: int) -> str:
    if value in (None, ""):
        return str(number)
    return str(value)


def parse_cell(value: Any, column: str, path: Path) -> Any:
    """Return a text, or an image: bytes, {"bytes": …} as Hugging Face stores it, or a path relative to the table."""
    content = _unwrap_bytes(value)
    if isinstance(content, bytes):
        return Picture(content)
    if isinstance(content, Image.Image):
        return content
    return _parse_text_cell(content, column, path)


def _unwrap_bytes(value: Any) -> Any:
    # The feature Image of the package `datasets` is a dict; its "bytes" are empty if only a path is stored.
    if isinstance(value, dict):
        return value.get("bytes") or value.get("path") or value
    return value


def open_picture_cell(value: Any, path: Path) -> Any:
    """Return the picture that a cell holds, or its path; `path` is that of the table."""
    # By the usual name of such a column, whatever its own: then texts are paths relative to the table.
    cell = parse_cell(value, IMAGE_COLUMNS[0], path)
    if isinstance(cell, Picture):
        return cell.opened()
    return cell


def _parse_text_cell(value: Any, column: str, path: Path) -> Any:
    _validate_text(value, column)
    if column.casefold() in IMAGE_COLUMNS:
        return path.parent / value
    return value


def _validate_text(value: Any, column: str) -> None:
    if not is_text(value):
        raise BadInput(f"no text in column '{column}'")
    if damaged_file(value):
        raise BadInput(NOT_UTF_8)
