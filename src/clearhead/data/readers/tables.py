"""Read texts, pairs of texts or images from the rows of a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from textwrap import shorten

from clearhead.data.columns import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    PREVIEW_ROWS,
    TEXT_COLUMNS,
    build_table_task,
    make_example,
)
from clearhead.data.parquet import read_parquet
from clearhead.data.task import BadRow, Task, build_task, reader
from clearhead.data.text_files import Numbered, Row, file_suffix, json_lines, read_lines, read_separated
from clearhead.errors import Argument, BadFile, BadInput

# What is read to recognise a file of pairs.
PREVIEW_BYTES = 2**16
PREVIEW_LINES = 20
NumberedCells = list[tuple[int, list[str] | BadRow]]


@reader(lambda path: file_suffix(path) in (".tsv", ".tab"))
def tsv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Tab-separated rows with or without a header: GLUE files, text⇥topic, label⇥premise⇥hypothesis.

    Columns are given by name or, without a header, by number from 1; two text columns, comma-separated, make a pair.
    """
    rows, text, label = named_rows(path, "\t", text_column, label_column)
    return build_table_task(path.name, rows, path, text, label, limit)


@reader(lambda path: file_suffix(path) == ".csv")
def csv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Comma-separated rows with a header."""
    rows, text, label = named_rows(path, ",", text_column, label_column)
    return build_table_task(path.name, rows, path, text, label, limit)


def _is_pairs_file(path: Path) -> bool:
    """Return whether the first lines hold a short label, then two texts, between tabs."""
    if file_suffix(path) != ".txt":
        return False
    lines = islice(read_lines(path, PREVIEW_BYTES), PREVIEW_LINES)
    rows = [line.split("\t") for line in lines if line.strip()]
    # The last row may have been cut off by the limit.
    complete = rows[:-1] or rows
    return bool(rows) and all(len(cells) == 3 and len(cells[0].split()) <= 2 for cells in complete)


@reader(_is_pairs_file)
def pairs(path: Path, *, limit: int | None = None) -> Task:
    """Pairs of sentences as label⇥premise⇥hypothesis, one per line (MNLI, SNLI, QQP)."""
    rows, text, label = named_rows(path, "\t", "2,3", "1", header=False)
    return build_table_task(path.name, rows, path, text, label, limit)


@reader(lambda path: file_suffix(path) == ".txt")
def txt(path: Path, *, limit: int | None = None) -> Task:
    """One text per line, without labels."""
    lines = enumerate(read_lines(path), 1)
    rows = [make_example(number, {"text": line}, ["text"], None, path) for number, line in lines]
    return build_task(path.name, rows, limit=limit)


@reader(lambda path: file_suffix(path) in (".jsonl", ".ndjson"))
def jsonl(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """One JSON object per line, plain or gzipped."""
    return build_table_task(path.name, json_lines(path), path, text_column, label_column, limit)


@reader(lambda path: path.suffix.casefold() == ".parquet")
def parquet(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Parquet with columns of texts, or of pictures as bytes."""
    rows: Numbered = enumerate(read_parquet(path), 1)
    return build_table_task(path.name, rows, path, text_column, label_column, limit)


def named_rows(
    path: Path, delimiter: str, text: str | None, label: str | None, header: bool | None = None
) -> tuple[Numbered, str | None, str | None]:
    """Return rows as dicts, by the header's names or by number from 1, and the text and label columns.

    The columns are `text` and `label` if given; without a header they are guessed. `header=None` detects a header.
    """
    rows = list(read_separated(path, delimiter))
    first = _find_first_row(path, rows)
    if delimiter == ",":
        _validate_delimiter(path, first)
    if header is None:
        header = delimiter == "," or _is_header(first, text, label)
    if header:
        columns = first
        # Compared by identity: a later row may repeat the header's text.
        rows = [(line, cells) for line, cells in rows if cells is not first]
    else:
        columns = [str(number) for number in range(1, len(first) + 1)]
    _validate_columns(path, columns)
    if not header and not text:
        text, label = _guess_columns(path, rows[:PREVIEW_ROWS])
    return _name_rows(columns, rows), text, label


def _find_first_row(path: Path, rows: NumberedCells) -> list[str]:
    for _, cells in rows:
        if isinstance(cells, list):
            return cells
    raise BadFile(f"'{path}' has no rows: there is nothing to read.")


def _validate_delimiter(path: Path, first: list[str]) -> None:
    """Raise BadFile on a .csv file of a spreadsheet program that separates with semicolons or tabs."""
    if len(first) > 1:
        return
    for delimiter, name in ((";", "semicolons"), ("\t", "tabs")):
        if delimiter in first[0]:
            raise BadFile(
                f"'{path}' is separated by {name}, not commas: its first row is '{shorten(first[0], 60)}'. Save it "
                "with commas, or with tabs as .tsv."
            )


def _validate_columns(path: Path, columns: list[str]) -> None:
    """Raise BadFile if two columns have the same name; columns without a name are never asked for."""
    for name, count in Counter(columns).items():
        if name.strip() and count > 1:
            raise BadFile(f"'{path}' has {count} columns called '{name}': give each a name of its own.")


def _is_header(cells: list[str], text: str | None, label: str | None) -> bool:
    """Return whether columns were given by name, or the first row holds a usual column name."""
    columns = [column.strip() for column in (text or "").split(",")]
    columns.append(label or "")
    if any(column and not column.isdecimal() for column in columns):
        return True
    usual_names = (*TEXT_COLUMNS, *IMAGE_COLUMNS, *LABEL_COLUMNS)
    return any(cell.strip().casefold() in usual_names for cell in cells)


def _name_rows(columns: list[str], rows: NumberedCells) -> Iterator[tuple[int, Row | BadRow]]:
    for line, cells in rows:
        if isinstance(cells, BadRow):
            yield line, cells
        elif len(cells) != len(columns):
            yield line, BadRow(line, f"{len(cells)} columns instead of {len(columns)}")
        else:
            yield line, dict(zip(columns, cells, strict=True))


def _guess_columns(path: Path, rows: NumberedCells) -> tuple[str, str | None]:
    """Return the text and label columns of a file without a header, by number from 1."""
    table = [cells for _, cells in rows if isinstance(cells, list)]
    # The most common width: a single row may be damaged.
    width = Counter(map(len, table)).most_common(1)[0][0]
    if width == 1:
        return "1", None
    if width > 3:
        message = f"'{path}' has {width} columns and no header: name them by number, for example "
        raise BadInput(message, Argument("text_column", 2), ".")
    label = _guess_label_column([cells for cells in table if len(cells) == width])
    texts = [str(column + 1) for column in range(width) if column != label]
    return ",".join(texts), str(label + 1)


def _guess_label_column(table: Sequence[list[str]]) -> int:
    """Return the index of the column with the fewest distinct values; the shorter first value decides ties."""

    def rank(column: int) -> tuple[int, int]:
        distinct = {cells[column] for cells in table}
        return len(distinct), len(table[0][column])

    return min(range(len(table[0])), key=rank)
