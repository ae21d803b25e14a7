"""Rows with named columns, made into examples: texts, pairs of texts or pictures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from PIL import Image

from clearhead.data.task import BadRow, Example, Picture, Task, build_task
from clearhead.data.text_files import Numbered, Row, damaged_file
from clearhead.errors import Argument, BadInput
from clearhead.registry import unknown_name

TEXTS = ("text", "sentence", "content", "review", "document", "sentence1", "premise", "question1", "question")
SECONDS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "question": "sentence"}
PICTURES = ("image", "path", "file", "file_name")
LABELS = ("label", "labels", "class", "topic", "gold_label", "sentiment", "category", "target", "is_duplicate", "breed")
IDS = ("id", "docid", "guid", "idx", "index", "name", "pairid")
LOOK = 200


def table_task(
    name: str, rows: Numbered, path: Path, text_column: str | None, label_column: str | None, limit: int | None
) -> Task:
    """A task out of rows with named columns."""
    examples, _ = table_examples(name, rows, path, text_column, label_column)
    return build_task(name, examples, limit=limit)


def table_examples(
    name: str, rows: Numbered, path: Path, text_column: str | None, label_column: str | None
) -> tuple[list[Example | BadRow], str | None]:
    """The examples of rows with named columns, and which column holds the labels."""
    head = list(islice(rows, LOOK))
    columns = next((list(row) for _, row in head if isinstance(row, dict)), [])
    if not columns:
        return [row for _, row in head if isinstance(row, BadRow)], None
    texts, label = text_columns(name, columns, text_column), _label_column(name, columns, label_column)
    return list(_examples(chain(head, rows), texts, label, path)), label


def _examples(rows: Numbered, texts: list[str], label: str | None, path: Path) -> Iterator[Example | BadRow]:
    seen: Counter[str] = Counter()
    for number, row in rows:
        found = row if isinstance(row, BadRow) else example_of(number, row, texts, label, path)
        if isinstance(found, Example):
            seen[found.id] += 1
            found = found if seen[found.id] == 1 else Example(f"{found.id}#{number}", found.input, found.label)
        yield found


def text_columns(name: str, columns: list[str], wanted: str | None) -> list[str]:
    """The column of texts or pictures, or the two that make a pair."""
    if wanted is not None:
        names = [wanted] if wanted in columns else [part.strip() for part in wanted.split(",")]
        for one in names:
            if one not in columns:
                raise unknown_name(f"column of '{name}'", one, columns)
        if len(names) > 2:
            raise BadInput(Argument("text_column"), " names one column, or two with a comma for pairs of texts.")
        return names
    known = _known(columns, (*TEXTS, *PICTURES))
    if known is None:
        asked = f"Which column of '{name}' holds the texts? Name it with "
        raise BadInput(asked, Argument("text_column"), f": {', '.join(columns)}.")
    second = SECONDS.get(known.casefold())
    return [known, *(one for one in columns if one.casefold() == second)]


def _label_column(name: str, columns: list[str], wanted: str | None) -> str | None:
    if wanted is None:
        return _known(columns, LABELS)
    if wanted not in columns:
        raise unknown_name(f"column of '{name}'", wanted, columns)
    return wanted


def _known(columns: Sequence[str], names: Sequence[str]) -> str | None:
    found = [one for one in columns if one.casefold() in names]
    return min(found, key=lambda one: names.index(one.casefold())) if found else None


def example_of(number: int, row: Row, texts: list[str], label: str | None, path: Path) -> Example | BadRow:
    try:
        cells = [_cell(row.get(name), name, path) for name in texts]
        given = None if label is None else label_value(row.get(label), label)
    except BadInput as error:
        return BadRow(number, str(error))
    own = _known(list(row), IDS)
    identity = str(row[own]) if own is not None and own != label and row[own] not in (None, "") else str(number)
    return Example(identity, cells[0] if len(cells) == 1 else (cells[0], cells[1]), given)


def _cell(value: Any, name: str, path: Path) -> Any:
    """A text, or a picture given as bytes, as Hugging Face stores it, or by its path."""
    if isinstance(value, dict) and value.get("bytes"):
        value = value["bytes"]
    if isinstance(value, bytes):
        return Picture(value)
    if isinstance(value, Image.Image):
        return value
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"no text in column '{name}'")
    if damaged_file(value):
        raise BadInput("not UTF-8 text")
    return path.parent / value if name.casefold() in PICTURES else value


def label_value(value: Any, name: str) -> int | str:
    """Numbers are class indices, also when written as text; anything else is a label's name."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip() if isinstance(value, str | int) else ""
    if not text or damaged_file(text):
        raise BadInput(f"no label in column '{name}'")
    if text.startswith("-") and text[1:].isdecimal():
        raise BadInput(f"label {text} in column '{name}' is no class")
    return int(value) if isinstance(value, int) or text.isdecimal() else text
