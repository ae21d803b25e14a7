"""Questions about a passage, with the answer's place in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.task import BadRow, Example, Spans, Task, build_task, reader
from clearhead.data.text_files import content, ending
from clearhead.errors import BadFile


@reader(lambda path: ending(path) == ".json")
def squad(path: Path, *, limit: int | None = None) -> Task:
    """SQuAD v1 and v2 JSON: (question, passage) pairs with the answer's characters; bad rows by question number."""
    try:
        articles = json.loads(content(path))["data"]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"'{path}' is not JSON: {error}.") from error
    except (KeyError, TypeError):
        raise BadFile(f"'{path}' is not in SQuAD's format: it has no 'data'. Save tables as .jsonl.") from None
    rows = [_example(number, *one) for number, one in enumerate(_questions(articles), 1)]
    return build_task(path.name, rows, limit=limit)


def _questions(articles: Any) -> Iterator[tuple[Any, Any]]:
    for article in articles if isinstance(articles, list) else []:
        for paragraph in _members(article, "paragraphs"):
            for question in _members(paragraph, "qas"):
                yield (paragraph.get("context") if isinstance(paragraph, dict) else None), question


def _members(one: Any, name: str) -> list[Any]:
    """What an article or a paragraph holds; where that is no list, nothing that could be read, to be counted as one."""
    found = one.get(name, []) if isinstance(one, dict) else None
    return found if isinstance(found, list) else [None]


def _example(number: int, passage: Any, question: Any) -> Example | BadRow:
    asked = question.get("question") if isinstance(question, dict) else None
    for name, text in (("context", passage), ("question", asked)):
        if not isinstance(text, str) or not text.strip():
            return BadRow(number, f"no text in '{name}'")
    try:
        spans = _answers(question, passage)
    except (KeyError, TypeError, ValueError) as error:
        return BadRow(number, str(error) if isinstance(error, ValueError) else "answers are not in SQuAD's format")
    return Example(str(question.get("id", number)), (asked, passage), None, spans)


def _answers(question: dict[str, Any], passage: str) -> Spans:
    """Where the answers lie in the passage, each once; none for a question that cannot be answered."""
    if question.get("is_impossible"):
        return ()
    spans = [(1, int(one["answer_start"]), int(one["answer_start"]) + len(one["text"])) for one in question["answers"]]
    for (_, start, end), one in zip(spans, question["answers"], strict=True):
        if passage[start:end] != one["text"]:
            raise ValueError(f"the answer '{one['text']}' is not at character {start} of the passage")
    return tuple(dict.fromkeys(spans))
