"""INPUT arguments: a text, standard input, a text file, an image, or a table with one input per row."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from clearhead.cli.input_paths import (
    IMAGE_ENDINGS,
    OTHER_ENDINGS,
    READABLE_ENDINGS,
    get_ending,
    names_table,
    path_exists,
    refuse_folder,
    refuse_missing_file,
)
from clearhead.data.table_endings import DELIMITERS, JSON_ENDINGS, TABLE_ENDINGS, file_suffix
from clearhead.environment import text_encoding
from clearhead.errors import BadFile, BadInput, BadOption

if TYPE_CHECKING:
    from clearhead.data.task import BadRow
    from clearhead.data.text_files import Numbered

GOLD_SEPARATOR = "|"
ENCODING_ADVICE = "Name its encoding, for example --encoding latin-1, or save it as UTF-8."
Row = dict[str, Any]


def check_text_column(arguments: Sequence[str], text_column: str | None, flag: str = "--text-column") -> None:
    """Raise BadOption if a column of texts or images is given without a table, before any work is done."""
    if text_column is not None and not any(map(names_table, arguments)):
        raise BadOption(
            f"{flag} {text_column} names a column of a table, but no table was given, and a text has no "
            f"columns. Leave it out, or give a table: {', '.join(TABLE_ENDINGS)}."
        )


def gather_choices(texts: Sequence[Any]) -> tuple[str, list[str]]:
    """Return the first text as the context of a multiple choice, the others as its choices."""
    if len(texts) < 3 or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{len(texts)} INPUTS are no multiple choice: give the context, then two choices or more.")
    context, *choices = texts
    return context, choices


def check_inputs(arguments: Sequence[str], text_column: str | None, *, as_text: bool = False) -> None:
    """Raise an error for a missing file, or a column that a table lacks, before the model is loaded."""
    if as_text:
        return
    reader = InputReader(images=False, text_column=text_column)
    for argument in arguments:
        if argument == "-" or not argument.strip():
            continue
        if not path_exists(Path(argument)):
            refuse_missing_file(argument)
        elif names_table(argument):
            reader.check_columns(Path(argument))


@dataclass(frozen=True)
class InputReader:
    """How INPUT arguments are read.

    With `images` the model reads images, so that texts in tables are paths. `gold` are the values of --gold: phrases,
    mask files, or one column of a table. With `as_text` every argument is a text, also if it looks like a file's name;
    `text_advice` says what else to do with one that does.
    """

    images: bool
    text_column: str | None = None
    pair: bool = False
    gold: Sequence[str] = ()
    as_text: bool = False
    text_advice: str = "add --as-text"

    def read(self, arguments: Sequence[str]) -> list[Any]:
        """Return every input in order; a row without a text or picture has its error, a BadInput, in its place."""
        inputs = list(chain.from_iterable(map(self._read_argument, arguments)))
        if not inputs:
            raise BadInput(f"'{arguments[0]}' has no rows: there is nothing to explain.")
        if self.pair:
            return _make_pair(inputs)
        return inputs

    def read_gold(self, arguments: Sequence[str]) -> list[list[Any]]:
        """Return per input what people marked: phrases, or paths of mask images."""
        marks = list(chain.from_iterable(map(self._read_gold, arguments)))
        # The two texts of a pair are one input.
        if self.pair:
            return marks[:1]
        return marks

    def _read_argument(self, argument: str) -> list[Any]:
        if argument == "-":
            return [_read_stdin()]
        if not argument.strip():
            raise BadInput("The text is empty: there is nothing to explain.")
        if self.as_text:
            return [argument]
        path = Path(argument)
        if path_exists(path):
            return self._read_file(path, argument)
        refuse_missing_file(argument, self.text_advice)
        return [argument]

    def _read_file(self, path: Path, argument: str) -> list[Any]:
        refuse_folder(path, argument)
        ending = get_ending(path)
        if names_table(argument):
            return self._read_table(path)
        if ending == ".txt":
            return [read_text(path)]
        if ending in IMAGE_ENDINGS:
            self._require_image_model(argument)
            return [path]
        if ending in OTHER_ENDINGS:
            raise BadFile(f"'{argument}' is {OTHER_ENDINGS[ending]}.")
        raise BadFile(f"'{argument}' has an unsupported file type. Supported: {', '.join(READABLE_ENDINGS)}.")

    def _require_image_model(self, argument: str) -> None:
        if not self.images:
            raise BadInput(f"'{argument}' is an image, but the model reads text. Choose {_list_image_models()}.")

    def _read_table(self, path: Path) -> list[Any]:
        rows = self._read_rows(path)
        names = self._choose_columns(path, _require_columns(path, rows))
        return [self._read_row(path, number, row, names) for number, row in enumerate(rows, 1)]

    def _read_row(self, path: Path, number: int, row: "Row | BadRow", names: Sequence[str]) -> Any:
        """Return the input of a row, or the error why it has none: other rows can still be explained."""
        location = f"Row {number} of '{path}'"
        if not isinstance(row, dict):
            return BadInput(f"{location}, {row}.")
        try:
            cells = [_read_cell(location, name, row.get(name), images=self.images) for name in names]
        except BadInput as error:
            return error
        if self.images:
            return _open_picture(location, cells[0], path)
        return _join_texts(cells)

    def check_columns(self, path: Path) -> None:
        """Raise an error unless a table has the text column, by its first rows."""
        from clearhead.data.columns import list_columns

        ending = file_suffix(path)
        # A .tsv file without a named column may have no header.
        may_lack_header = DELIMITERS.get(ending) == "\t" and self.text_column is None
        # Parquet and Arrow files are opened once.
        if path.is_file() and (ending in JSON_ENDINGS or ending in DELIMITERS) and not may_lack_header:
            columns = list_columns(row for _, row in self._read_numbered_rows(path))
            if columns:
                self._choose_columns(path, columns)

    def _choose_columns(self, path: Path, columns: list[str]) -> Sequence[str]:
        """Return the text column, or the two of a pair."""
        from clearhead.data.columns import choose_input_columns

        return choose_input_columns(str(path), columns, self.text_column, images=self.images)

    def _read_gold(self, argument: str) -> list[list[Any]]:
        path = Path(argument)
        if names_table(argument) and path_exists(path):
            return self._read_gold_column(path)
        return [self._make_marks(Path(), self.gold)]

    def _make_marks(self, folder: Path, marks: Sequence[str]) -> list[Any]:
        """Return phrases as they are, and mask files, which are relative to the folder, as paths."""
        if self.images:
            return [folder / mark for mark in marks]
        return list(marks)

    def _read_gold_column(self, path: Path) -> list[list[Any]]:
        self._require_gold_column(path)
        rows = self._read_rows(path)
        name = self._choose_gold_column(path, _require_columns(path, rows))
        return [self._make_marks(path.parent, _read_marks(row, name)) for row in rows]

    def _choose_gold_column(self, path: Path, columns: list[str]) -> str:
        from clearhead.data.columns import text_columns

        return text_columns(str(path), columns, self.gold[0])[0]

    def _require_gold_column(self, path: Path) -> None:
        if len(self.gold) != 1:
            raise BadInput(f"--gold names one column of '{path}', but was given {len(self.gold)} times.")

    def _read_rows(self, path: Path) -> "list[Row | BadRow]":
        """Return the rows by column."""
        return [row for _, row in self._read_numbered_rows(path)]

    def _read_numbered_rows(self, path: Path) -> "Numbered":
        ending = file_suffix(path)
        if ending in DELIMITERS:
            return self._read_delimited(path, DELIMITERS[ending])
        if ending in JSON_ENDINGS:
            from clearhead.data.text_files import json_lines

            return json_lines(path)
        from clearhead.data.parquet import iterate_table

        return iter(enumerate(iterate_table(path), 1))

    def _read_delimited(self, path: Path, delimiter: str) -> "Numbered":
        from clearhead.data.readers.tables import named_rows

        # Naming a column, of texts or annotations, tells that the first row is a header.
        gold_column = next(iter(self.gold), None)
        rows, text_column, _ = named_rows(path, delimiter, self.text_column, gold_column)
        if text_column != self.text_column:
            # The reader picked a column by its content. The user would not notice a wrong guess.
            raise BadInput(_ask_for_column(path, _first_row(rows)))
        return rows


def _require_columns(path: Path, rows: "Sequence[Row | BadRow]") -> list[str]:
    """Return the columns of the rows that can be read; raise an error if there are none."""
    from clearhead.data.columns import list_columns

    if not rows:
        raise BadInput(f"'{path}' has no rows: there is nothing to explain.")
    columns = list_columns(rows)
    if not columns:
        raise BadFile(f"No row of '{path}' can be read: {rows[0]}.")
    return columns


def _first_row(rows: "Numbered") -> Row:
    """Return the first row that can be read."""
    for _, row in rows:
        if isinstance(row, dict):
            return row
    return {}


def _make_pair(inputs: Sequence[Any]) -> list[Any]:
    # Images are paths, rows of a table with two text columns are tuples.
    if not all(isinstance(text, str) for text in inputs):
        raise BadInput("--pair takes exactly two texts, but images or tables were given.")
    if len(inputs) != 2:
        raise BadInput(f"--pair takes exactly two texts, but {len(inputs)} inputs were given.")
    return [tuple(inputs)]


def _list_image_models() -> str:
    """Return the embedded models that read images, as flags."""
    from clearhead.model import zoo

    return " or ".join(f"--model {name}" for name in filter(_reads_images, zoo.names()))


def _reads_images(name: str) -> bool:
    from clearhead.model import zoo

    # The card tells it without loading the model.
    return bool(zoo.describe(name)["task"] == "image-classification")


def _read_stdin() -> str:
    # Windows tools put a byte order mark before piped text.
    text = sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    if not text.strip():
        raise BadInput("Standard input was empty: there is nothing to explain.")
    return text


def read_text(path: Path) -> str:
    try:
        # Editors end the last line too, and on Windows may begin with a byte order mark: neither is text.
        return path.read_text(text_encoding()).removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadFile(
            f"'{path}' is not {text_encoding().upper()} text (byte {error.start}). {ENCODING_ADVICE}"
        ) from error
    except OSError as error:
        raise BadFile(f"'{path}' cannot be read: {error.strerror or error}") from error


def _ask_for_column(path: Path, first: Row) -> str:
    """Return the error for a table without a known header, with each column and its first cell."""
    choices = " or ".join(map(_format_column, first, first.values()))
    return f"No text column found in '{path}'. Use {choices}, or the column's name if the first row is a header."


def _format_column(name: str, cell: str) -> str:
    # The beginning of a cell shows which column holds the texts.
    return f"--text-column {name} ('{shorten(cell, 40)}')"


def _read_marks(row: "Row | BadRow", column: str) -> list[str]:
    # A row that cannot be read has no annotations either; its error says so.
    return _split_gold(row.get(column)) if isinstance(row, dict) else []


def _split_gold(cell: Any) -> list[str]:
    marks = str(cell or "").split(GOLD_SEPARATOR)
    return list(filter(None, map(str.strip, marks)))


def _read_cell(location: str, name: str, cell: Any, *, images: bool) -> Any:
    """Return the text, path or picture in a cell; raise an error that names the row unless it holds one."""
    if _is_empty(cell):
        content = "picture" if images else "text"
        raise BadInput(f"{location} has no {content} in column '{name}'. Remove the row or fill it in.")
    # Parquet and Arrow may hold the pictures themselves.
    if images and isinstance(cell, bytes | dict):
        return cell
    if not isinstance(cell, str):
        raise BadInput(f"{location}: column '{name}' holds {type(cell).__name__}, not text.")
    _check_encoding(location, cell)
    return cell


def _open_picture(location: str, cell: Any, path: Path) -> Any:
    """Return the picture or the path in a cell, or the error of the row."""
    from clearhead.data.columns import open_picture_cell
    from clearhead.model.images import read_image_header

    try:
        picture = open_picture_cell(cell, path)
        # Its header is enough to tell that a file is missing or damaged, and quickly read.
        if isinstance(picture, Path):
            read_image_header(picture, f"'{picture}'")
    except BadInput as error:
        return BadInput(f"{location}: {error}")
    return picture


def _join_texts(texts: Sequence[str]) -> Any:
    if len(texts) == 1:
        return texts[0]
    return texts[0], texts[1]


def _check_encoding(location: str, text: str) -> None:
    from clearhead.data.text_files import damaged_file, has_surrogate

    # Undecodable bytes arrive as surrogates.
    if damaged_file(text):
        raise BadInput(f"{location} is not UTF-8 text. {ENCODING_ADVICE}")
    if has_surrogate(text):
        raise BadInput(f"{location} holds half of a character (a lone surrogate). Remove it, or the row.")


def _is_empty(cell: Any) -> bool:
    # Not by its truth value: 0 is a number, which gets its own message.
    return cell is None or (isinstance(cell, str) and not cell.strip())
