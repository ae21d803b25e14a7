"""Read questions about a passage, with the spans of their answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.table_endings import file_suffix
from clearhead.data.task import Example, Spans, Task, build_task, reader, skip_invalid
from clearhead.data.text_files import is_text, read_content
from clearhead.errors import BadFile, BadInput


@reader(lambda path: file_suffix(path) == ".json")
def squad(path: Path, *, limit: int | None = None) -> Task:
    """SQuAD v1 and v2 JSON: (question, passage) pairs with the answer's characters; bad rows by question number."""
    # A question has no line of its own in a file of nested JSON.
    questions = enumerate(_iterate_questions(_read_articles(path)), 1)
    rows = [_make_example(number, passage, question) for number, (passage, question) in questions]
    return build_task(path.name, rows, limit=limit)


def _read_articles(path: Path) -> Any:
    try:
        return _read_json(path)["data"]
    except (KeyError, TypeError):
        raise BadFile(f"'{path}' is not in SQuAD's format: it has no 'data'. Save tables as .jsonl.") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_content(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"'{path}' is not JSON: {error}.") from error


def _iterate_questions(articles: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (passage, question) pairs, with None for what is damaged."""
    if not isinstance(articles, list):
        return
    for article in articles:
        for paragraph in _list_members(article, "paragraphs"):
            yield from _pair_questions(paragraph)


def _pair_questions(paragraph: Any) -> Iterator[tuple[Any, Any]]:
    passage = _get(paragraph, "context")
    for question in _list_members(paragraph, "qas"):
        yield passage, question


def _list_members(parent: Any, name: str) -> list[Any]:
    """Return a list in an article or paragraph; [None] if it is damaged, so that it counts as one bad row."""
    members = _get(parent, name, [])
    if isinstance(members, list):
        return members
    return [None]


def _get(parent: Any, name: str, default: Any = None) -> Any:
    """Return a member of a JSON object; None if `parent` is damaged, that is, no object."""
    if isinstance(parent, dict):
        return parent.get(name, default)
    return None


@skip_invalid
def _make_example(number: int, passage: Any, question: Any) -> Example:
    _require_text(passage, "context")
    text = _get(question, "question")
    _require_text(text, "question")
    spans = _parse_answers(question, passage)
    return Example(str(question.get("id", number)), (text, passage), None, spans)


def _require_text(value: Any, name: str) -> None:
    if not is_text(value):
        raise BadInput(f"no text in '{name}'")


def _parse_answers(question: dict[str, Any], passage: str) -> Spans:
    try:
        return _find_answers(question, passage)
    # Also from int(), for a start that is no number.
    except ValueError as error:
        raise BadInput(str(error)) from error
    except (KeyError, TypeError):
        raise BadInput("answers are not in SQuAD's format") from None


def _find_answers(question: dict[str, Any], passage: str) -> Spans:
    """Return the distinct answer spans; none for a question that cannot be answered."""
    if question.get("is_impossible"):
        return ()
    spans = [_locate_answer(answer, passage) for answer in question["answers"]]
    # Several annotators often mark the same span.
    return tuple(dict.fromkeys(spans))


def _locate_answer(answer: dict[str, Any], passage: str) -> tuple[int, int, int]:
    # A passage that was cleaned after the annotation no longer fits its offsets.
    start = int(answer["answer_start"])
    text = answer["text"]
    end = start + len(text)
    _require_answer_at(passage, text, start, end)
    return 1, start, end


def _require_answer_at(passage: str, text: str, start: int, end: int) -> None:
    if passage[start:end] != text:
        raise ValueError(f"the answer '{text}' is not at character {start} of the passage")
