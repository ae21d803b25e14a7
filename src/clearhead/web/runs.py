"""Finished benchmark runs, named at the start: their report, and their examples sorted by value."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from clearhead import report
from clearhead.benchmark import summary_of
from clearhead.errors import BadOption
from clearhead.registry import unknown
from clearhead.results import Results
from clearhead.web.question import Example, Examples, Ran

SHOWN = 50


class Run:
    """One run folder; what is read of it is kept."""

    def __init__(self, folder: Path) -> None:
        self.results = Results(folder)
        self.summary = summary_of(self.results)

    @cached_property
    def page(self) -> str:
        """The report of `clearhead report`."""
        return report.page(self.results, self.summary)

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, float]]:
        """By method and metric the value of each example that has one number."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for row in self.results.values():
            if row["value"] is not None:
                found.setdefault((row["method"], row["metric"]), {})[str(row["example"])] = float(row["value"])
        return found

    @cached_property
    def explained(self) -> dict[tuple[str, str], dict[str, Any]]:
        """By method and example the first explanation; runs keep their texts, not their pictures."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.results.explanations():
            kept = {key: row[key] for key in ("text", "second", "label", "probability", "model")}
            found.setdefault((row["name"], str(row["example"])), kept)
        return found

    def listed(self, name: str) -> Ran:
        pairs = list(self.values)
        methods, metrics = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
        return Ran(name=name, methods=methods, metrics=metrics)

    def examples(self, method: str, metric: str, *, lowest: bool, start: int) -> Examples:
        """The examples with the highest, or lowest, values."""
        if (method, metric) not in self.values:
            raise unknown(
                "method and metric of this run", f"{method} {metric}", [" ".join(pair) for pair in self.values]
            )
        ranked = sorted(self.values[method, metric].items(), key=lambda entry: entry[1] if lowest else -entry[1])
        chosen = ranked[start : start + SHOWN]
        return Examples(total=len(ranked), examples=list(self._shown(method, chosen)))

    def _shown(self, method: str, ranked: list[tuple[str, float]]) -> Iterator[Example]:
        for name, value in ranked:
            row = self.explained.get((method, name), {})
            texts = [text for text in (row.get("text"), row.get("second")) if text is not None]
            yield Example(
                example=name,
                value=value,
                text=texts,
                label=str(row.get("label", "")),
                probability=row.get("probability"),
                model=str(row.get("model", "")),
            )


class Runs(Mapping[str, Run]):
    """Runs by the names of their folders, opened when first asked for."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = {folder.resolve().name: folder for folder in folders}
        self._open: dict[str, Run] = {}
        if len(self._folders) != len(folders):
            raise BadOption("Two runs would have the same name on the page: rename one of the folders.")
        for name in self._folders:
            self[name]

    def __getitem__(self, name: str) -> Run:
        if name not in self._folders:
            raise unknown("run of this server", name, list(self._folders) or ["none: start with --run"])
        if name not in self._open:
            self._open[name] = Run(self._folders[name])
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)
