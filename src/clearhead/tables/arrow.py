"""Records as Arrow tables and Parquet files with one schema, whatever the columns of the user hold."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from clearhead.data.parquet import import_arrow
from clearhead.plain import encode_json, finite
from clearhead.tables.records import OWN_COLUMNS, Record, list_columns, order_columns

# Shards are small; larger row groups compress better and are read faster.
ROWS_PER_GROUP = 16_384
JSON_COLUMNS = ("diagnostics",)


def require() -> None:
    """Raise BadOption unless pyarrow is installed."""
    import_arrow()


def make_types() -> dict[str, Any]:
    """Return the Arrow types of our columns; what is not listed here is text."""
    pa = import_arrow()
    return {
        **dict.fromkeys(OWN_COLUMNS, pa.string()),
        "row": pa.int64(),
        "wrong": pa.bool_(),
        "probability": pa.float64(),
        "words": pa.list_(_word_type()),
        "tokens": pa.list_(_token_type()),
        "grid": pa.list_(pa.int32()),
        "patches": pa.list_(pa.float32()),
    }


def _word_type() -> Any:
    pa = import_arrow()
    position = [("segment", pa.int32()), ("start", pa.int32()), ("end", pa.int32())]
    return pa.struct([("word", pa.string()), ("relevance", pa.float32()), *position])


def _token_type() -> Any:
    pa = import_arrow()
    return pa.struct([("token", pa.string()), ("relevance", pa.float32()), ("special", pa.bool_())])


def make_table(records: Sequence[Record]) -> Any:
    """Return records as an Arrow table; columns of the user get the type that fits all their values."""
    pa = import_arrow()
    types = make_types()
    columns = list_columns(records)
    arrays = [_collect_array(records, name, types) for name in columns]
    return pa.Table.from_arrays(arrays, names=columns)


def _collect_array(records: Sequence[Record], name: str, types: dict[str, Any]) -> Any:
    values = [record.get(name) for record in records]
    return _make_array(name, values, types.get(name))


def _make_array(name: str, values: list[Any], arrow_type: Any) -> Any:
    pa = import_arrow()
    if name in JSON_COLUMNS:
        values = list(map(_to_json, values))
    try:
        array = pa.array(values, type=arrow_type)
        _refuse_unwritable(array.type)
    except (pa.ArrowException, OSError, TypeError, OverflowError, ValueError):
        # Values of several types in one column: text is the one type they share.
        return _make_text_array(values)
    return array


def _refuse_unwritable(arrow_type: Any) -> None:
    """Raise an error of pyarrow if Parquet cannot hold a type, such as objects without any field, or not read it."""
    pa = import_arrow()
    sink = pa.BufferOutputStream()
    pa.parquet.ParquetWriter(sink, _wrap_type(arrow_type)).close()
    # Lists within a hundred lists are written, and then refused by the reader.
    pa.parquet.read_schema(pa.BufferReader(sink.getvalue()))


def _make_text_array(values: Sequence[Any]) -> Any:
    pa = import_arrow()
    return pa.array(list(map(_to_text, values)), type=pa.string())


def _to_text(value: Any) -> str | None:
    if isinstance(value, list | tuple | Mapping):
        return _to_json(value)
    plain = finite(value)
    if isinstance(plain, str):
        return _replace_surrogates(plain)
    return _to_json(plain)


def _to_json(value: Any) -> str | None:
    if value is None:
        return None
    return _replace_surrogates(encode_json(value))


def _replace_surrogates(text: str) -> str:
    # Lone surrogates, which some tables hold, have no encoding.
    return text.encode("utf-8", "replace").decode()


def encode(records: Sequence[Record]) -> bytes:
    """Return records as the content of a Parquet file."""
    pa = import_arrow()
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(make_table(records), sink)
    return bytes(sink.getvalue())


def join(shards: Sequence[Path], out: Path) -> None:
    """Write the rows of Parquet files into one."""
    pa = import_arrow()
    schema = _unify_schemas(shards)
    with pa.parquet.ParquetWriter(out, schema) as writer:
        for group in _group_shards(shards):
            tables = [_read_shard(shard, schema) for shard in group]
            writer.write_table(pa.concat_tables(tables).combine_chunks())


def _group_shards(shards: Sequence[Path]) -> list[list[Path]]:
    """Return the shards of each row group."""
    groups: list[list[Path]] = [[]]
    rows = 0
    for shard in shards:
        rows += _count_rows(shard)
        groups[-1].append(shard)
        if rows >= ROWS_PER_GROUP:
            groups.append([])
            rows = 0
    return list(filter(None, groups))


def _count_rows(shard: Path) -> int:
    return int(import_arrow().parquet.read_metadata(shard).num_rows)


def _unify_schemas(shards: Sequence[Path]) -> Any:
    """Return the columns of all shards; a column whose types have none in common becomes text."""
    pa = import_arrow()
    types: dict[str, Any] = {}
    for field in chain.from_iterable(map(_read_schema, shards)):
        types[field.name] = _unify_types(types.get(field.name, pa.null()), field.type)
    types |= dict.fromkeys(_list_lossy(shards, types), pa.string())
    return pa.schema([(name, types[name]) for name in order_columns(types)])


def _list_lossy(shards: Sequence[Path], types: dict[str, Any]) -> set[str]:
    """Return the columns with values that their common type cannot hold, such as large integers among fractions."""
    lossy = set()
    for shard in shards:
        lossy.update(_list_lossy_columns(shard, types))
    return lossy


def _list_lossy_columns(shard: Path, types: dict[str, Any]) -> list[str]:
    changed = [
        field.name for field in _read_schema(shard) if field.type not in (types[field.name], import_arrow().null())
    ]
    # Most shards have the common types, and are not read.
    if not changed:
        return []
    table = import_arrow().parquet.read_table(shard)
    return [name for name in changed if not _can_cast(table.column(name), types[name])]


def _can_cast(column: Any, arrow_type: Any) -> bool:
    pa = import_arrow()
    try:
        column.cast(arrow_type)
    except pa.ArrowException:
        return bool(pa.types.is_string(arrow_type))
    return True


def _read_schema(shard: Path) -> Any:
    return import_arrow().parquet.read_schema(shard)


def _unify_types(first: Any, second: Any) -> Any:
    pa = import_arrow()
    schemas = list(map(_wrap_type, (first, second)))
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return pa.string()


def _wrap_type(arrow_type: Any) -> Any:
    return import_arrow().schema([("column", arrow_type)])


def _read_shard(shard: Path, schema: Any) -> Any:
    pa = import_arrow()
    table = pa.parquet.read_table(shard)
    columns = [_cast_column(table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_column(table: Any, field: Any) -> Any:
    pa = import_arrow()
    if field.name not in table.column_names:
        return pa.nulls(len(table), field.type)
    column = table.column(field.name)
    if pa.types.is_string(field.type) and column.type != field.type:
        return _make_text_array(column.to_pylist())
    return column.cast(field.type)
