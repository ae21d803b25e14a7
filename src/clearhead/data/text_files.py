"""Read lines, CSV rows and JSON lines so that one damaged row does not spoil the rest."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.task import BadRow
from clearhead.errors import BadFile

Row = dict[str, Any]
Numbered = Iterator[tuple[int, Row | BadRow]]
MAX_CELL_CHARACTERS = 2**31 - 1
# What `surrogateescape` makes of bytes that are not UTF-8.
ESCAPED_BYTES = re.compile("[\udc80-\udcff]")


def file_suffix(path: Path) -> str:
    """Return the suffix without .gz in lower case: '.tsv' for x.tsv and x.tsv.gz."""
    name = path.name.casefold().removesuffix(".gz")
    return Path(name).suffix


def read_content(path: Path, limit: int = -1) -> bytes:
    """Return the bytes of a plain or gzipped file, at most `limit` of them."""
    is_gzip = path.name.casefold().endswith(".gz")
    open_file = gzip.open if is_gzip else open
    try:
        with open_file(path, "rb") as file:
            return bytes(file.read(limit))
    except FileNotFoundError:
        raise BadFile(f"There is no file '{path}'. Check the name and the folder.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_lines(path: Path, limit: int = -1) -> list[str]:
    """Return the lines of a text file; bytes that are not UTF-8 are escaped, see `damaged_file`."""
    content = read_content(path, limit)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadFile(f"'{path}' is UTF-16 text: save it as UTF-8.")
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    # Not str.splitlines, which would also split at characters such as U+2028 inside a text.
    newline = "\n"
    if newline not in text:
        newline = "\r"
    lines = [line.removesuffix("\r") for line in text.split(newline)]
    if not lines[-1]:
        lines.pop()
    return lines


def damaged_file(text: str) -> bool:
    """Return whether some bytes of a text were not UTF-8."""
    # isascii is much faster than the search and true for most texts.
    return not text.isascii() and ESCAPED_BYTES.search(text) is not None


def read_separated(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Yield (line, cells) of every row that is not empty, or a BadRow; quotes have no meaning between tabs."""
    rows = _make_csv_reader(path, delimiter)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            # The reader goes on with the next line, so a for loop, which would end here, is not possible.
            yield rows.line_num, BadRow(rows.line_num, f"not a proper row ({error})")
            continue
        if any(cell.strip() for cell in cells):
            yield rows.line_num, cells


def json_lines(path: Path) -> Numbered:
    """Yield (line, object) of every line that is not empty, or a BadRow."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield number, _parse_object(number, line)


def _make_csv_reader(path: Path, delimiter: str) -> Any:
    # The default limit of 128 KiB is too small for documents.
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    lines = (line + "\n" for line in read_lines(path))
    if delimiter == "\t":
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL, strict=True)


def _parse_object(number: int, line: str) -> Row | BadRow:
    if damaged_file(line):
        return BadRow(number, "not UTF-8 text")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"not JSON ({getattr(error, 'msg', None) or error})")
    if not isinstance(value, dict):
        return BadRow(number, "not an object with named columns")
    return value
