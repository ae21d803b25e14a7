"""What INPUT means: a text, standard input, a text file, a picture, or a table with a row each."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, BadInput

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
COLUMNS = ("text", "sentence", "review", "document", "content", "question", "image", "path", "file")
Row = dict[str, Any]


def read_inputs(arguments: Sequence[str], *, text_column: str | None, pair: bool, pictures: bool) -> list[Any]:
    """Every INPUT in order; `pictures` says that the model reads images, so that texts in tables are paths."""
    found = [one for argument in arguments for one in _read(argument, text_column, pictures)]
    if not found:
        raise BadInput(f"'{arguments[0]}' has no rows: there is nothing to explain.")
    return _paired(found) if pair else found


def read_marks(arguments: Sequence[str], marks: Sequence[str], *, pair: bool, pictures: bool) -> list[list[Any]]:
    """Per input what people marked: phrases, or mask pictures; of a table the column that holds them."""
    found = [one for argument in arguments for one in _read_marks(argument, marks, pictures)]
    return found[:1] if pair else found


def _read_marks(argument: str, marks: Sequence[str], pictures: bool) -> list[list[Any]]:
    path = Path(argument)
    if argument == "-" or not _exists(path) or path.suffix.casefold() not in TABLES:
        return [[Path(mark) if pictures else mark for mark in marks]]
    if len(marks) != 1:
        raise BadInput(f"--gold names one column of '{path}', but was given {len(marks)} times.")
    rows = _rows(path)
    name = _names(path, list(rows[0]), marks[0])[0]
    cells = [[part.strip() for part in str(row.get(name) or "").split("|") if part.strip()] for row in rows]
    return [[path.parent / part if pictures else part for part in cell] for cell in cells]


def _paired(found: list[Any]) -> list[Any]:
    if len(found) != 2 or not all(isinstance(one, str) for one in found):
        raise BadInput(f"--pair takes exactly two texts, but {len(found)} inputs were given.")
    return [(found[0], found[1])]


def _read(argument: str, text_column: str | None, pictures: bool) -> list[Any]:
    if argument == "-":
        return [_stdin()]
    if not argument.strip():
        raise BadInput("The text is empty: there is nothing to explain.")
    path = Path(argument)
    kind = path.suffix.casefold()
    if not _exists(path):
        if kind in (*PICTURES, *TABLES, ".txt") and not any(blank in argument for blank in " \n\t"):
            raise BadFile(f"There is no file '{argument}'.{_nearby(path)}")
        return [argument]
    if path.is_dir():
        raise BadFile(f"'{argument}' is a folder: name the files in it, for example {argument.rstrip('/')}/*.txt.")
    if kind in TABLES:
        return _column(path, _rows(path), text_column, pictures)
    if kind == ".txt":
        return [_text(path)]
    if kind in PICTURES:
        return [path]
    endings = ", ".join((".txt", *TABLES, *PICTURES))
    raise BadFile(f"'{argument}' is a file of a kind that is not read. There is: {endings}.")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _nearby(path: Path) -> str:
    from difflib import get_close_matches

    names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=1)
    return f" Did you mean '{path.with_name(close[0])}'?" if close else " Check the name and the folder."


def _stdin() -> str:
    text = sys.stdin.read().rstrip("\n")
    if not text.strip():
        raise BadInput("Standard input was empty: there is nothing to explain.")
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig").rstrip("\n")
    except UnicodeDecodeError as error:
        raise BadFile(f"'{path}' is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error


# --- tables ----------------------------------------------------------------------------------------------------


class Tabbed(csv.excel_tab):
    """Tab-separated as most corpora are: quotes are plain characters."""

    quoting = csv.QUOTE_NONE


def _rows(path: Path) -> list[Row]:
    readers = {".csv": _comma, ".tsv": _tab, ".jsonl": _json_lines, ".parquet": _parquet}
    return readers[path.suffix.casefold()](path)


def _comma(path: Path) -> list[Row]:
    return _separated(path, ",")


def _tab(path: Path) -> list[Row]:
    return _separated(path, "\t")


def _separated(path: Path, delimiter: str) -> list[Row]:
    kind: type[csv.Dialect] = csv.excel if delimiter == "," else Tabbed
    try:
        return list(csv.DictReader(io.StringIO(_text(path), newline=""), dialect=kind, strict=delimiter == ","))
    except csv.Error as error:
        raise BadFile(f"'{path}' is not a proper {path.suffix} table: {error}.") from error


def _json_lines(path: Path) -> list[Row]:
    rows = []
    for place, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadFile(f"Line {place} of '{path}' is not JSON: {error.msg}.") from error
        if not isinstance(row, dict):
            raise BadFile(f"Line {place} of '{path}' is not an object with named columns.")
        rows.append(row)
    return rows


def _parquet(path: Path) -> list[Row]:
    from clearhead.tables import read_parquet

    return read_parquet(path)


def _column(path: Path, rows: list[Row], wanted: str | None, pictures: bool) -> list[Any]:
    if not rows:
        raise BadInput(f"'{path}' has no rows: there is nothing to explain.")
    names = _names(path, list(rows[0]), wanted)
    return [_cell(path, number, row, names, pictures) for number, row in enumerate(rows, 1)]


def _names(path: Path, columns: list[str], wanted: str | None) -> list[str]:
    """The column or, for pairs, the two columns separated by a comma."""
    if wanted is None:
        known = [name for name in columns if str(name).casefold() in COLUMNS]
        if len(columns) != 1 and not known:
            listed = ", ".join(map(str, columns))
            raise BadInput(f"Which column of '{path}' holds the texts? Name it with --text-column: {listed}.")
        return [min(known, key=lambda name: COLUMNS.index(name.casefold())) if known else columns[0]]
    from clearhead.registry import unknown

    names = [wanted] if wanted in columns else [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in columns:
            raise unknown(f"column of '{path}'", name, columns)
    if len(names) > 2:
        raise BadInput("--text-column names one column, or two for pairs of texts.")
    return names


def _cell(path: Path, number: int, row: Row, names: list[str], pictures: bool) -> Any:
    cells = [row.get(name) for name in names]
    for name, cell in zip(names, cells, strict=True):
        if not isinstance(cell, str) or not cell.strip():
            raise BadInput(f"Row {number} of '{path}' has no text in column '{name}'. Remove the row or fill it in.")
    texts = [str(cell) for cell in cells]
    if pictures:
        return path.parent / texts[0]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])
