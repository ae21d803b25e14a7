"""Files of lines and rows, read so that one bad row does not spoil the rest."""

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
LONGEST_CELL = 2**31 - 1
DAMAGE = re.compile("[\udc80-\udcff]")


def ending(path: Path) -> str:
    """The file's kind, whether or not it is compressed: '.tsv' for x.tsv and x.tsv.gz."""
    name = path.name.casefold().removesuffix(".gz")
    return Path(name).suffix


def content(path: Path, limit: int = -1) -> bytes:
    """The bytes of a plain or gzipped file."""
    try:
        if path.name.casefold().endswith(".gz"):
            with gzip.open(path) as file:
                return file.read(limit)
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise BadFile(f"There is no file '{path}'. Check the name and the folder.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from error


def lines(path: Path, limit: int = -1) -> list[str]:
    """The lines of a text; what is not UTF-8 stays recognisable as damaged."""
    found = content(path, limit)
    if found.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadFile(f"'{path}' is UTF-16 text: save it as UTF-8.")
    text = found.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    several = [line.removesuffix("\r") for line in text.split("\n" if "\n" in text else "\r")]
    return several if several[-1] else several[:-1]


def damaged_file(text: str) -> bool:
    """Whether some bytes were not UTF-8."""
    return not text.isascii() and DAMAGE.search(text) is not None


def separated(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow]]:
    """(line, cells) of every row that is not empty, or what is wrong with it.

    In tab-separated files quotes are plain characters.
    """
    plain = delimiter == "\t"
    csv.field_size_limit(LONGEST_CELL)
    numbered = (line + "\n" for line in lines(path))
    found = csv.reader(
        numbered, delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL, strict=not plain
    )
    while True:
        try:
            cells = next(found)
        except StopIteration:
            return
        except csv.Error as error:
            yield found.line_num, BadRow(found.line_num, f"not a proper row ({error})")
            continue
        if cells and any(cell.strip() for cell in cells):
            yield found.line_num, cells


def json_lines(path: Path) -> Numbered:
    """(line, object) of every line, or what is wrong with it."""
    for number, line in enumerate(lines(path), 1):
        if line.strip():
            yield number, _object(number, line)


def _object(number: int, line: str) -> Row | BadRow:
    if damaged_file(line):
        return BadRow(number, "not UTF-8 text")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"not JSON ({getattr(error, 'msg', None) or error})")
    return found if isinstance(found, dict) else BadRow(number, "not an object with named columns")
