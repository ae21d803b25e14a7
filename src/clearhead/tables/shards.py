"""Shards: runs of consecutive rows that are explained, stored and, after a crash, done again together."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from clearhead.tables.source import TableRow

# At most this many rows are explained again after a crash.
ROWS_PER_SHARD = 2048
DIGEST_CHARACTERS = 16
ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
PLAIN_TYPES = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True)
class Shard:
    """Rows of a table, with the number of the shard and the hash of the rows."""

    number: int
    rows: list[TableRow]
    digest: str

    @property
    def stem(self) -> str:
        """The name of its files; shards of other rows have another one."""
        return f"{self.number:06d}-{self.digest}"

    @property
    def prefix(self) -> str:
        """The beginning of the names of its files, whatever its rows."""
        return f"{self.number:06d}-"


def cut_shards(rows: Iterator[TableRow], size: int) -> Iterator[Shard]:
    """Yield shards of `size` rows, the last of as many as there are."""
    for number in count():
        chunk = list(islice(rows, size))
        if not chunk:
            return
        yield Shard(number, chunk, _hash_rows(chunk))


def _hash_rows(rows: list[TableRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr((row.number, row.error)).encode())
        digest.update(_describe_values(row.values).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:DIGEST_CHARACTERS]


def _describe_values(values: Mapping[str, Any]) -> str:
    return repr([(name, _describe_value(value)) for name, value in values.items()])


def _describe_value(value: Any) -> Any:
    if isinstance(value, PLAIN_TYPES):
        return value
    if isinstance(value, dict):
        return _describe_values(value)
    if isinstance(value, list | tuple):
        return list(map(_describe_value, value))
    return _describe_object(value)


def _describe_object(value: Any) -> str:
    """Return what tells a date, an array or a picture in memory from others."""
    try:
        content = value.tobytes()
    # It is none of the last two, or damaged, which is the error of its row.
    except (AttributeError, OSError, ValueError, SyntaxError):
        # The text of an object may hold its address in memory.
        return ADDRESS.sub("", repr(value))
    return hashlib.sha256(content).hexdigest()
