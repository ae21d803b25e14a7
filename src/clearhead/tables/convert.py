"""Explanations in memory as records, Arrow tables and data frames; the only module that imports pandas."""

from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.tables import arrow
from clearhead.tables.records import Record, flatten_record, make_record


def to_records(explanations: Iterable[Explanation], *, flat: bool = False) -> list[Record]:
    """Return explanations as the records that `explain_table` writes; without a table, rows are counted from 1."""
    records = []
    for number, explanation in enumerate(explanations, 1):
        records.append(_make_numbered_record(explanation, number))
    if flat:
        return list(map(flatten_record, records))
    return records


def _make_numbered_record(explanation: Explanation, number: int) -> Record:
    record = make_record(explanation)
    if record["row"] is None:
        record["row"] = number
    return record


def comparison_records(comparison: Mapping[str, Any], *, flat: bool = False) -> list[Record]:
    """Return the explanations of several methods as records, each with its method as it was written."""
    records = []
    for name, explanations in comparison.items():
        for record in to_records(_as_list(explanations), flat=flat):
            records.append({**record, "method": name})
    return records


def _as_list(explanations: Any) -> Iterable[Any]:
    # The comparison of a single input holds no lists.
    if isinstance(explanations, Explanation | JointExplanation):
        return [explanations]
    return list(explanations)


def to_arrow(records: list[Record]) -> Any:
    """Return records as a pyarrow Table."""
    return arrow.make_table(records)


def to_pandas(records: list[Record]) -> Any:
    """Return records as a pandas DataFrame."""
    return _import_pandas().DataFrame(records)


def _import_pandas() -> Any:
    # An optional dependency, imported when it is first needed.
    try:
        import pandas
    except ImportError as error:
        raise BadOption("to_pandas() needs pandas: pip install pandas, or use to_records() or to_arrow().") from error
    return pandas
