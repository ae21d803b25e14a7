"""Texts, pairs of texts or pictures in the rows of a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, BadInput
from clearhead.registry import unknown
from clearhead.tables import read_parquet
from clearhead.task import BadRow, Example, Picture, Task, made, reader
from clearhead.tasks.lines import Numbered, Row, damaged, ending, json_lines, lines, separated

TEXTS = ("text", "sentence", "content", "review", "document", "sentence1", "premise", "question1", "question")
SECONDS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "question": "sentence"}
PICTURES = ("image", "path", "file", "file_name")
LABELS = ("label", "labels", "class", "topic", "gold_label", "sentiment", "category", "target", "is_duplicate", "breed")
IDS = ("id", "docid", "guid", "idx", "index", "name", "pairid")
LOOK = 200


@reader(lambda path: ending(path) in (".tsv", ".tab"))
def tsv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Tab-separated rows with or without a header: GLUE files, text⇥topic, label⇥premise⇥hypothesis.

    Columns are given by name or, without a header, by number from 1; two text columns, comma-separated, make a pair.
    """
    return _separated(path, "\t", text_column, label_column, limit)


@reader(lambda path: ending(path) == ".csv")
def csv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Comma-separated rows with a header."""
    return _separated(path, ",", text_column, label_column, limit)


def _three_columns(path: Path) -> bool:
    """Whether the first lines hold a short label, then two texts, between tabs."""
    cells = [line.split("\t") for line in islice(lines(path, 1 << 16), 20) if line.strip()]
    return bool(cells) and all(len(row) == 3 and len(row[0].split()) <= 2 for row in cells[:-1] or cells)


@reader(lambda path: ending(path) == ".txt" and _three_columns(path))
def pairs(path: Path, *, limit: int | None = None) -> Task:
    """Pairs of sentences as label⇥premise⇥hypothesis, one per line (MNLI, SNLI, QQP)."""
    return _separated(path, "\t", "2,3", "1", limit, header=False)


@reader(lambda path: ending(path) == ".txt")
def txt(path: Path, *, limit: int | None = None) -> Task:
    """One text per line, without labels."""
    numbered = ((number, {"text": line}) for number, line in enumerate(lines(path), 1))
    return made(path.name, [_example(number, row, ["text"], None, path) for number, row in numbered], limit=limit)


@reader(lambda path: ending(path) in (".jsonl", ".ndjson"))
def jsonl(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """One JSON object per line, plain or gzipped."""
    return table_task(path.name, json_lines(path), path, text_column, label_column, limit)


@reader(lambda path: path.suffix.casefold() == ".parquet")
def parquet(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Parquet with columns of texts, or of pictures as bytes."""
    rows: Numbered = ((number, row) for number, row in enumerate(read_parquet(path), 1))
    return table_task(path.name, rows, path, text_column, label_column, limit)


# --- rows to examples ---------------------------------------------------------------------------------------------


def table_task(
    name: str, rows: Numbered, path: Path, text_column: str | None, label_column: str | None, limit: int | None
) -> Task:
    """A task out of rows with named columns."""
    head = list(islice(rows, LOOK))
    columns = next((list(row) for _, row in head if isinstance(row, dict)), [])
    if not columns:
        return made(name, [row for _, row in head if isinstance(row, BadRow)])
    texts, label = _columns(name, columns, text_column), _label_column(name, columns, label_column)
    return made(name, list(_examples(chain(head, rows), texts, label, path)), limit=limit)


def _examples(rows: Numbered, texts: list[str], label: str | None, path: Path) -> Iterator[Example | BadRow]:
    seen: Counter[str] = Counter()
    for number, row in rows:
        found = row if isinstance(row, BadRow) else _example(number, row, texts, label, path)
        if isinstance(found, Example):
            seen[found.id] += 1
            found = found if seen[found.id] == 1 else Example(f"{found.id}#{number}", found.input, found.label)
        yield found


