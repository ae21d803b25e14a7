"""Output formats: how the records of a shard are stored, and how shards are joined to one file."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from clearhead.errors import BadOption
from clearhead.plain import encode_json
from clearhead.tables import arrow
from clearhead.tables.records import Record, order_columns


@dataclass(frozen=True)
class TableFormat:
    """How records become the content of a shard, and the shards at some paths become the output file."""

    shard_ending: str
    encode: Callable[[Sequence[Record]], bytes]
    join: Callable[[Sequence[Path], Path], None]
    always_flat: bool = False


def find_format(out: Path) -> TableFormat:
    """Return the format of an output file by its ending; raise BadOption if there is none, or pyarrow is missing."""
    ending = out.suffix.casefold()
    if ending not in FORMATS:
        raise BadOption(f"Invalid output '{out.name}': the ending must be one of {', '.join(FORMATS)}.")
    if ending == ".parquet":
        arrow.require()
    return FORMATS[ending]


def _encode_lines(records: Sequence[Record]) -> bytes:
    # Lone surrogates, which some tables hold, have no encoding.
    return "".join(map(_encode_line, records)).encode("utf-8", "replace")


def _encode_line(record: Record) -> str:
    return encode_json(_order(record)) + "\n"


def _order(record: Record) -> Record:
    return {name: record[name] for name in order_columns(record)}


def _join_lines(shards: Sequence[Path], out: Path) -> None:
    with open(out, "wb") as joined:
        for shard in shards:
            _append(shard, joined)


def _append(shard: Path, joined: BinaryIO) -> None:
    with open(shard, "rb") as lines:
        shutil.copyfileobj(lines, joined)


def read_lines(shards: Sequence[Path]) -> Iterator[Record]:
    """Yield the records of shards of JSON lines."""
    for shard in shards:
        with open(shard, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _join_csv(shards: Sequence[Path], out: Path) -> None:
    # Rows of JSON lines may have different columns: all of them are known only at the end.
    columns = order_columns(chain.from_iterable(read_lines(shards)))
    with open(out, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for record in read_lines(shards):
            writer.writerow(_format_cells(record))


def _format_cells(record: Record) -> Record:
    return {name: _format_cell(value) for name, value in record.items()}


def _format_cell(value: Any) -> Any:
    # As JSON writes it, so that both formats of a table can be compared.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value


def _join_page(shards: Sequence[Path], out: Path) -> None:
    # Imported here: views are above tables, and other formats do without them.
    from clearhead.views import table_page

    with open(out, "w", encoding="utf-8") as file:
        file.write(table_page.page(read_lines(shards)))


FORMATS: dict[str, TableFormat] = {
    ".parquet": TableFormat(".parquet", arrow.encode, arrow.join),
    ".jsonl": TableFormat(".jsonl", _encode_lines, _join_lines),
    ".csv": TableFormat(".jsonl", _encode_lines, _join_csv, always_flat=True),
    ".html": TableFormat(".jsonl", _encode_lines, _join_page),
}
