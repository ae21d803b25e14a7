"""Read minimal pairs: a sentence's beginning, the word that fits, and one that does not."""

from collections.abc import Iterator
from pathlib import Path

from clearhead.data.evidence import locate_evidence
from clearhead.data.readers.tables import named_rows
from clearhead.data.table_endings import file_suffix
from clearhead.data.task import BadRow, Example, Task, Writing, build_task, reader, skip_invalid
from clearhead.data.text_files import Row, read_first_line, require_text

PROMPT_COLUMN = "one_prefix_prefix"
ANSWER_COLUMN = "one_prefix_word_good"
FOIL_COLUMN = "one_prefix_word_bad"
EVIDENCE_COLUMN = "target"
PREVIEW_BYTES = 2**12


def _has_minimal_pairs(path: Path) -> bool:
    """Return whether this is a table of minimal pairs, or a folder of them."""
    tables = _list_tables(path)
    return bool(tables) and _is_pairs_table(tables[0])


def _list_tables(path: Path) -> list[Path]:
    if path.is_dir():
        # The order of files in a folder differs between systems.
        return sorted(path.glob("*.csv"))
    if file_suffix(path) == ".csv":
        return [path]
    return []


def _is_pairs_table(path: Path) -> bool:
    # The heading is enough, and a folder may hold many large tables.
    return PROMPT_COLUMN in read_first_line(path, PREVIEW_BYTES).split(",")


@reader(_has_minimal_pairs)
def minimal_pairs(path: Path, *, limit: int | None = None) -> Task:
    """Minimal pairs of BLiMP, a .csv or a folder of them: prefix, good and bad next word, and the word that decides."""
    rows: list[Example | BadRow] = []
    for table in _list_tables(path):
        rows += _read_table(table)
    return build_task(path.name, rows, limit=limit)


def _read_table(path: Path) -> Iterator[Example | BadRow]:
    # The name of the table, as rows of all tables are numbered from 1.
    rows, _, _ = named_rows(path, ",", PROMPT_COLUMN, None)
    for number, row in rows:
        if isinstance(row, BadRow):
            yield row
        else:
            yield _make_example(number, row, path.stem)


@skip_invalid
def _make_example(number: int, row: Row, table: str) -> Example:
    prompt = require_text(row, PROMPT_COLUMN)
    writing = _make_writing(row)
    gold = locate_evidence(prompt, require_text(row, EVIDENCE_COLUMN))
    return Example(f"{table}-{number}", prompt, gold=gold, writing=writing)


def _make_writing(row: Row) -> Writing:
    return Writing(require_text(row, ANSWER_COLUMN), require_text(row, FOIL_COLUMN))