def _columns(name: str, columns: list[str], wanted: str | None) -> list[str]:
    """The column of texts or pictures, or the two that make a pair."""
    if wanted is not None:
        names = [wanted] if wanted in columns else [part.strip() for part in wanted.split(",")]
        for one in names:
            if one not in columns:
                raise unknown(f"column of '{name}'", one, columns)
        if len(names) > 2:
            raise BadInput("text_column names one column, or two separated by a comma for pairs of texts.")
        return names
    known = _known(columns, (*TEXTS, *PICTURES))
    if known is None:
        raise BadInput(f"Which column of '{name}' holds the texts? Name it with text_column: {', '.join(columns)}.")
    second = SECONDS.get(known.casefold())
    return [known, *(one for one in columns if one.casefold() == second)]


def _label_column(name: str, columns: list[str], wanted: str | None) -> str | None:
    if wanted is None:
        return _known(columns, LABELS)
    if wanted not in columns:
        raise unknown(f"column of '{name}'", wanted, columns)
    return wanted


def _known(columns: Sequence[str], names: Sequence[str]) -> str | None:
    found = [one for one in columns if one.casefold() in names]
    return min(found, key=lambda one: names.index(one.casefold())) if found else None


def _example(number: int, row: Row, texts: list[str], label: str | None, path: Path) -> Example | BadRow:
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
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"no text in column '{name}'")
    if damaged(value):
        raise BadInput("not UTF-8 text")
    return path.parent / value if name.casefold() in PICTURES else value


def label_value(value: Any, name: str) -> int | str:
    """Numbers are class indices, also when written as text; anything else is a label's name."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = value.strip() if isinstance(value, str) else ""
    if not text or damaged(text):
        raise BadInput(f"no label in column '{name}'")
    return int(text) if text.isdecimal() else text


# --- separated values -------------------------------------------------------------------------------------------------


def _separated(
    path: Path, delimiter: str, text: str | None, label: str | None, limit: int | None, header: bool | None = None
) -> Task:
    rows = list(separated(path, delimiter))
    if not rows:
        raise BadFile(f"'{path}' is empty: there is nothing to read.")
    columns, body = rows[0][1], rows[1:]
    if header is None:
        header = _is_header(columns, text, label)
    if not header:
        if delimiter == ",":
            raise BadInput(
                f"The first line of '{path}' names none of the usual columns. Name yours with text_column and "
                f"label_column: {', '.join(columns)}."
            )
        columns, body = [str(place + 1) for place in range(len(columns))], rows
        text, label = (text, label) if text else _guessed(path, body)
    named = ((line, _named(line, columns, cells)) for line, cells in body)
    return table_task(path.name, named, path, text, label, limit)


def _is_header(cells: list[str], text: str | None, label: str | None) -> bool:
    folded = [cell.strip().casefold() for cell in cells]
    wanted = [part.strip() for part in (text or "").split(",") if part.strip()] + ([label] if label else [])
    if any(one in cells for one in wanted):
        return True
    return any(one in (*TEXTS, *PICTURES, *LABELS) for one in folded)


def _named(line: int, columns: list[str], cells: list[str]) -> Row | BadRow:
    if len(cells) != len(columns):
        return BadRow(line, f"{len(cells)} columns instead of {len(columns)}")
    return dict(zip(columns, cells, strict=True))


def _guessed(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[str, str | None]:
    """Which columns of a file without a header are texts: the label column holds the fewest different values."""
    width = Counter(len(cells) for _, cells in rows[:LOOK]).most_common(1)[0][0]
    if width == 1:
        return "1", None
    if width > 3:
        raise BadInput(f"'{path}' has {width} columns and no header: give text_column and label_column as numbers.")
    sample = [cells for _, cells in rows[:LOOK] if len(cells) == width]
    label = min(range(width), key=lambda place: (len({cells[place] for cells in sample}), len(sample[0][place])))
    texts = [str(place + 1) for place in range(width) if place != label]
    return ",".join(texts), str(label + 1)
