"""Benchmark runs named at the start of the server: their reports, and their examples sorted by metric value."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clearhead.bench import report
from clearhead.bench.run_folder import RunFolder, require_manifest
from clearhead.bench.summary import summarise_run
from clearhead.data.read import read_task
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.manifest import hash_files
from clearhead.registry import unknown_name
from clearhead.web.limits import Limits
from clearhead.web.pictures import is_image, render_image
from clearhead.web.run_examples import ExampleFilter, RunExample, count_slices, list_labels, parse_example
from clearhead.web.schemas import Example, Examples, RunInfo

LOG = logging.getLogger("clearhead.web")
EXAMPLES_PER_PAGE = 50
EVERYTHING = ExampleFilter()
# Of one file of a run in memory: a small file of repeated values may hold any number of rows.
MAX_FILE_BYTES = 500_000_000
DAMAGED = "This run cannot be read: its files are damaged, or of another version."


class Run:
    """One run folder, and the data that it was made from if that was named too; what is read is kept."""

    def __init__(self, folder: Path, data: Sequence[Path] = ()) -> None:
        self.results = RunFolder(folder, MAX_FILE_BYTES)
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
        # The same rows as in the run, because `limit` samples with a fixed seed.
        task = read_task(self.data, limit=plan["limit"], **plan["columns"])
        return {example.id: example for example in task.examples if is_image(example.input)}

    def render_image(self, example_id: str, limits: Limits) -> bytes:
        """Return an image of the run's data as a PNG, so that the model sees the same pixels."""
        return render_image(self._find_image(example_id), limits)

    def _find_image(self, example_id: str) -> Any:
        # Ids are looked up in the data, never used as paths.
        if example_id not in self.images:
            raise BadInput("This run has no such image, or the server was started without --data for it.")
        return self.images[example_id]

    @cached_property
    def page(self) -> str:
        """The report of `clearhead report`."""
        return report.page(self.results, summarise_run(self.results))

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, float]]:
        """Metric values by (method, metric), then by example, of examples that have a single finite number."""
        values: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for row in self.results.values():
            if _has_value(row):
                key = (row["method"], row["metric"])
                values[key][str(row["example"])] = float(row["value"])
        # A plain dictionary, because asking for an unknown metric must not add it.
        return dict(values)

    @cached_property
    def examples(self) -> dict[tuple[str, str], RunExample]:
        """The first explanation of each example by each method, by (method, example)."""
        examples: dict[tuple[str, str], RunExample] = {}
        for row in self.results.explanations():
            key = (row["name"], str(row["example"]))
            # Further rows of an example explain other classes.
            if key not in examples:
                examples[key] = parse_example(row)
        return examples

    def describe(self, name: str) -> RunInfo:
        """Return the run's methods, metrics and classes, each once and in the order of the run."""
        methods = _drop_repeats(method for method, _ in self.values)
        metrics = _drop_repeats(metric for _, metric in self.values)
        labels = list_labels(self.examples.values())
        return RunInfo(name=name, methods=methods, metrics=metrics, labels=labels, error="")

    def rank_examples(
        self, method: str, metric: str, *, lowest: bool, start: int, chosen: ExampleFilter = EVERYTHING
    ) -> Examples:
        """Return a page of the examples that a filter accepts, those with the highest (or lowest) values first."""
        ranked = _rank(self._find_values(method, metric), lowest=lowest)
        accepted = []
        for example_id, value in ranked:
            example = self._find_example(method, example_id)
            if chosen.accepts(example):
                accepted.append((example, value))
        page = accepted[start : start + EXAMPLES_PER_PAGE]
        return Examples(
            total=len(accepted),
            **count_slices([example for example, _ in accepted]),
            examples=[self._describe_example(example, value) for example, value in page],
        )

    def _find_values(self, method: str, metric: str) -> dict[str, float]:
        if (method, metric) not in self.values:
            available = [" ".join(pair) for pair in self.values]
            raise unknown_name("method and metric of this run", f"{method} {metric}", available)
        return self.values[method, metric]

    def _find_example(self, method: str, example_id: str) -> RunExample:
        # A shard may have values without explanations.
        return self.examples.get((method, example_id)) or parse_example({"example": example_id})

    def _describe_example(self, example: RunExample, value: float) -> Example:
        return Example(
            example=example.id,
            value=value,
            text=list(example.texts),
            label=example.label,
            probability=example.probability,
            gold=example.gold,
            predicted=example.predicted,
            wrong=example.is_wrong,
            model=example.model,
            picture=not example.texts and example.id in self.images,
        )


def _has_value(row: Mapping[str, Any]) -> bool:
    # Some metrics are not defined for every example.
    return row["value"] is not None and math.isfinite(row["value"])


def _drop_repeats(names: Iterable[str]) -> list[str]:
    # A dictionary, because a set would lose the order.
    return list(dict.fromkeys(names))


def _rank(values: Mapping[str, float], *, lowest: bool) -> list[tuple[str, float]]:
    """Return examples with their values, the highest (or lowest) first."""
    # Not reverse=True, which would also reverse the order of examples with equal values.
    sign = 1 if lowest else -1
    return sorted(values.items(), key=lambda entry: sign * entry[1])


class Runs(Mapping[str, Run]):
    """Runs by the names of their folders."""

    def __init__(self, folders: list[Path], data: Sequence[Path] = ()) -> None:
        _check_paths(data)
        self._data = data
        self._folders = _name_folders(folders)
        self._open: dict[str, Run] = {}
        self._check_data_used()

    def _check_data_used(self) -> None:
        """Raise BadOption for data that none of the runs was made from."""
        opened = self._open_readable()
        used = {run.data for run in opened}
        for path in self._data:
            # A run that cannot be read may be the one that was made from it.
            if path not in used and len(opened) == len(self):
                raise BadOption(f"No run was made from '{path}' in its present state: check --data and --run.")

    def _open_readable(self) -> list[Run]:
        """Open the runs at the start of the page; a damaged one leaves the others alone."""
        opened = []
        for name, folder in self._folders.items():
            # What is no run at all is a mistake in the command, which is reported at once.
            require_manifest(folder)
            try:
                opened.append(self[name])
            except BadFile as error:
                LOG.error("The run '%s' is left out: %s", name, error)
        return opened

    def describe(self, name: str) -> RunInfo:
        """Return what a run has; a damaged one has nothing but its name, and leaves the others alone."""
        try:
            return self[name].describe(name)
        except Exception as error:
            # Neither the message nor the path, which are not for those who only see the page.
            LOG.error("%s: the run '%s' cannot be read", type(error).__name__, name)
            return RunInfo(name=name, methods=[], metrics=[], labels=[], error=DAMAGED)

    def __getitem__(self, name: str) -> Run:
        if name not in self._open:
            self._open[name] = self._open_run(name)
        return self._open[name]

    def _open_run(self, name: str) -> Run:
        self._require_run(name)
        return Run(self._folders[name], self._data)

    def _require_run(self, name: str) -> None:
        if name not in self._folders:
            raise unknown_name("run of this server", name, list(self._folders) or ["none: start with --run"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


def _name_folders(folders: Sequence[Path]) -> dict[str, Path]:
    # Only the folders' own names appear on the page and in addresses; full paths are private.
    names = [folder.resolve().name for folder in folders]
    _require_distinct(names)
    return dict(zip(names, folders, strict=True))


def _require_distinct(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise BadOption("Two runs would have the same name on the page: rename one of the folders.")


def _check_paths(data: Sequence[Path]) -> None:
    for path in data:
        if not path.exists():
            raise BadOption(f"No file or folder '{path}': check --data.")
