"""Benchmark runs named at the start of the server: their reports, and their examples sorted by metric value."""

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
from clearhead.web.upload import encode_jpeg, normalize_image

EXAMPLES_PER_PAGE = 50
EXPLANATION_COLUMNS = ("text", "second", "label", "probability", "model")


class Run:
    """One run folder, and the data that it was made from if that was named too; what is read is kept."""

    def __init__(self, folder: Path, data: Sequence[Path] = ()) -> None:
        self.results = RunFolder(folder)
        self.summary = summarise_run(self.results)
        self.data = self._find_data(data)

    def _find_data(self, candidates: Sequence[Path]) -> Path | None:
        """Return the data whose files are the same as when the run was made."""
        expected = self.results.manifest["hashes"]["task"]
        for path in candidates:
            if hash_files(path) == expected:
                return path
        return None

    @cached_property
    def images(self) -> dict[str, Any]:
        """Image inputs of the run by example id; run folders themselves store texts only."""
        if self.data is None:
            return {}
        plan = self.results.manifest["plan"]
        task = read_task(self.data, limit=plan["limit"], **plan["columns"])
        return {example.id: example for example in task.examples if not isinstance(example.input, str | tuple)}

    def render_image(self, example_id: str, limits: Limits) -> bytes:
        """Return an image of the run's data as a JPEG; ids are looked up in the data, never used as paths."""
        if example_id not in self.images:
            raise BadInput("This run has no such image, or the server was started without --data for it.")
        raw = self.images[example_id].raw
        if isinstance(raw, Path):
            raw = Picture(raw.read_bytes()).opened()
        return encode_jpeg(normalize_image(raw, limits))

    @cached_property
    def page(self) -> str:
        """The report of `clearhead report`."""
        return report.page(self.results, self.summary)

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, float]]:
        """Metric values by (method, metric), then by example, of examples that have a single number."""
        values: dict[tuple[str, str], dict[str, float]] = {}
        for row in self.results.values():
            if row["value"] is not None:
                by_example = values.setdefault((row["method"], row["metric"]), {})
                by_example[str(row["example"])] = float(row["value"])
        return values

    @cached_property
    def explanations(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Text and prediction of the first explanation by (method, example)."""
        explanations: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.results.explanations():
            columns = {key: row[key] for key in EXPLANATION_COLUMNS}
            explanations.setdefault((row["name"], str(row["example"])), columns)
        return explanations

    def describe(self, name: str) -> RunInfo:
        """Return the run's methods and metrics, each once and in the order of the run."""
        methods = dict.fromkeys(method for method, _ in self.values)
        metrics = dict.fromkeys(metric for _, metric in self.values)
        return RunInfo(name=name, methods=list(methods), metrics=list(metrics))

    def rank_examples(self, method: str, metric: str, *, lowest: bool, start: int) -> Examples:
        """Return a page of examples, those with the highest (or lowest) values first."""
        values = self._find_values(method, metric)
        # Not reverse=True, which would also reverse the order of examples with equal values.
        sign = 1 if lowest else -1
        ranked = sorted(values.items(), key=lambda entry: sign * entry[1])
        page = ranked[start : start + EXAMPLES_PER_PAGE]
        examples = [self._describe_example(method, example_id, value) for example_id, value in page]
        return Examples(total=len(ranked), examples=examples)

    def _find_values(self, method: str, metric: str) -> dict[str, float]:
        if (method, metric) not in self.values:
            available = [" ".join(pair) for pair in self.values]
            raise unknown_name("method and metric of this run", f"{method} {metric}", available)
        return self.values[method, metric]

    def _describe_example(self, method: str, example_id: str, value: float) -> Example:
        row = self.explanations.get((method, example_id), {})
        columns = (row.get("text"), row.get("second"))
        texts = [text for text in columns if text is not None]
        return Example(
            example=example_id,
            value=value,
            text=texts,
            label=str(row.get("label", "")),
            probability=row.get("probability"),
            model=str(row.get("model", "")),
            picture=not texts and example_id in self.images,
        )


class Runs(Mapping[str, Run]):
    """Runs by the names of their folders."""

    def __init__(self, folders: list[Path], data: Sequence[Path] = ()) -> None:
        _check_paths(data)
        self._data = data
        self._folders = {folder.resolve().name: folder for folder in folders}
        self._open: dict[str, Run] = {}
        # Only the folders' own names appear on the page and in addresses; full paths are private.
        if len(self._folders) != len(folders):
            raise BadOption("Two runs would have the same name on the page: rename one of the folders.")
        self._check_data_used()

    def _check_data_used(self) -> None:
        # Opens all runs, so that a damaged one is reported at the start and not on the page.
        used = {run.data for run in self.values()}
        for path in self._data:
            if path not in used:
                raise BadOption(f"No run was made from '{path}' in its present state: check --data and --run.")

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


def _check_paths(data: Sequence[Path]) -> None:
    for path in data:
        if not path.exists():
            raise BadOption(f"No file or folder '{path}': check --data.")
