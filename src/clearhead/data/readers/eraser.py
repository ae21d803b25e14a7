"""Documents with the passages that people marked as reasons."""

from pathlib import Path

from clearhead.data.columns import label_value
from clearhead.data.task import BadRow, Example, Spans, Task, build_task, reader
from clearhead.data.text_files import Row, ending, json_lines, lines
from clearhead.errors import BadInput

SPANS = "rationale_char_spans"


def _marked(path: Path) -> bool:
    return ending(path) in (".jsonl", ".ndjson") and any(f'"{SPANS}"' in line for line in lines(path, 1 << 18)[:1])


@reader(_marked)
def eraser_movies(path: Path, *, limit: int | None = None) -> Task:
    """Movie reviews of ERASER: one JSON object per line with text, label and rationale_char_spans."""
    rows = [row if isinstance(row, BadRow) else _example(number, row) for number, row in json_lines(path)]
    return build_task(path.name, rows, limit=limit)


def _example(number: int, row: Row) -> Example | BadRow:
    text = row.get("text")
    if not isinstance(text, str) or not text.strip():
        return BadRow(number, "no text in column 'text'")
    try:
        label = label_value(row.get("label"), "label")
        return Example(str(row.get("docid", number)), text, label, _spans(row.get(SPANS), len(text)))
    except BadInput as error:
        return BadRow(number, str(error))


def _spans(found: object, length: int) -> Spans:
    """Marked characters as (0, start, end), checked against the text."""
    try:
        spans = tuple((0, int(start), int(end)) for start, end in found)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise BadInput(f"'{SPANS}' is not a list of [start, end]") from None
    if any(not 0 <= start < end <= length for _, start, end in spans):
        raise BadInput(f"'{SPANS}' points outside the text")
    return spans
