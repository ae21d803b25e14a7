"""A task by its path or name: the reader is picked by what the file is."""

from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.registry import unknown
from clearhead.task import TASKS, Reader, Task


def read_task(source: Any, *, reader: str | None = None, **options: Any) -> Task:
    """A task from a file or folder, or `hf:NAME` for a Hugging Face data set; a Task is answered as it is.

    `reader` names one of `clearhead.tasks()` where the ending does not tell. Further options are the reader's, such as
    `text_column`, `label_column` and `limit`; those that are None are left out.

    >>> read_task("sst2/dev.tsv", limit=100)     # doctest: +SKIP
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(source, Task):
        if given:
            raise BadOption(f"The task is already read, so {', '.join(given)} cannot be given.")
        return source
    if not isinstance(source, str | Path):
        raise BadInput(f"A {type(source).__name__} is not a task: give a Task, a file, a folder or 'hf:NAME'.")
    found = TASKS[reader] if reader is not None else _reader(source)
    for name in given:
        if name not in found.options:
            raise BadOption(str(unknown(f"option of the reader '{found.name}'", name, list(found.options))))
    return found.read(source if found.name == "hugging-face" else Path(source), **given)


def _reader(source: str | Path) -> Reader:
    if isinstance(source, str) and source.startswith("hf:"):
        return TASKS["hugging-face"]
    path = Path(source)
    if not path.exists():
        raise BadFile(f"There is no file or folder '{source}'. Check the name, or write hf:NAME for a data set's name.")
    for found in TASKS.values():
        if found.matches(path):
            return found
    raise BadFile(f"'{source}' is of a kind that is not read by itself. Name a reader: {', '.join(TASKS)}.")
