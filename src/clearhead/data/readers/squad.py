"""Read questions about a passage, with the spans of their answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.task import BadRow, Example, Spans, Task, build_task, reader
from clearhead.data.text_files import file_suffix, read_content
from clearhead.errors import BadFile


@reader(lambda path: file_suffix(path) == ".json")
def squad(path: Path, *, limit: int | None = None) -> Task:
    """SQuAD v1 and v2 JSON: (question, passage) pairs with the answer's characters; bad rows by question number."""
    questions = enumerate(_iterate_questions(_read_articles(path)), 1)
    rows = [_make_example(number, passage, question) for number, (passage, question) in questions]
    return build_task(path.name, rows, limit=limit)


def _read_articles(path: Path) -> Any:
    try:
        return json.loads(read_content(path))["data"]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"'{path}' is not JSON: {error}.") from error
    except (KeyError, TypeError):
        raise BadFile(f"'{path}' is not in SQuAD's format: it has no 'data'. Save tables as .jsonl.") from None


def _iterate_questions(articles: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (passage, question) pairs, with None for what is damaged."""
    if not isinstance(articles, list):
        return
    for article in articles:
        for paragraph in _list_members(article, "paragraphs"):
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


def _make_example(number: int, passage: Any, question: Any) -> Example | BadRow:
    text = _get(question, "question")
    if not _is_text(passage):
        return BadRow(number, "no text in 'context'")
    if not _is_text(text):
        return BadRow(number, "no text in 'question'")
    try:
        spans = _find_answers(question, passage)
    except ValueError as error:
        return BadRow(number, str(error))
    except (KeyError, TypeError):
        return BadRow(number, "answers are not in SQuAD's format")
    return Example(str(question.get("id", number)), (text, passage), None, spans)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _find_answers(question: dict[str, Any], passage: str) -> Spans:
    """Return the distinct answer spans; none for a question that cannot be answered."""
    if question.get("is_impossible"):
        return ()
    spans = []
    for answer in question["answers"]:
        start = int(answer["answer_start"])
        end = start + len(answer["text"])
        if passage[start:end] != answer["text"]:
            raise ValueError(f"the answer '{answer['text']}' is not at character {start} of the passage")
        spans.append((1, start, end))
    # Several annotators often mark the same span.
    return tuple(dict.fromkeys(spans))
