"""Read a task by path or name: the reader is chosen by the file's suffix and content."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from clearhead.data.task import TASKS, Reader, Task
from clearhead.errors import Argument, BadFile, BadInput, BadOption
from clearhead.registry import unknown_name

COLUMN_OPTIONS = ("text_column", "label_column")
HUB_READER = "hugging-face"


def read_task(source: Any, *, reader: str | None = None, **options: Any) -> Task:
    """Return a task from a file or folder, or `hf:NAME` for a Hugging Face data set; a Task is returned as it is.

    `reader` names one of `clearhead.tasks()` if the path does not decide. Further options are the reader's, such as
    `text_column`, `label_column` and `limit`; those that are None are ignored.

    >>> read_task("sst2/dev.tsv", limit=100)     # doctest: +SKIP
    """
    # The command line passes every flag, None for those that are not given.
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(source, Task):
        _refuse_options(options, reader)
        return source
    _validate_source(source)
    chosen = _choose_reader(source, reader)
    return _read_with(chosen, source, _parse_options(chosen, options))


def _parse_options(reader: Reader, options: dict[str, Any]) -> dict[str, Any]:
    _validate_options(reader, options)
    columns = {name: _parse_column(name, options[name]) for name in COLUMN_OPTIONS if name in options}
    return options | columns


def _choose_reader(source: str | Path, name: str | None) -> Reader:
    if name is None:
        return _find_reader(source)
    return TASKS[name]


def _read_with(reader: Reader, source: str | Path, options: Mapping[str, Any]) -> Task:
    # The only source that is not a path: the name of a data set on the hub.
    if reader.name != HUB_READER:
        source = _require_path(source)
    return reader.read(source, **options)


def _refuse_options(options: Iterable[str], reader: str | None) -> None:
    names = list(options)
    if reader is not None:
        names.append("reader")
    if names:
        raise BadOption(f"The task is already read, so {', '.join(names)} cannot be given.")


def focus_examples(task: Task, focus: Any) -> Task:
    """Return a task with the part of the output that is explained of every example; None leaves it as it is."""
    if focus is None:
        return task
    return replace(task, examples=[replace(example, focus=focus) for example in task.examples])


def _validate_source(source: Any) -> None:
    if not isinstance(source, str | Path):
        raise BadInput(f"A {type(source).__name__} is not a task: give a Task, a file, a folder or 'hf:NAME'.")
    _require_file_name(source)


def _require_file_name(source: Any) -> None:
    if not _is_file_name(str(source)):
        raise BadInput(f"{str(source)!r} names no task: give a file, a folder or 'hf:NAME'.")


def _is_file_name(text: str) -> bool:
    # A null character would raise ValueError in every function of pathlib.
    return bool(text.strip()) and "\0" not in text


def _validate_options(reader: Reader, options: Iterable[str]) -> None:
    for name in options:
        if name not in reader.options:
            raise _unknown_option(reader, name)


def _unknown_option(reader: Reader, name: str) -> BadOption:
    # BadOption, as for methods, but with the suggestion of the registry.
    return BadOption(str(unknown_name(f"option of the reader '{reader.name}'", name, list(reader.options))))


def _parse_column(name: str, value: Any) -> str:
    """Return a column's name, or its number as text, for files without a header."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadOption(Argument(name, value), " must name a column, or two with a comma for pairs of texts.")
    return value


def _find_reader(source: str | Path) -> Reader:
    if isinstance(source, str) and source.startswith("hf:"):
        return TASKS[HUB_READER]
    return _match_reader(source)


def _match_reader(source: str | Path) -> Reader:
    path = _require_path(source)
    for reader in TASKS.values():
        if reader.matches(path):
            return reader
    raise _no_reader(source)


def _no_reader(source: str | Path) -> BadFile:
    return BadFile(f"No reader recognises '{source}'. Name a reader: {', '.join(TASKS)}.")


def _require_path(source: str | Path) -> Path:
    path = Path(source)
    if not path.exists():
        raise BadFile(f"There is no file or folder '{source}'. Check the name, or write hf:NAME for a data set's name.")
    return path
