"""A task by its path or name: the reader is picked by what the file is."""

from numbers import Integral
from pathlib import Path
from typing import Any

from clearhead.data.task import TASKS, Reader, Task
from clearhead.errors import Argument, BadFile, BadInput, BadOption
from clearhead.registry import unknown_name

COLUMNS = ("text_column", "label_column")


def read_task(source: Any, *, reader: str | None = None, **options: Any) -> Task:
    """A task from a file or folder, or `hf:NAME` for a Hugging Face data set; a Task is answered as it is.

    `reader` names one of `clearhead.tasks()` where the ending does not tell. Further options are the reader's, such as
    `text_column`, `label_column` and `limit`; those that are None are left out.

    >>> read_task("sst2/dev.tsv", limit=100)     # doctest: +SKIP
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(source, Task):
        if given or reader is not None:
            named = [*given, *([] if reader is None else ["reader"])]
            raise BadOption(f"The task is already read, so {', '.join(named)} cannot be given.")
        return source
    _check(source)
    found = _reader(source) if reader is None else TASKS[reader]
    for name in given:
        if name not in found.options:
            raise BadOption(str(unknown_name(f"option of the reader '{found.name}'", name, list(found.options))))
    given |= {name: _column(name, given[name]) for name in COLUMNS if name in given}
    if found.name == "hugging-face":
        return found.read(source, **given)
    return found.read(_existing(source), **given)


def _check(source: Any) -> None:
    if not isinstance(source, str | Path):
        raise BadInput(f"A {type(source).__name__} is not a task: give a Task, a file, a folder or 'hf:NAME'.")
    if not str(source).strip() or "\0" in str(source):
        raise BadInput(f"{str(source)!r} names no task: give a file, a folder or 'hf:NAME'.")


def _column(name: str, value: Any) -> str:
    """A column by its name or, as some files have no names, its number."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadOption(Argument(name, value), " must name a column, or two with a comma for pairs of texts.")
    return value


def _existing(source: str | Path) -> Path:
    path = Path(source)
    if not path.exists():
        raise BadFile(f"There is no file or folder '{source}'. Check the name, or write hf:NAME for a data set's name.")
    return path


def _reader(source: str | Path) -> Reader:
    if isinstance(source, str) and source.startswith("hf:"):
        return TASKS["hugging-face"]
    path = _existing(source)
    for found in TASKS.values():
        if found.matches(path):
            return found
    raise BadFile(f"'{source}' is of a kind that is not read by itself. Name a reader: {', '.join(TASKS)}.")
