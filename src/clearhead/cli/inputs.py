"""What INPUT means: a text, standard input, a text file, a picture, or a table with a row each."""

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from clearhead.errors import BadFile, BadInput, BadOption

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
Row = dict[str, Any]

if TYPE_CHECKING:
    from clearhead.data.text_files import Numbered


def check_column(arguments: Sequence[str], text_column: str | None) -> None:
    """Refuses to name a column where no INPUT is a table, before any work is done."""
    if text_column is not None and not any(Path(one).suffix.casefold() in TABLES for one in arguments):
        raise BadOption(
            f"--text-column {text_column} names a column of a table, but no table was given, and a text has no "
            f"columns. Leave it out, or give a table: {', '.join(TABLES)}."
        )


def read_inputs(
    arguments: Sequence[str], *, text_column: str | None, pair: bool, pictures: bool, marks: Sequence[str] = ()
) -> list[Any]:
    """Every INPUT in order; `pictures` says that the model reads images, so that texts in tables are paths.

    `marks` are those of `read_marks`: naming a column of a table tells that it has a header.
    """
    mark = next(iter(marks), None)
    found = [one for argument in arguments for one in _read(argument, text_column, mark, pictures)]
    if not found:
        raise BadInput(f"'{arguments[0]}' has no rows: there is nothing to explain.")
    return _paired(found) if pair else found


def read_marks(
    arguments: Sequence[str], marks: Sequence[str], *, text_column: str | None, pair: bool, pictures: bool
) -> list[list[Any]]:
    """Per input what people marked: phrases, or mask pictures; of a table the column that holds them."""
    found = [one for argument in arguments for one in _read_marks(argument, marks, text_column, pictures)]
    return found[:1] if pair else found


def _read_marks(argument: str, marks: Sequence[str], text_column: str | None, pictures: bool) -> list[list[Any]]:
    path = Path(argument)
    if argument == "-" or not _exists(path) or path.suffix.casefold() not in TABLES:
        return [[Path(mark) if pictures else mark for mark in marks]]
    if len(marks) != 1:
        raise BadInput(f"--gold names one column of '{path}', but was given {len(marks)} times.")
    from clearhead.data.columns import text_columns

    rows = _rows(path, text_column, marks[0])
    name = text_columns(str(path), list(rows[0]), marks[0])[0]
    cells = [[part.strip() for part in str(row.get(name) or "").split("|") if part.strip()] for row in rows]
    return [[path.parent / part if pictures else part for part in cell] for cell in cells]


def _paired(found: list[Any]) -> list[Any]:
    if len(found) != 2 or not all(isinstance(one, str) for one in found):
        given = f"{len(found)} inputs" if all(isinstance(one, str) for one in found) else "pictures or tables"
        raise BadInput(f"--pair takes exactly two texts, but {given} were given.")
    return [(found[0], found[1])]


def _read(argument: str, text_column: str | None, mark: str | None, pictures: bool) -> list[Any]:
    if argument == "-":
        return [_stdin()]
    if not argument.strip():
        raise BadInput("The text is empty: there is nothing to explain.")
    path = Path(argument)
    kind = path.suffix.casefold()
    if not _exists(path):
        if _is_a_place(argument):
            raise BadFile(f"There is no file '{argument}'.{_nearby(path)}")
        return [argument]
    if path.is_dir():
        raise BadFile(f"'{argument}' is a folder: name the files in it, for example {argument.rstrip('/')}/*.txt.")
    if kind in TABLES:
        return _column(path, text_column, mark, pictures)
    if kind == ".txt":
        return [_text(path)]
    if kind in PICTURES:
        if not pictures:
            raise BadInput(f"'{argument}' is a picture, but the model reads text. Choose {_picture_models()}.")
        return [path]
    endings = ", ".join((".txt", *TABLES, *PICTURES))
    raise BadFile(f"'{argument}' is a file of a kind that is not read. There is: {endings}.")


def _is_a_place(argument: str) -> bool:
    """Whether this can only have been meant as a file: one word, with an ending or a path before it."""
    word = not any(blank in argument for blank in " \n\t")
    ending = Path(argument).suffix.casefold() in (*PICTURES, *TABLES, ".txt")
    path = argument.startswith(("./", "../", "~/"))
    absolute = argument.count("/") > 1 and argument.startswith("/") and _exists(Path(*Path(argument).parts[:2]))
    return word and (ending or path or absolute)


def _picture_models() -> str:
    """The embedded models that read pictures, as flags."""
    from clearhead.model import zoo

    names = [name for name in zoo.names() if zoo.describe(name)["task"] == "image-classification"]
    return " or ".join(f"--model {name}" for name in names)


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
    text = sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    if not text.strip():
        raise BadInput("Standard input was empty: there is nothing to explain.")
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadFile(f"'{path}' is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error


# --- tables ----------------------------------------------------------------------------------------------------


def _rows(path: Path, text: str | None, mark: str | None) -> list[Row]:
    """The rows by column; one bad row is a mistake. The columns of texts and marks, where named, tell of a header."""
    return [_sound(path, line, row) for line, row in _numbered(path, text, mark)]


def _numbered(path: Path, text: str | None, mark: str | None) -> "Numbered":
    kind = path.suffix.casefold()
    if kind == ".parquet":
        from clearhead.data.parquet import read_parquet

        return iter(enumerate(read_parquet(path), 1))
    if kind == ".jsonl":
        from clearhead.data.text_files import json_lines

        return json_lines(path)
    from clearhead.data.readers.tables import named_rows

    rows, found, _ = named_rows(path, "," if kind == ".csv" else "\t", text, mark)
    if found != text:
        raise BadInput(_which(path, next((row for _, row in rows if isinstance(row, dict)), {})))
    return rows


def _which(path: Path, first: Row) -> str:
    """The question that a table without a known header leaves: a guess would be seen by nobody."""
    columns = " or ".join(f"--text-column {name} ('{shorten(cell, 40)}')" for name, cell in first.items())
    return (
        f"No column of '{path}' has a name by which texts are known. Which one holds them? Say {columns}, or say its "
        "name if the first row is a header."
    )


def _sound(path: Path, line: int, row: Any) -> Row:
    if not isinstance(row, dict):
        raise BadFile(f"Line {line} of '{path}': {row.reason}.")
    return row


def _column(path: Path, text_column: str | None, mark: str | None, pictures: bool) -> list[Any]:
    from clearhead.data.columns import text_columns

    rows = _rows(path, text_column, mark)
    if not rows:
        raise BadInput(f"'{path}' has no rows: there is nothing to explain.")
    columns = list(rows[0])
    names = text_columns(str(path), columns, columns[0] if text_column is None and len(columns) == 1 else text_column)
    return [_cell(path, number, row, names, pictures) for number, row in enumerate(rows, 1)]


def _cell(path: Path, number: int, row: Row, names: list[str], pictures: bool) -> Any:
    from clearhead.data.text_files import damaged_file

    cells = [row.get(name) for name in names]
    for name, cell in zip(names, cells, strict=True):
        if cell is not None and not isinstance(cell, str):
            raise BadInput(f"Row {number} of '{path}': column '{name}' holds no text but {type(cell).__name__}.")
        if not cell or not cell.strip():
            raise BadInput(f"Row {number} of '{path}' has no text in column '{name}'. Remove the row or fill it in.")
        if damaged_file(cell):
            raise BadFile(f"Row {number} of '{path}' is not UTF-8 text: save it as UTF-8.")
    texts = [str(cell) for cell in cells]
    if pictures:
        return path.parent / texts[0]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])
