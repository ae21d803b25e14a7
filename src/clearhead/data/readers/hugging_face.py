"""Read data sets of the Hugging Face hub; the only module that imports `datasets`."""

from pathlib import Path
from typing import Any

from clearhead.data.columns import make_examples
from clearhead.data.task import Task, build_task, reader
from clearhead.data.text_files import Numbered
from clearhead.errors import BadFile, BadOption, first_line

# Files by which a folder written by `save_to_disk` is recognised.
SAVED_FILES = ("dataset_info.json", "dataset_dict.json")


def is_saved_dataset(path: Path) -> bool:
    """Return whether a folder was written by `save_to_disk` of the package `datasets`."""
    return path.is_dir() and any((path / name).exists() for name in SAVED_FILES)


@reader(is_saved_dataset)
def hugging_face(
    source: Any,
    *,
    split: str | None = None,
    config: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    limit: int | None = None,
) -> Task:
    """A data set of the Hugging Face hub (hf:NAME), or one saved in a folder; needs the package `datasets`.

    hf:NAME:CONFIG@SPLIT names a configuration and a split, such as hf:glue:sst2@validation; the split is else `test`.
    """
    name, own_config, own_split = _parse_source(str(source))
    dataset = _load_dataset(name, config or own_config, split or own_split or "test")
    examples, label = make_examples(name, _number_rows(dataset), Path(name), text_column, label_column)
    return build_task(name, examples, limit=limit, labels=_find_class_names(dataset, label))


def _number_rows(dataset: Any) -> Numbered:
    for number, row in enumerate(dataset, 1):
        yield number, dict(row)


def _parse_source(source: str) -> tuple[str, str | None, str | None]:
    """Split hf:NAME:CONFIG@SPLIT into name, configuration and split."""
    text = source.removeprefix("hf:")
    # The path of an existing folder may contain @ and :.
    if Path(text).exists():
        return text, None, None
    text, split = _split_at(text, "@")
    if Path(text).exists():
        return text, None, split
    return *_split_at(text, ":"), split


def _split_at(text: str, mark: str) -> tuple[str, str | None]:
    """Split at the first mark; what follows is None if it is empty."""
    before, _, after = text.partition(mark)
    return before, after or None


def _load_dataset(name: str, config: str | None, split: str) -> Any:
    datasets = _import_datasets()
    try:
        if not is_saved_dataset(Path(name)):
            return datasets.load_dataset(name, config, split=split)
        saved = datasets.load_from_disk(name)
    except Exception as error:  # The library raises nearly any exception: network, files, unknown names.
        raise BadFile(f"The data set '{name}' cannot be loaded: {first_line(error)}") from error
    return _select_split(name, saved, split)


def _import_datasets() -> Any:
    # An optional dependency, imported when it is first needed.
    try:
        import datasets
    except ImportError as error:
        raise BadOption("Hugging Face data sets need the package `datasets`: pip install datasets.") from error
    return datasets


def _select_split(name: str, saved: Any, split: str) -> Any:
    if _is_single_split(saved):
        return saved
    _require_split(name, saved, split)
    return saved[split]


def _require_split(name: str, saved: Any, split: str) -> None:
    if split not in saved:
        raise _unknown_split(name, saved, split)


def _unknown_split(name: str, saved: Any, split: str) -> BadOption:
    return BadOption(f"'{name}' has no split '{split}'. Available: {', '.join(saved)}.")


def _is_single_split(saved: Any) -> bool:
    # A folder holds one split (a Dataset) or several (a DatasetDict).
    return hasattr(saved, "features") and not isinstance(saved, dict)


def _find_class_names(dataset: Any, label: str | None) -> tuple[str, ...] | None:
    if not label:
        return None
    # Only columns of type ClassLabel have names.
    names = getattr(dataset.features.get(label), "names", None) or ()
    return tuple(names) or None
