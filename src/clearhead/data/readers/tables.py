"""Texts, pairs of texts or pictures in the rows of a table."""

from collections import Counter
from itertools import islice
from pathlib import Path
from textwrap import shorten

from clearhead.data.columns import LABELS, LOOK, PICTURES, TEXTS, example_of, table_task
from clearhead.data.parquet import read_parquet
from clearhead.data.task import BadRow, Task, build_task, reader
from clearhead.data.text_files import Numbered, Row, ending, json_lines, lines, separated
from clearhead.errors import Argument, BadFile, BadInput


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
    return build_task(
        path.name, [example_of(number, row, ["text"], None, path) for number, row in numbered], limit=limit
    )


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


# --- separated values -------------------------------------------------------------------------------------------------


def _separated(
    path: Path, delimiter: str, text: str | None, label: str | None, limit: int | None, header: bool | None = None
) -> Task:
    rows, text, label = named_rows(path, delimiter, text, label, header)
    return table_task(path.name, rows, path, text, label, limit)


def named_rows(
    path: Path, delimiter: str, text: str | None, label: str | None, header: bool | None = None
) -> tuple[Numbered, str | None, str | None]:
    """Rows by the header's names or, without one, by number from 1; and the columns of the texts and labels.

    These are `text` and `label` where given; without a header they are guessed.
    """
    rows = list(separated(path, delimiter))
    first = next((cells for _, cells in rows if isinstance(cells, list)), None)
    if first is None:
        raise BadFile(f"'{path}' has no rows: there is nothing to read.")
    if delimiter == "," and len(first) == 1:
        _check_commas(path, first[0])
    if header is None:
        header = delimiter == "," or _is_header(first, text, label)
    columns = first if header else [str(place + 1) for place in range(len(first))]
    _check_names(path, columns)
    if not header and not text:
        text, label = _guessed(path, [cells for _, cells in rows[:LOOK] if isinstance(cells, list)])
    body = ((line, cells) for line, cells in rows if not (header and cells is first))
    return ((line, _named(line, columns, cells)) for line, cells in body), text, label


def _check_commas(path: Path, first: str) -> None:
    """Some spreadsheets write .csv files with other separators, which would make one column of all."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if mark in first:
            raise BadFile(
                f"'{path}' is separated by {name}, not commas: its first row is '{shorten(first, 60)}'. Save it with "
                "commas, or with tabs as .tsv."
            )


def _check_names(path: Path, columns: list[str]) -> None:
    """Columns without a name may be several: nobody can ask for them."""
    for name, count in Counter(columns).items():
        if name.strip() and count > 1:
            raise BadFile(f"'{path}' has {count} columns called '{name}': give each a name of its own.")


def _is_header(cells: list[str], text: str | None, label: str | None) -> bool:
    folded = [cell.strip().casefold() for cell in cells]
    wanted = [part.strip() for part in (text or "").split(",") if part.strip()] + ([label] if label else [])
    if any(not one.isdecimal() for one in wanted):
        return True
    return any(one in (*TEXTS, *PICTURES, *LABELS) for one in folded)


def _named(line: int, columns: list[str], cells: list[str] | BadRow) -> Row | BadRow:
    if isinstance(cells, BadRow):
        return cells
    if len(cells) != len(columns):
        return BadRow(line, f"{len(cells)} columns instead of {len(columns)}")
    return dict(zip(columns, cells, strict=True))


def _guessed(path: Path, rows: list[list[str]]) -> tuple[str, str | None]:
    """Which columns of a file without a header are texts: the label column holds the fewest different values."""
    width = Counter(map(len, rows)).most_common(1)[0][0]
    if width == 1:
        return "1", None
    if width > 3:
        found = f"'{path}' has {width} columns and no header: name them by number, for example "
        raise BadInput(found, Argument("text_column", 2), ".")
    sample = [cells for cells in rows if len(cells) == width]
    label = min(range(width), key=lambda place: (len({cells[place] for cells in sample}), len(sample[0][place])))
    return ",".join(str(place + 1) for place in range(width) if place != label), str(label + 1)
