"""Read texts, pairs of texts or images from the rows of a table."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from textwrap import shorten

from clearhead.data.columns import (
    INPUT_COLUMNS,
    LABEL_COLUMNS,
    PREVIEW_ROWS,
    build_table_task,
)
from clearhead.data.parquet import iterate_table
from clearhead.data.table_endings import ARROW_ENDINGS, file_suffix
from clearhead.data.task import BadRow, Task, reader
from clearhead.data.text_files import Numbered, Row, json_lines, read_lines, read_separated
from clearhead.environment import csv_delimiter
from clearhead.errors import Argument, BadFile, BadInput

# What is read to recognise a file of pairs.
PREVIEW_BYTES = 2**16
PREVIEW_LINES = 20
# What spreadsheet programs of some languages write into .csv files.
WRONG_DELIMITERS = {";": "semicolons", "\t": "tabs"}
NumberedCell = tuple[int, list[str] | BadRow]
NumberedCells = list[NumberedCell]


@reader(lambda path: file_suffix(path) in (".tsv", ".tab"))
def tsv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Tab-separated rows with or without a header: GLUE files, text⇥topic, label⇥premise⇥hypothesis.

    Columns are given by name or, without a header, by number from 1; two text columns, comma-separated, make a pair.
    """
    return _read_separated_task(path, "\t", text_column, label_column, limit)


