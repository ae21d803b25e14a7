"""The rows of a table as text and as HTML."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

HEADER = ["method", "metric", "value", "low", "high", "n"]

Row = Mapping[str, Any]


def format_rows(rows: Sequence[Row]) -> list[str]:
    """Return the header and the rows as lines of aligned columns."""
    return [_format_columns(HEADER), *map(_format_row, rows)]


def _format_row(row: Row) -> str:
    return _format_columns(_cells(row))


def _format_columns(cells: Sequence[str]) -> str:
    method, metric_name, *numbers = cells
    return f"{method:32} {metric_name:32} {_align_right(numbers)}"


def _align_right(numbers: Sequence[str]) -> str:
    return " ".join(f"{number:>10}" for number in numbers)


def _cells(row: Row) -> list[str]:
    return [row["method"], _value_name(row), *_format_numbers(row), str(row["n"])]


def _format_numbers(row: Row) -> list[str]:
    return [f"{row[key]:.4g}" for key in ("value", "low", "high")]


def _value_name(row: Row) -> str:
    """Return the metric as spelled, and the name of its value unless that only repeats the metric's."""
    if row["part"] == _strip_options(row["metric"]):
        return str(row["metric"])
    return f"{row['metric']} {row['part']}"


def _strip_options(metric_text: str) -> str:
    return metric_text.partition(":")[0]


def format_refusal(entry: Mapping[str, str]) -> str:
    """Return why a method or metric could not run, as a line."""
    return f"refused: {entry['name']}: {entry['reason']}"


def format_html(rows: Sequence[Row], refused: Sequence[Mapping[str, str]]) -> str:
    """Return the rows as an HTML table, and below it what was refused."""
    return _html_table(rows) + "".join(map(_html_note, refused))


def _html_table(rows: Sequence[Row]) -> str:
    body = "".join(map(_html_row, rows))
    return f"<table><thead><tr>{_html_cells('th', HEADER)}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(row: Row) -> str:
    return f"<tr>{_html_cells('td', _cells(row))}</tr>"


def _html_cells(tag: str, texts: Sequence[str]) -> str:
    # Methods and metrics are shown as the user spelled them, which may hold any character.
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _html_note(entry: Mapping[str, str]) -> str:
    return f"<p>{html.escape(entry['name'])}: {html.escape(entry['reason'])}</p>"
