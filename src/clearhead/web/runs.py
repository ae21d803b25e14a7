"""Finished benchmark runs, named at the start: their report, and their examples sorted by value."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clearhead.bench import report
from clearhead.bench.run_folder import RunFolder, hash_files
from clearhead.bench.summary import summarise_run
from clearhead.data.read import read_task
from clearhead.data.task import Picture
from clearhead.errors import BadInput, BadOption
from clearhead.registry import unknown_name
from clearhead.web.limits import Limits
from clearhead.web.schemas import Example, Examples, RunInfo
from clearhead.web.upload import jpeg, shown

SHOWN = 50


class Run:
    """One run folder, with the data it was made from where that was named too; what is read of it is kept."""

    def __init__(self, folder: Path, data: Sequence[Path] = ()) -> None:
        self.results = RunFolder(folder)
        self.summary = summarise_run(self.results)
        self.data = next((path for path in data if hash_files(path) == self.results.manifest["hashes"]["task"]), None)

    @cached_property
    def pictures(self) -> dict[str, Any]:
        """By name the run's examples that are pictures; runs themselves keep texts only."""
        if self.data is None:
            return {}
        plan = self.results.manifest["plan"]
        task = read_task(self.data, limit=plan["limit"], **plan["columns"])
        return {one.id: one for one in task.examples if not isinstance(one.input, str | tuple)}

    def picture(self, example: str, limits: Limits) -> bytes:
        """A picture of the run's data as a JPEG; only names from the data are known here."""
        if example not in self.pictures:
            raise BadInput("The data of this run was not named when the server started, or has no such picture.")
        raw = self.pictures[example].raw
        return jpeg(shown(Picture(raw.read_bytes()).opened() if isinstance(raw, Path) else raw, limits))

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

    def listed(self, name: str) -> RunInfo:
        pairs = list(self.values)
        methods, metrics = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
        return RunInfo(name=name, methods=methods, metrics=metrics)

    def examples(self, method: str, metric: str, *, lowest: bool, start: int) -> Examples:
        """The examples with the highest, or lowest, values."""
        if (method, metric) not in self.values:
            raise unknown_name(
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
                picture=not texts and name in self.pictures,
            )


class Runs(Mapping[str, Run]):
    """Runs by the names of their folders, opened when first asked for."""

    def __init__(self, folders: list[Path], data: Sequence[Path] = ()) -> None:
        self._data = _existing(data)
        self._folders = {folder.resolve().name: folder for folder in folders}
        self._open: dict[str, Run] = {}
        if len(self._folders) != len(folders):
            raise BadOption("Two runs would have the same name on the page: rename one of the folders.")
        used = {self[name].data for name in self._folders}
        for path in self._data:
            if path not in used:
                raise BadOption(f"No run of this server was made from '{path}' as it is now: check --data and --run.")

    def __getitem__(self, name: str) -> Run:
        if name not in self._folders:
            raise unknown_name("run of this server", name, list(self._folders) or ["none: start with --run"])
        if name not in self._open:
            self._open[name] = Run(self._folders[name], self._data)
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


def _existing(data: Sequence[Path]) -> list[Path]:
    for path in data:
        if not path.exists():
            raise BadOption(f"There is no file or folder '{path}': check --data.")
    return list(data)
