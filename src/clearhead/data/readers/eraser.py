"""Read documents with human rationales."""

from pathlib import Path
from typing import Any

from clearhead.data.columns import parse_label
from clearhead.data.table_endings import file_suffix
from clearhead.data.task import BadRow, Example, Spans, Task, build_task, reader, skip_invalid
from clearhead.data.text_files import Row, is_text, json_lines, read_first_line
from clearhead.errors import BadInput

SPANS_COLUMN = "rationale_char_spans"
# Enough for the first line, which holds a whole document.
PREVIEW_BYTES = 2**18


def _has_rationales(path: Path) -> bool:
    if file_suffix(path) not in (".jsonl", ".ndjson"):
        return False
    return f'"{SPANS_COLUMN}"' in read_first_line(path, PREVIEW_BYTES)


@reader(_has_rationales)
def eraser_movies(path: Path, *, limit: int | None = None) -> Task:
    """Movie reviews of ERASER: one JSON object per line with text, label and rationale_char_spans."""
    rows = [_convert_row(number, row) for number, row in json_lines(path)]
    return build_task(path.name, rows, limit=limit)


def _convert_row(number: int, row: Row | BadRow) -> Example | BadRow:
    if isinstance(row, BadRow):
        return row
    return _make_example(number, row)


@skip_invalid
def _make_example(number: int, row: Row) -> Example:
    text = _find_text(row)
    label = parse_label(row.get("label"), "label")
    spans = _parse_spans(row.get(SPANS_COLUMN), len(text))
    return Example(str(row.get("docid", number)), text, label, spans)


def _find_text(row: Row) -> str:
    text = row.get("text")
    if not is_text(text):
        raise BadInput("no text in column 'text'")
    return str(text)


def _parse_spans(value: Any, length: int) -> Spans:
    """Return the marked characters as (0, start, end); raise BadInput if they do not fit the text."""
    try:
        spans = tuple((0, int(start), int(end)) for start, end in value)
    except (TypeError, ValueError):
        raise BadInput(f"'{SPANS_COLUMN}' is not a list of [start, end]") from None
    _validate_spans(spans, length)
    return spans


def _validate_spans(spans: Spans, length: int) -> None:
    # Offsets counted in bytes instead of characters run over the end.
    for _, start, end in spans:
        if not 0 <= start < end <= length:
            raise BadInput(f"'{SPANS_COLUMN}' points outside the text")
