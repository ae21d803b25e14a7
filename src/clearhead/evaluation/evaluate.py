"""evaluate: methods × metrics on a task, every value with its interval."""

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain, combinations, islice, product
from typing import Any

from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.attribution.names import CONTROL_METHODS, DEFAULT_METHOD
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.evaluation.explained import (
    REFUSALS,
    check_labels,
    check_needs,
    explain_examples,
    required_targets,
    wants_labels,
)
from clearhead.evaluation.metric import METRICS, ExplainedExample, MetricSpec, Record, parse_metric
from clearhead.evaluation.permutation_tests import Difference, differences, holm
from clearhead.evaluation.statistics import SAMPLES, intervals
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.spec import as_list
from clearhead.validation import require_integer

# Explained examples (examples × methods) that are held in memory at a time.
CASES = {"text": 2048, "image": 256}
HEADER = ["method", "metric", "value", "low", "high", "n"]
MAX_SKIPPED_LINES = 3

Compared = tuple[str, str, dict[str, Difference]]
"""Two methods, and their difference for each value of a metric."""


@dataclass(frozen=True)
class Table:
    """The result of `evaluate`.

    `rows` are dicts: method (as spelled), options, metric (as spelled), part (which of the metric's values), value,
    low, high, n, better. `refused` says which methods or metrics could not run and why; `skipped` which examples.
    """

    rows: list[dict[str, Any]]
    refused: list[dict[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    records: Mapping[tuple[str, str], list[list[Record]]] = field(default_factory=dict, repr=False)
    metrics: Mapping[str, MetricSpec] = field(default_factory=dict, repr=False)

    def differences(self, *, seed: int = 0) -> list[dict[str, Any]]:
        """Compare every two methods on every value by a paired test; `p_corrected` is Holm's, per value."""
        require_integer("seed", seed, 0)
        rows = []
        for metric_text in self.metrics:
            compared = self._compare_methods(metric_text, seed)
            rows += _difference_rows(metric_text, compared)
        return rows

    def _compare_methods(self, metric_text: str, seed: int) -> list[Compared]:
        spec = self.metrics[metric_text]
        records = self._records_by_method(metric_text)
        compared = []
        for first, second in combinations(records, 2):
            by_value = differences(spec, records[first], records[second], seed=seed)
            compared.append((first, second, by_value))
        return compared

    def _records_by_method(self, metric_text: str) -> dict[str, list[list[Record]]]:
        return {method: records for (method, metric), records in self.records.items() if metric == metric_text}

    def __repr__(self) -> str:
        lines = [_format_columns(HEADER)]
        for row in self.rows:
            lines.append(_format_columns(_cells(row)))
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> Iterator[str]:
        for entry in self.refused:
            yield f"refused: {entry['name']}: {entry['reason']}"
        # A few of them: a damaged data set may skip thousands.
        for reason in self.skipped[:MAX_SKIPPED_LINES]:
            yield f"skipped: {reason}"

    def _repr_html_(self) -> str:
        head = _html_cells("th", HEADER)
        body = "".join(map(_html_row, self.rows))
        notes = "".join(map(_html_note, self.refused))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _difference_rows(metric_text: str, compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return a row for each value and pair of methods, corrected for as many comparisons as there are pairs."""
    if not compared:
        return []
    rows = []
    for value_name in compared[0][2]:
        # One family of comparisons per value: other values and metrics are other questions.
        corrected = holm([by_value[value_name].p for _, _, by_value in compared])
        for pair, p_corrected in zip(compared, corrected, strict=True):
            rows.append(_difference_row(metric_text, value_name, pair, p_corrected))
    return rows


def _difference_row(metric_text: str, value_name: str, compared: Compared, p_corrected: float) -> dict[str, Any]:
    first, second, by_value = compared
    row = {"metric": metric_text, "part": value_name, "first": first, "second": second}
    return {**row, **asdict(by_value[value_name]), "p_corrected": p_corrected}


def _cells(row: Mapping[str, Any]) -> list[str]:
    numbers = [f"{row[key]:.4g}" for key in ("value", "low", "high")]
    return [row["method"], _value_name(row), *numbers, str(row["n"])]


def _value_name(row: Mapping[str, Any]) -> str:
    """Return the metric as spelled, and the name of its value unless that only repeats the metric's."""
    metric_text: str = row["metric"]
    if row["part"] == metric_text.partition(":")[0]:
        return metric_text
    return f"{metric_text} {row['part']}"


def _format_columns(cells: Sequence[str]) -> str:
    method, metric_name, *numbers = cells
    return f"{method:32} {metric_name:32} " + " ".join(f"{number:>10}" for number in numbers)


def _html_row(row: Mapping[str, Any]) -> str:
    return f"<tr>{_html_cells('td', _cells(row))}</tr>"


def _html_cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _html_note(entry: Mapping[str, str]) -> str:
    return f"<p>{html.escape(entry['name'])}: {html.escape(entry['reason'])}</p>"


@dataclass(frozen=True)
class TableEntry:
    """A method of a table: its original spec string, and the specs that it is the mean of."""

    text: str
    specs: tuple[MethodSpec, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the method, defaults included; several seeds are written as a range."""
        spec = self.specs[0]
        options = {**spec.method.options, **spec.options}
        if len(self.specs) > 1:
            options["seed"] = f"0 … {len(self.specs) - 1}"
        return options


def parse_entries(methods: Sequence[Any]) -> list[TableEntry]:
    """Parse the methods of a table; a control without a seed is the mean of several seeds."""
    specs = {}
    for method in as_list(methods):
        spec = parse_method(method)
        # By text: a method that is named twice is explained once.
        specs[spec.text] = spec
    if not specs:
        raise BadOption("No method was named: give at least one.")
    return [TableEntry(spec.text, _repeat_seeds(spec)) for spec in specs.values()]


def _repeat_seeds(spec: MethodSpec) -> tuple[MethodSpec, ...]:
    # A single draw of noise says little about chance, so it is averaged over seeds.
    seeds = spec.method.seeds
    if seeds == 1 or "seed" in spec.options:
        return (spec,)
    return tuple(parse_method((spec.method.name, {**spec.options, "seed": seed})) for seed in range(seeds))


def evaluate(
    model: Any,
    task: Any,
    methods: Sequence[Any] | None = None,
    metrics: Sequence[Any] | None = None,
    *,
    limit: int | None = None,
    batch_size: int | None = None,
    long: str = "truncate",
    samples: int = SAMPLES,
    seed: int = 0,
    **reading: Any,
) -> Table:
    """Measure every metric of every method on a task: a Table of values with bootstrap intervals.

    `task` is a Task, a file or a folder, read with the options in `reading` (text_column, label_column …). Methods
    share traces, and the perturbed inputs of all of them share batches. `random` is the mean of 20 seeds. A method or
    metric that refuses the model is reported in `refused`.

    >>> clearhead.evaluate(model, "dev.tsv", ["att-cat", "random"], ["aopc", "lodds"])     # doctest: +SKIP
    """
    model = as_model(model)
    task = read_task(task, limit=limit, **reading)
    # Only None: an empty list is a mistake, and says so.
    if methods is None:
        methods = [DEFAULT_METHOD, *CONTROL_METHODS]
    if metrics is None:
        metrics = _default_metrics(model)
    entries = parse_entries(methods)
    specs = _parse_metrics(metrics)
    require_integer("samples", samples)
    require_integer("seed", seed, 0, is_flag=True)
    run = _Run(model, entries, batch_size, long)
    for examples, group in _group_metrics(task, list(specs.values())):
        run.measure(examples, group)
    return _build_table(run, specs, task, samples, seed)


def _parse_metrics(metrics: Sequence[Any]) -> dict[str, MetricSpec]:
    specs = {}
    for name in as_list(metrics):
        spec = parse_metric(name)
        specs[spec.text] = spec
    if not specs:
        raise BadOption(f"No metric was named. Available: {', '.join(METRICS)}.")
    return specs


def _default_metrics(model: Model) -> list[str]:
    if model.problem == "span":
        return ["precision-at-k", "aopc"]
    if model.takes_images:
        return ["positive-perturbation", "negative-perturbation"]
    return ["aopc", "lodds"]


def _group_metrics(task: Task, specs: list[MetricSpec]) -> Iterator[tuple[list[Example], list[MetricSpec]]]:
    """Yield examples with the metrics that look at them, so that metrics on the same examples share explanations."""
    on_task = [spec for spec in specs if spec.metric.prepare is None]
    if on_task:
        yield list(task.examples), on_task
    for spec in specs:
        if spec.metric.prepare is not None:
            yield spec.prepare(task), [spec]


@dataclass
class _Run:
    """Collects records by method and metric, and what was refused or skipped."""

    model: Model
    entries: Sequence[TableEntry]
    batch_size: int | None
    long: str
    records: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)

    @cached_property
    def methods(self) -> list[MethodSpec]:
        """All methods, each repeat of `random` as one."""
        methods: list[MethodSpec] = []
        for entry in self.entries:
            methods.extend(entry.specs)
        return methods

    def measure(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> None:
        """Explain and measure a chunk of examples at a time, so that memory stays flat."""
        specs = [spec for spec in specs if self._accepts(spec)]
        # A missing or unknown label is an error of the data, found before anything is computed.
        if any(map(wants_labels, specs)):
            check_labels(self.model, examples, ["label"])
        if not specs:
            return
        skipped: Counter[tuple[str, str]] = Counter()
        size = self._chunk_size()
        for start in range(0, len(examples), size):
            skipped.update(self._measure_chunk(examples[start : start + size], specs))
        # Several groups of metrics read the same examples: what one of them skipped is not counted twice.
        self.skipped |= skipped

    def _chunk_size(self) -> int:
        """Return how many examples are explained at a time, by all methods."""
        held = CASES["image"] if self.model.takes_images else CASES["text"]
        return max(1, held // len(self.methods))

    def _measure_chunk(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> list[tuple[str, str]]:
        """Measure some examples and return those that were skipped, with the reason."""
        # A method that refused an earlier chunk is not tried again.
        methods = [method for method in self.methods if method.text not in self.refused]
        needs = required_targets(specs)
        explained = explain_examples(self.model, examples, methods, needs, batch_size=self.batch_size, long=self.long)
        self.refused |= explained.refused
        for spec in specs:
            self._measure_metric(spec, explained.cases)
        return explained.skipped

    def _accepts(self, spec: MetricSpec) -> bool:
        needs = list(spec.targets)
        if wants_labels(spec):
            needs.append("label")
        try:
            check_needs(self.model, needs)
        except UnsupportedModel as error:
            self.refused[spec.text] = str(error)
        return spec.text not in self.refused

    def _measure_metric(self, spec: MetricSpec, cases: Mapping[str, list[ExplainedExample]]) -> None:
        if spec.text in self.refused or not cases:
            return
        # All methods in one call, so that their perturbed inputs share batches.
        every_case = list(chain.from_iterable(cases.values()))
        try:
            records = spec.measure(self.model, every_case)
        except REFUSALS as error:
            self.refused[spec.text] = str(error)
        else:
            self._add_records(spec, cases, iter(records))

    def _add_records(
        self, spec: MetricSpec, cases: Mapping[str, list[ExplainedExample]], records: Iterator[Record]
    ) -> None:
        """Give each method the records of its own examples, which come in the order of the methods."""
        for method, method_cases in cases.items():
            own_records = self.records.setdefault((method, spec.text), [])
            own_records.extend(islice(records, len(method_cases)))

    def records_of(self, entry: TableEntry, metric_text: str) -> list[list[Record]] | None:
        """Return the records of every repeat of a method, None if one of them, or the metric, was refused."""
        repeats = []
        for method in entry.specs:
            records = self._complete_records(method.text, metric_text)
            if not records:
                return None
            repeats.append(records)
        return repeats

    def _complete_records(self, method_text: str, metric_text: str) -> list[Record]:
        # A method or metric refused in a later chunk has the records of earlier ones, which are not the whole.
        if method_text in self.refused or metric_text in self.refused:
            return []
        return self.records.get((method_text, metric_text), [])


def _build_table(run: _Run, specs: Mapping[str, MetricSpec], task: Task, samples: int, seed: int) -> Table:
    records = {}
    rows = []
    for entry, (metric_text, spec) in product(run.entries, specs.items()):
        repeats = run.records_of(entry, metric_text)
        if repeats is not None:
            records[entry.text, metric_text] = repeats
            rows += table_rows(entry, spec, repeats, samples=samples, seed=seed)
    # A table without rows would hide the reason.
    if not records and run.refused:
        raise _nothing_measured(run)
    return Table(rows, _describe_refused(run), _describe_skipped(run, task), records, specs)


def _nothing_measured(run: _Run) -> UnsupportedModel:
    first_reason = next(iter(run.refused.values()))
    return UnsupportedModel(f"Nothing could be measured. {first_reason}")


def _describe_refused(run: _Run) -> list[dict[str, str]]:
    return [{"name": name, "reason": reason} for name, reason in run.refused.items()]


def _describe_skipped(run: _Run, task: Task) -> list[str]:
    """Return what was skipped while reading the task, then each example that could not be encoded."""
    skipped = []
    if task.notice:
        skipped.append(task.notice)
    for name, reason in run.skipped.elements():
        skipped.append(f"example '{name}': {reason}")
    return skipped


def table_rows(
    entry: TableEntry,
    measure: MetricSpec,
    repeats: Sequence[Sequence[Record]],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Return the rows of a table for one method and metric."""
    options = entry.options
    rows = []
    for name, interval in intervals(measure, repeats, samples=samples, seed=seed).items():
        row = {"method": entry.text, "options": options, "metric": measure.text, "part": name}
        rows.append({**row, **asdict(interval), "better": measure.metric.better})
    return rows
