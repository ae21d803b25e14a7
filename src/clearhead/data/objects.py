"""Rows and columns of objects in memory: pandas, polars, pyarrow, `datasets`, dicts and generators.

None of these libraries is imported: an object is recognised by what it offers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from clearhead.data.columns import INPUT_COLUMNS, find_column, join_cells, text_columns
from clearhead.data.parquet import batch_rows
from clearhead.errors import BadInput

Row = dict[str, Any]
# The column of a row that is a text or an image by itself.
ONLY_COLUMN = "text"
# Rows of a data frame that are converted together.
ROWS_AT_ONCE = 1024
# What pandas has in empty cells, besides NaN.
MISSING_TYPES = ("NaTType", "NAType")


def is_frame(table: Any) -> bool:
    """Return whether this is a table with named columns: a data frame, an Arrow table or a data set."""
    return find_columns(table) is not None


def find_columns(table: Any) -> list[str] | None:
    """Return the column names of a table in memory; None if it is none, BadInput if its rows are not computed yet."""
    _refuse_lazy(table)
    for name in ("column_names", "columns"):
        columns = getattr(table, name, None)
        # The columns of an Arrow table are arrays; its names are called column_names.
        if columns is not None and not callable(columns):
            return list(map(str, columns))
    return None


def _refuse_lazy(table: Any) -> None:
    if _is_query(table):
        name = type(table).__name__
        raise BadInput(f"A {name} has no rows before it is computed: give what its collect() returns.")


def _is_query(table: Any) -> bool:
    """Return whether a table is a query of polars, whose columns and rows exist only after `collect`."""
    return hasattr(table, "collect_schema") and hasattr(table, "collect")


def count_rows(table: Any) -> int | None:
    """Return the number of rows, None for a generator or a stream."""
    try:
        return len(table)
    except TypeError:
        return None


def refuse_repeated(table: Any) -> None:
    """Raise BadInput if two columns of a table in memory have the same name: rows would keep the last."""
    for name, count in Counter(find_columns(table) or ()).items():
        if count > 1:
            raise BadInput(
                f"The {type(table).__name__} has {count} columns called '{name}': give each a name of its own."
            )


def iterate_rows(table: Any) -> Iterator[Row]:
    """Yield the rows of an object as dicts; a text or an image by itself is a row with the column `text`."""
    refuse_repeated(table)
    for row in _find_iterator(table)():
        if isinstance(row, Mapping):
            yield {str(name): _as_plain(value) for name, value in row.items()}
        else:
            yield {ONLY_COLUMN: row}


def _as_plain(value: Any) -> Any:
    """Return a scalar of NumPy, or a tensor without axes, as Python's number or text; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _find_iterator(table: Any) -> Callable[[], Iterator[Any]]:
    if hasattr(table, "iter_rows"):
        # polars
        return lambda: table.iter_rows(named=True)
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return lambda: _iterate_pandas(table)
    if hasattr(table, "to_batches"):
        return lambda: _iterate_batches(table.to_batches())
    if hasattr(table, "read_next_batch"):
        return lambda: _iterate_batches(table)
    if hasattr(table, "with_format") and hasattr(table, "features"):
        # `datasets`: whatever it is set to return, such as a data frame for each row, here dicts are read.
        return lambda: iter(table.with_format(None))
    return lambda: _iterate_values(table)


def _iterate_pandas(frame: Any) -> Iterator[Any]:
    # In slices: converting a whole frame would hold it twice.
    for start in range(0, len(frame), ROWS_AT_ONCE):
        yield from map(_empty_missing, frame.iloc[start : start + ROWS_AT_ONCE].to_dict("records"))


def _empty_missing(row: Row) -> Row:
    """Return a row of pandas with None in its empty cells, as every other library has it."""
    return {name: _or_none(value) for name, value in row.items()}


def _or_none(value: Any) -> Any:
    if _is_missing(value):
        return None
    return value


def _is_missing(value: Any) -> bool:
    # NaN is the one number that differs from itself.
    return type(value).__name__ in MISSING_TYPES or (isinstance(value, float) and value != value)


def _iterate_batches(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        yield from batch_rows(batch)


def find_class_names(table: Any) -> dict[str, list[str]]:
    """Return by column the names that the numbers of a data set stand for (ClassLabel of `datasets`)."""
    features = getattr(table, "features", None)
    if not isinstance(features, Mapping):
        return {}
    names = {column: getattr(feature, "names", None) for column, feature in features.items()}
    return {column: list(values) for column, values in names.items() if values}


def as_plain_inputs(inputs: Any) -> Any:
    """Return a table of texts, a column or a generator as a list of inputs; anything else as it is."""
    if is_frame(inputs):
        return _read_texts(inputs)
    return as_plain_list(inputs)


def as_plain_list(values: Any) -> Any:
    """Return a column or a generator as a list; anything else as it is."""
    if _is_column(values) or isinstance(values, Iterator):
        return list(_iterate_values(values))
    return values


def _iterate_values(values: Any) -> Iterator[Any]:
    # The items of an Arrow column are scalars of its own types.
    if hasattr(values, "to_pylist"):
        return iter(values.to_pylist())
    return iter(values)


def _is_column(values: Any) -> bool:
    # A tensor is the network's own input, and no column.
    if hasattr(values, "requires_grad"):
        return False
    # pandas, NumPy, polars and pyarrow, in this order; a matrix is not a column.
    can_convert = any(hasattr(values, name) for name in ("tolist", "to_list", "to_pylist"))
    return can_convert and getattr(values, "ndim", 1) == 1


def require_inputs(table: Any) -> None:
    """Raise BadInput unless one column of a table holds the inputs by its name."""
    columns = find_columns(table) or []
    if find_column(columns, INPUT_COLUMNS) is None:
        raise _no_text_column(type(table).__name__, columns)


def _read_texts(table: Any) -> list[Any]:
    require_inputs(table)
    columns = find_columns(table) or []
    texts = text_columns(f"the {type(table).__name__}", columns, None)
    return [_read_cells(row, texts) for row in iterate_rows(table)]


def _read_cells(row: Row, texts: list[str]) -> Any:
    return join_cells([row[name] for name in texts])


def _no_text_column(table: str, columns: list[str]) -> BadInput:
    if not columns:
        return BadInput(f"The {table} has no columns: there is nothing to explain.")
    return BadInput(
        f"No text column found in the {table}: give one of its columns, such as table[{columns[0]!r}]; it has "
        f"{', '.join(columns)}."
    )
