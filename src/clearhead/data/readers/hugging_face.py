"""Data sets of the Hugging Face hub, the only file that imports `datasets`."""

from pathlib import Path
from typing import Any

from clearhead.data.columns import table_examples
from clearhead.data.task import Task, build_task, reader
from clearhead.data.text_files import Numbered
from clearhead.errors import BadFile, BadOption


def _saved(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))


@reader(_saved)
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
    name, own_config, own_split = _parts(str(source))
    found = _opened(name, split or own_split or "test", config or own_config)
    rows: Numbered = ((number, dict(row)) for number, row in enumerate(found, 1))
    examples, label = table_examples(name, rows, Path(name), text_column, label_column)
    names = getattr(found.features.get(label), "names", None) if label else None
    return build_task(name, examples, limit=limit, labels=tuple(names) if names else None)


def _parts(source: str) -> tuple[str, str | None, str | None]:
    """Name, configuration and split out of hf:NAME:CONFIG@SPLIT; an existing folder may hold such signs in its name."""
    whole = source.removeprefix("hf:")
    if Path(whole).exists():
        return whole, None, None
    name, _, split = whole.partition("@")
    name, _, config = (name, "", "") if Path(name).exists() else name.partition(":")
    return name, config or None, split or None


def _opened(name: str, split: str, config: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise BadOption("Hugging Face data sets need the package `datasets`: pip install datasets.") from error
    try:
        if not _saved(Path(name)):
            return datasets.load_dataset(name, config, split=split)
        found = datasets.load_from_disk(name)
    except Exception as error:
        raise BadFile(f"The data set '{name}' cannot be loaded: {str(error).splitlines()[0]}") from error
    if hasattr(found, "features") and not isinstance(found, dict):
        return found
    if split not in found:
        raise BadOption(f"'{name}' has no split '{split}'. There is: {', '.join(found)}.")
    return found[split]
