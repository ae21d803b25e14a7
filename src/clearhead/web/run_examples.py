"""Examples of a run as the page lists them: text, right and predicted label, and the search and slices over them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.views.text_spans import escape_hidden
from clearhead.web.schemas import Slice


@dataclass(frozen=True)
class RunExample:
    """One example as a method explained it; unknown labels are None."""

    id: str
    texts: tuple[str, ...]
    label: str
    probability: float | None
    model: str
    gold: str | None
    predicted: str | None
    is_wrong: bool | None

    def matches(self, search: str) -> bool:
        """Return whether the text or the id contains what is searched for, in any case."""
        folded = search.casefold()
        return any(folded in text.casefold() for text in (self.id, *self.texts))


@dataclass(frozen=True)
class ExampleFilter:
    """Which examples are listed: by words in the text, by whether the prediction is right, and by class."""

    search: str = ""
    slice: Slice = "all"
    gold: str | None = None
    predicted: str | None = None

    def accepts(self, example: RunExample) -> bool:
        """Return whether an example is listed."""
        return self._accepts_outcome(example) and self._accepts_labels(example) and example.matches(self.search)

    def _accepts_outcome(self, example: RunExample) -> bool:
        if self.slice == "all":
            return True
        return example.is_wrong is (self.slice == "wrong")

    def _accepts_labels(self, example: RunExample) -> bool:
        return self.gold in (None, example.gold) and self.predicted in (None, example.predicted)


def parse_example(row: Mapping[str, Any]) -> RunExample:
    """Return an example from a record of a run."""
    source = _parse_json(row.get("source"))
    predicted = _parse_json(row.get("diagnostics")).get("predicted")
    return RunExample(
        id=str(row["example"]),
        texts=_list_texts(row),
        label=escape_hidden(str(row.get("label", ""))),
        probability=_read_finite(row.get("probability")),
        model=_hide_folder(str(row.get("model", ""))),
        gold=_spell_label(source.get("gold")),
        predicted=_spell_label(predicted),
        is_wrong=source.get("wrong"),
    )


def _spell_label(label: Any) -> str | None:
    # Characters that reorder others could make a label read as another.
    return None if label is None else escape_hidden(str(label))


def _parse_json(text: Any) -> dict[str, Any]:
    """Return a column of JSON text; nothing if runs of earlier versions have no such column."""
    parsed = json.loads(text) if isinstance(text, str) else None
    return parsed if isinstance(parsed, dict) else {}


def _list_texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the text of an explanation, both of a pair, or none of an image."""
    texts = (row.get("text"), row.get("second"))
    return tuple(text for text in texts if text is not None)


def _read_finite(number: Any) -> float | None:
    # JSON has neither NaN nor infinity.
    if number is None or not math.isfinite(number):
        return None
    return float(number)


def _hide_folder(model: str) -> str:
    # As on the page, where a folder of the server appears without its path; names of embedded models have a slash.
    if _is_folder(model):
        return model.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return model


def _is_folder(model: str) -> bool:
    return model.startswith(("/", ".", "\\")) or "\\" in model


def list_labels(examples: Iterable[RunExample]) -> list[str]:
    """Return the names of all classes that examples have or are predicted to have, in alphabetical order."""
    names: set[str] = set()
    for example in examples:
        names.update(name for name in (example.gold, example.predicted) if name is not None)
    return sorted(names)


def count_slices(examples: Sequence[RunExample]) -> dict[str, int]:
    """Return how many examples are predicted rightly and wrongly."""
    return {
        "wrong": sum(example.is_wrong is True for example in examples),
        "right": sum(example.is_wrong is False for example in examples),
    }