@reader(lambda path: file_suffix(path) == ".csv")
def csv(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Comma-separated rows with a header."""
    return _read_separated_task(path, ",", text_column, label_column, limit)


def _read_separated_task(
    path: Path, delimiter: str, text_column: str | None, label_column: str | None, limit: int | None
) -> Task:
    rows, text, label = named_rows(path, delimiter, text_column, label_column)
    return build_table_task(path.name, rows, path, text, label, limit)


def _is_pairs_file(path: Path) -> bool:
    """Return whether the first lines hold a short label, then two texts, between tabs."""
    if file_suffix(path) != ".txt":
        return False
    rows = _preview_rows(path)
    # The last row may have been cut off by the limit.
    complete = rows[:-1] or rows
    return bool(rows) and all(map(_is_labelled_pair, complete))


def _preview_rows(path: Path) -> list[list[str]]:
    lines = islice(read_lines(path, PREVIEW_BYTES), PREVIEW_LINES)
    return [line.split("\t") for line in lines if line.strip()]


def _is_labelled_pair(cells: list[str]) -> bool:
    # A label has at most two words, such as "not duplicate".
    return len(cells) == 3 and len(cells[0].split()) <= 2


@reader(_is_pairs_file)
def pairs(path: Path, *, limit: int | None = None) -> Task:
    """Pairs of sentences as label⇥premise⇥hypothesis, one per line (MNLI, SNLI, QQP)."""
    rows, text, label = named_rows(path, "\t", "2,3", "1", header=False)
    return build_table_task(path.name, rows, path, text, label, limit)


@reader(lambda path: file_suffix(path) == ".txt")
def txt(path: Path, *, limit: int | None = None) -> Task:
    """One text per line, without labels."""
    return build_table_task(path.name, _number_lines(path), path, "text", None, limit)


def _number_lines(path: Path) -> Numbered:
    for number, line in enumerate(read_lines(path), 1):
        yield number, {"text": line}


@reader(lambda path: file_suffix(path) in (".jsonl", ".ndjson"))
def jsonl(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """One JSON object per line, plain or gzipped."""
    return build_table_task(path.name, json_lines(path), path, text_column, label_column, limit)


@reader(lambda path: path.suffix.casefold() in (".parquet", *ARROW_ENDINGS))
def parquet(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, limit: int | None = None
) -> Task:
    """Parquet or Arrow (IPC, Feather) with columns of texts, or of pictures as bytes."""
    rows: Numbered = enumerate(iterate_table(path), 1)
    return build_table_task(path.name, rows, path, text_column, label_column, limit)


def named_rows(
    path: Path, delimiter: str, text: str | None, label: str | None, header: bool | None = None
) -> tuple[Numbered, str | None, str | None]:
    """Return rows as dicts, by the header's names or by number from 1, and the text and label columns.

    The columns are `text` and `label` if given; without a header they are guessed. `header=None` detects a header.
    """
    is_csv = delimiter == ","
    if is_csv:
        delimiter = csv_delimiter() or delimiter
    rows = read_separated(path, delimiter)
    # The rest is streamed: a table may be larger than the memory.
    preview = list(islice(rows, PREVIEW_ROWS))
    first = _find_first_row(path, preview)
    if is_csv:
        _validate_delimiter(path, first)
    # CSV files have a header by convention; TSV files of GLUE and others often have none.
    if header is None:
        header = is_csv or _is_header(first, text, label)
    columns = _name_columns(first, header)
    _validate_columns(path, columns)
    if header:
        preview = _drop_row(preview, first)
    elif not text:
        text, label = _guess_columns(path, preview)
    return _name_rows(columns, chain(preview, rows)), text, label


def _name_columns(first: list[str], header: bool) -> list[str]:
    if header:
        return first
    return [str(number) for number in range(1, len(first) + 1)]


def _drop_row(rows: NumberedCells, dropped: list[str]) -> NumberedCells:
    # Compared by identity: a later row may repeat the header's text.
    return [(line, cells) for line, cells in rows if cells is not dropped]


def _find_first_row(path: Path, rows: NumberedCells) -> list[str]:
    for _, cells in rows:
        if isinstance(cells, list):
            return cells
    raise BadFile(f"'{path}' has no rows: there is nothing to read.")


def _validate_delimiter(path: Path, first: list[str]) -> None:
    """Raise BadFile on a .csv file of a spreadsheet program that separates with semicolons or tabs."""
    if len(first) > 1:
        return
    for delimiter, name in WRONG_DELIMITERS.items():
        if delimiter in first[0]:
            raise _wrong_delimiter(path, name, delimiter, first[0])


def _wrong_delimiter(path: Path, name: str, delimiter: str, row: str) -> BadFile:
    written = "tab" if delimiter == "\t" else f"'{delimiter}'"
    return BadFile(
        f"'{path}' is separated by {name}, not commas: its first row is '{shorten(row, 60)}'. Use --delimiter "
        f"{written}, or save it with commas, or with tabs as .tsv."
    )


def _validate_columns(path: Path, columns: list[str]) -> None:
    """Raise BadFile if two columns have the same name; columns without a name are never asked for."""
    for name, count in Counter(columns).items():
        if name.strip() and count > 1:
            raise _repeated_column(path, name, count)


def _repeated_column(path: Path, name: str, count: int) -> BadFile:
    return BadFile(f"'{path}' has {count} columns called '{name}': give each a name of its own.")


def _is_header(cells: list[str], text: str | None, label: str | None) -> bool:
    """Return whether columns were given by name, or the first row holds a usual column name."""
    return _are_names(text, label) or any(map(_is_usual_name, cells))


def _are_names(text: str | None, label: str | None) -> bool:
    """Return whether columns were given by name instead of by number."""
    columns = [*(text or "").split(","), label or ""]
    return any(map(_is_column_name, columns))


def _is_column_name(column: str) -> bool:
    # A number counts columns; an empty text names none.
    return bool(column.strip()) and not column.strip().isdecimal()


def _is_usual_name(cell: str) -> bool:
    # A row of data hardly consists of a single word such as "sentence".
    return cell.strip().casefold() in (*INPUT_COLUMNS, *LABEL_COLUMNS)


def _name_rows(
    columns: list[str], rows: Iterable[tuple[int, list[str] | BadRow]]
) -> Iterator[tuple[int, Row | BadRow]]:
    for line, cells in rows:
        if isinstance(cells, BadRow):
            yield line, cells
        else:
            yield line, _name_cells(columns, cells, line)


def _name_cells(columns: list[str], cells: list[str], line: int) -> Row | BadRow:
    if len(cells) != len(columns):
        return _wrong_width(line, len(cells), len(columns))
    return dict(zip(columns, cells, strict=True))


def _wrong_width(line: int, width: int, expected: int) -> BadRow:
    # Most often a delimiter inside a cell that is not quoted.
    return BadRow(line, f"{width} columns instead of {expected}")


def _guess_columns(path: Path, rows: NumberedCells) -> tuple[str, str | None]:
    """Return the text and label columns of a file without a header, by number from 1."""
    table = _select_common_width(rows)
    width = len(table[0])
    if width == 1:
        return "1", None
    _refuse_wide(path, width)
    label = _guess_label_column(table)
    return _number_others(width, label), str(label + 1)


def _refuse_wide(path: Path, width: int) -> None:
    if width > 3:
        raise _too_many_columns(path, width)


def _number_others(width: int, label: int) -> str:
    """Return the numbers of all columns but the label's, with commas."""
    return ",".join(str(column + 1) for column in range(width) if column != label)


def _select_common_width(rows: NumberedCells) -> list[list[str]]:
    """Return the rows of the most common width: a single row may be damaged."""
    table = [cells for _, cells in rows if isinstance(cells, list)]
    width = _most_common(map(len, table))
    return [cells for cells in table if len(cells) == width]


def _most_common(widths: Iterable[int]) -> int:
    return Counter(widths).most_common(1)[0][0]


def _too_many_columns(path: Path, width: int) -> BadInput:
    message = f"'{path}' has {width} columns and no header: name them by number, for example "
    return BadInput(message, Argument("text_column", 2), ".")


def _guess_label_column(table: Sequence[list[str]]) -> int:
    """Return the index of the column with the fewest distinct values; the shorter first value decides ties."""
    return min(range(len(table[0])), key=partial(_rank_column, table))


def _rank_column(table: Sequence[list[str]], column: int) -> tuple[int, int]:
    # Labels repeat, texts do not.
    distinct = {cells[column] for cells in table}
    return len(distinct), len(table[0][column])
