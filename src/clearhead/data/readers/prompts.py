"""Read prompts of language models with answers, foils, evidence and sources."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearhead.data.columns import find_id, rename_repeated
from clearhead.data.evidence import locate_evidence
from clearhead.data.table_endings import file_suffix
from clearhead.data.task import BadRow, Example, Task, Writing, build_task, reader, skip_invalid
from clearhead.data.text_files import Row, is_text, json_lines, read_first_line, require_text
from clearhead.errors import BadInput

PROMPT_COLUMN = "prompt"
SUFFIXES = (".jsonl", ".ndjson")
# The columns by which a file of LAMBADA passages is recognised.
LAMBADA_COLUMNS = ("lambadaIndex", "rationale")
PREVIEW_BYTES = 2**18


def _starts_with_columns(path: Path, columns: tuple[str, ...]) -> bool:
    """Return whether the first line names these columns."""
    first_line = read_first_line(path, PREVIEW_BYTES)
    return all(f'"{column}"' in first_line for column in columns)


def _has_prompts(path: Path) -> bool:
    return file_suffix(path) in SUFFIXES and _starts_with_columns(path, (PROMPT_COLUMN,))


def _is_lambada(path: Path) -> bool:
    # The published file holds JSON lines under the suffix .json.
    return file_suffix(path) in (".json", *SUFFIXES) and _starts_with_columns(path, LAMBADA_COLUMNS)


@reader(_has_prompts)
def prompts(path: Path, *, limit: int | None = None) -> Task:
    """One JSON object per line: prompt (a text or chat messages), and optionally answer, foil, evidence and sources.

    `evidence` is a text of the prompt, or a list of texts or [start, end] characters. Sources that do not occur in the
    prompt are put in front of it.
    """
    return _read_rows(path, _make_example, limit)


def _read_rows(path: Path, make: Callable[[int, Row], Example | BadRow], limit: int | None) -> Task:
    seen: Counter[str] = Counter()
    rows: list[Example | BadRow] = []
    for number, row in json_lines(path):
        if isinstance(row, BadRow):
            rows.append(row)
        else:
            rows.append(rename_repeated(make(number, row), number, seen))
    return build_task(path.name, rows, limit=limit)


@skip_invalid
def _make_example(number: int, row: Row) -> Example:
    sources = _parse_sources(row.get("sources"))
    prompt = _add_sources(_parse_prompt(row.get(PROMPT_COLUMN)), sources)
    writing = _make_writing(row, sources)
    gold = locate_evidence(prompt, row.get("evidence"))
    return Example(find_id(number, row, None), prompt, gold=gold, writing=writing)


def _make_writing(row: Row, sources: tuple[str, ...]) -> Writing:
    return Writing(_parse_optional(row, "answer"), _parse_optional(row, "foil"), sources)


def _parse_prompt(value: Any) -> Any:
    """Return a text, or a list of chat messages; raise BadInput for anything else."""
    if not is_text(value) and not _is_chat(value):
        raise BadInput(f"no text and no chat messages (role, content) in column '{PROMPT_COLUMN}'")
    return value


def _is_chat(value: Any) -> bool:
    return bool(value) and _is_list(value, _is_message)


def _is_list(value: Any, is_member: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_member, value))


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and is_text(message.get("role")) and isinstance(message.get("content"), str)


def _parse_optional(row: Row, column: str) -> str | None:
    # Absent and null are the same; a blank text is a mistake.
    if row.get(column) is None:
        return None
    return require_text(row, column)


def _parse_sources(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not _is_list(value, is_text):
        raise BadInput("'sources' is not a list of texts")
    return tuple(value)


def _add_sources(prompt: Any, sources: tuple[str, ...]) -> Any:
    """Put the sources that a text does not contain in front of it, as paragraphs."""
    if not isinstance(prompt, str):
        return prompt
    missing = [source for source in sources if source not in prompt]
    return "\n\n".join([*missing, prompt])


@reader(_is_lambada)
def lambada(path: Path, *, limit: int | None = None) -> Task:
    """Annotated LAMBADA: passages whose last word is the answer, with the characters people marked as evidence."""
    return _read_rows(path, _make_passage, limit)


@skip_invalid
def _make_passage(number: int, row: Row) -> Example:
    prompt, answer = _split_last_word(row.get("text"))
    gold = locate_evidence(prompt, row.get("rationale"))
    return Example(str(row.get("lambadaIndex", number)), prompt, gold=gold, writing=Writing(answer))


def _split_last_word(text: Any) -> tuple[str, str]:
    """Return the passage before its last word, without the blank between them, and that word."""
    # rsplit takes all blanks between the words, where rpartition would leave some.
    words = str(text).rsplit(maxsplit=1)
    _require_two_words(text, words)
    return words[0], words[1]


def _require_two_words(text: Any, words: list[str]) -> None:
    if not is_text(text) or len(words) < 2:
        raise BadInput("no passage of two words or more in column 'text'")
