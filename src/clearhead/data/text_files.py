"""Read lines, CSV rows and JSON lines so that one damaged row does not spoil the rest."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from clearhead.data.task import BadRow
from clearhead.environment import text_encoding
from clearhead.errors import BadFile, BadInput
from clearhead.files import unreadable_file

Row = dict[str, Any]
Numbered = Iterator[tuple[int, Row | BadRow]]
MAX_CELL_CHARACTERS = 2**31 - 1
# Quotes are ordinary characters between tabs.
CSV_FORMATS: dict[str, dict[str, Any]] = {
    "\t": {"quoting": csv.QUOTE_NONE},
    ",": {"quoting": csv.QUOTE_MINIMAL, "strict": True},
}
# What is read to tell the line ends of a file.
PREVIEW_BYTES = 2**16
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
NOT_UTF_8 = "not UTF-8 text: name its encoding, for example --encoding latin-1, or save it as UTF-8"
# What `surrogateescape` makes of bytes that are not UTF-8.
ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
# Halves of characters, which JSON may hold, and no encoding has.
SURROGATES = re.compile("[\ud800-\udfff]")


def read_content(path: Path, limit: int = -1) -> bytes:
    """Return the bytes of a plain or gzipped file, at most `limit` of them."""
    try:
        with _open_binary(path) as file:
            return bytes(file.read(limit))
    except FileNotFoundError:
        raise BadFile(f"There is no file '{path}'. Check the name and the folder.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable_file(path, error) from error


def _open_binary(path: Path) -> Any:
    if path.name.casefold().endswith(".gz"):
        return gzip.open(path, "rb")
    return path.open("rb")


def read_lines(path: Path, limit: int = -1) -> list[str]:
    """Return the lines of a text file; bytes that are not UTF-8 are escaped, see `damaged_file`."""
    content = read_content(path, limit)
    _refuse_utf_16(path, content)
    return _split_lines(_decode(content))


def _refuse_utf_16(path: Path, content: bytes) -> None:
    if content.startswith(UTF_16_MARKS) and text_encoding() == "utf-8":
        raise BadFile(f"'{path}' is UTF-16 text: save it as UTF-8, or use --encoding utf-16.")


def _decode(content: bytes) -> str:
    # Some editors begin a file with a byte order mark, which is no part of the text.
    return content.decode(text_encoding(), _error_handler()).removeprefix("\ufeff")


def _error_handler() -> str:
    """Return what becomes of bytes that are not of the encoding: in UTF-8 they are escaped, and reported by row."""
    # Other encodings have no surrogates.
    return "surrogateescape" if text_encoding() == "utf-8" else "replace"


def _split_lines(text: str) -> list[str]:
    """Split at line ends of any system; the last line need not have one."""
    lines = [line.removesuffix("\r") for line in text.split(_newline(text))]
    if not lines[-1]:
        lines.pop()
    return lines


def _newline(text: str) -> str:
    # Not str.splitlines, which would also split at characters such as U+2028 inside a text.
    if "\n" in text:
        return "\n"
    return "\r"


def iterate_lines(path: Path) -> Iterator[str]:
    """Yield the lines of `read_lines` one by one, so that a file of any size takes little memory."""
    try:
        with _open_binary(path) as file:
            yield from _iterate_decoded(path, file)
    except FileNotFoundError:
        raise BadFile(f"There is no file '{path}'. Check the name and the folder.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable_file(path, error) from error


def _iterate_decoded(path: Path, file: Any) -> Iterator[str]:
    beginning = file.read(PREVIEW_BYTES)
    _refuse_utf_16(path, beginning)
    file.seek(0)
    newline = _choose_newline(beginning)
    # Only at this line end: a text may hold others.
    lines = io.TextIOWrapper(file, text_encoding(), _error_handler(), newline=newline)
    first = next(lines, "").removeprefix("\ufeff")
    for line in filter(None, chain([first], lines)):
        yield line.removesuffix(newline).removesuffix("\r")


def _choose_newline(beginning: bytes) -> str:
    # The first line may be longer than what was read.
    if b"\n" in beginning or b"\r" not in beginning:
        return "\n"
    return "\r"


def is_text(value: Any) -> bool:
    """Return whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def read_first_line(path: Path, limit: int) -> str:
    """Return the first line within the first `limit` bytes, by which readers recognise their files; "" if empty."""
    # An empty file has no line at all.
    return next(iter(read_lines(path, limit)), "")


def require_text(row: Row, column: str) -> str:
    """Return the text of a column; raise BadInput if there is none."""
    value = row.get(column)
    if not is_text(value):
        raise BadInput(f"no text in column '{column}'")
    return str(value)


def damaged_file(text: str) -> bool:
    """Return whether some bytes of a text were not UTF-8."""
    # isascii is much faster than the search and true for most texts.
    return not text.isascii() and ESCAPED_BYTES.search(text) is not None


def has_surrogate(text: str) -> bool:
    """Return whether a text holds a half of a character, so that it has no encoding."""
    return not text.isascii() and SURROGATES.search(text) is not None


def read_separated(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Yield (line, cells) of every row that is not empty, or a BadRow; quotes have no meaning between tabs."""
    rows = _make_csv_reader(path, delimiter)
    # The reader goes on after a bad line, so a loop over it, which would end there, is not possible.
    for cells in iter(partial(_next_cells, rows), None):
        if _has_content(cells):
            yield rows.line_num, cells


def _has_content(cells: list[str] | BadRow) -> bool:
    return isinstance(cells, BadRow) or any(map(str.strip, cells))


def _next_cells(rows: Any) -> Any:
    """Return the cells of the next row, or a BadRow; None at the end."""
    try:
        return next(rows, None)
    except csv.Error as error:
        return BadRow(rows.line_num, f"not a proper row ({error})")


def json_lines(path: Path) -> Numbered:
    """Yield (line, object) of every line that is not empty, or a BadRow."""
    for number, line in enumerate(iterate_lines(path), 1):
        if line.strip():
            yield number, _parse_object(number, line)


def _make_csv_reader(path: Path, delimiter: str) -> Any:
    # The default limit of 128 KiB is too small for documents.
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    return csv.reader(_end_lines(path), delimiter=delimiter, **CSV_FORMATS.get(delimiter, CSV_FORMATS[","]))


def _end_lines(path: Path) -> Iterator[str]:
    for line in iterate_lines(path):
        yield line + "\n"


def _parse_object(number: int, line: str) -> Row | BadRow:
    if damaged_file(line):
        return BadRow(number, NOT_UTF_8)
    value = _parse_json(number, line)
    if not isinstance(value, dict | BadRow):
        return BadRow(number, "not an object with named columns")
    return value


def _parse_json(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or error
        return BadRow(number, f"not JSON ({reason})")
