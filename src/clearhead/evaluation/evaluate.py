"""evaluate: methods × metrics on a task, every value with its interval."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain, islice, product
from typing import Any, TypeVar

from clearhead.attribution.method import MethodSpec, default_method, parse_method
from clearhead.attribution.names import CONTROL_METHODS
from clearhead.data.read import focus_examples, read_task
from clearhead.data.task import Example, Task
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.evaluation.comparison import compare_methods, difference_rows
from clearhead.evaluation.explained import (
    REFUSALS,
    check_labels,
    check_needs,
    explain_examples,
    required_targets,
    wants_labels,
)
from clearhead.evaluation.metric import METRICS, ExplainedExample, MetricSpec, Record, parse_metric
from clearhead.evaluation.statistics import SAMPLES, intervals
from clearhead.evaluation.table_format import format_html, format_refusal, format_rows
from clearhead.model.focused_inputs import require_focus
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.model_checks import refuse_choices
from clearhead.progress import progress
from clearhead.spec import as_list
from clearhead.validation import require_integer

# Explained examples (examples × methods) that are held in memory at a time.
CASES = {"text": 512, "image": 64}
MAX_SKIPPED_LINES = 3

Spec = TypeVar("Spec", MethodSpec, MetricSpec)


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
        for metric_text, spec in self.metrics.items():
            compared = compare_methods(spec, self._records_by_method(metric_text), seed)
            rows += difference_rows(metric_text, compared)
        return rows

    def _records_by_method(self, metric_text: str) -> dict[str, list[list[Record]]]:
        return {method: records for (method, metric), records in self.records.items() if metric == metric_text}

    def __repr__(self) -> str:
        return "\n".join([*format_rows(self.rows), *self._notes()])

    def _notes(self) -> Iterator[str]:
        yield from map(format_refusal, self.refused)
        # A few of them: a damaged data set may skip thousands.
        yield from map("skipped: {}".format, self.skipped[:MAX_SKIPPED_LINES])

    def _repr_html_(self) -> str:
        return format_html(self.rows, self.refused)


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
            options["seed"] = self._seed_range()
        return options

    def _seed_range(self) -> str:
        return f"0 … {len(self.specs) - 1}"


def parse_entries(methods: Sequence[Any]) -> list[TableEntry]:
    """Parse the methods of a table; a control without a seed is the mean of several seeds."""
    specs = _parse_by_text(methods, parse_method)
    _require_methods(specs)
    return [TableEntry(spec.text, _repeat_seeds(spec)) for spec in specs.values()]


def _require_methods(specs: Mapping[str, MethodSpec]) -> None:
    if not specs:
        raise BadOption("No method was named: give at least one.")


def _parse_by_text(names: Sequence[Any], parse: Callable[[Any], Spec]) -> dict[str, Spec]:
    specs = map(parse, as_list(names))
    # By text: what is named twice is computed once.
    return {spec.text: spec for spec in specs}


def _repeat_seeds(spec: MethodSpec) -> tuple[MethodSpec, ...]:
    # A single draw of noise says little about chance, so it is averaged over seeds.
    seeds = spec.method.seeds
    if seeds == 1 or "seed" in spec.options:
        return (spec,)
    return tuple(_with_seed(spec, seed) for seed in range(seeds))


def _with_seed(spec: MethodSpec, seed: int) -> MethodSpec:
    # Parsed again, so that the seed stands in the text by which records are kept.
    return parse_method((spec.method.name, {**spec.options, "seed": seed}))


def evaluate(  # noqa: PLR0913 - the signature shows users every option
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
    focus: Any = None,
    **reading: Any,
) -> Table:
    """Measure every metric of every method on a task: a Table of values with intervals.

    `task` is a Task, a file or a folder, read with the options in `reading` (text_column, label_column …). Methods
    share traces, and the perturbed inputs of all of them share batches. `random` is the mean of 20 seeds. A method or
    metric that refuses the model is reported in `refused`. Of a model with an output for every word, box or pixel,
    `focus` is the part that is explained of every example, as in `explain`; examples without it are skipped.

    >>> clearhead.evaluate(model, "dev.tsv", ["att-cat", "random"], ["aopc", "lodds"])     # doctest: +SKIP
    """
    model = as_model(model)
    refuse_choices(model, "evaluate")
    task = _read_task(model, task, focus, {"limit": limit, **reading})
    # Only None: an empty list is a mistake, and says so.
    if methods is None:
        methods = [default_method(model), *CONTROL_METHODS]
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


def _read_task(model: Model, source: Any, focus: Any, reading: Mapping[str, Any]) -> Task:
    if focus is not None:
        require_focus(model)
    return focus_examples(read_task(source, **reading), focus)


def _parse_metrics(metrics: Sequence[Any]) -> dict[str, MetricSpec]:
    specs = _parse_by_text(metrics, parse_metric)
    if not specs:
        raise _no_metric()
    return specs


def _no_metric() -> BadOption:
    return BadOption(f"No metric was named. Available: {', '.join(METRICS)}.")


def _default_metrics(model: Model) -> list[str]:
    if model.problem == "span":
        return ["precision-at-k", "aopc"]
    # The label of an image is not that of one of its boxes, or of some of its pixels.
    if model.takes_images and not model.has_focus:
        return ["positive-perturbation", "negative-perturbation"]
    if model.writes:
        return ["log-prob-drop", "lds"]
    return ["aopc", "lodds"]


def _group_metrics(task: Task, specs: list[MetricSpec]) -> Iterator[tuple[list[Example], list[MetricSpec]]]:
    """Yield examples with the metrics that look at them, so that metrics on the same examples share explanations."""
    on_task = [spec for spec in specs if not _makes_examples(spec)]
    if on_task:
        yield list(task.examples), on_task
    for spec in filter(_makes_examples, specs):
        yield spec.prepare(task), [spec]


def _makes_examples(spec: MetricSpec) -> bool:
    return spec.metric.prepare is not None


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
        return list(chain.from_iterable(entry.specs for entry in self.entries))

    def measure(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> None:
        """Explain and measure a chunk of examples at a time, so that memory stays flat."""
        specs = list(filter(self._accepts, specs))
        self._check_labels(examples, specs)
        if specs:
            # Several groups of metrics read the same examples: what one of them skipped is not counted twice.
            self.skipped |= self._measure_chunks(examples, specs)

    def _check_labels(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> None:
        # A missing or unknown label is an error of the data, found before anything is computed.
        if any(map(wants_labels, specs)):
            check_labels(self.model, examples, ["label"])

    def _measure_chunks(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> Counter[tuple[str, str]]:
        """Measure all examples and count those that were skipped."""
        skipped: Counter[tuple[str, str]] = Counter()
        size = self._chunk_size()
        with progress(len(examples), "examples") as advance:
            for start in range(0, len(examples), size):
                chunk = examples[start : start + size]
                skipped.update(self._measure_chunk(chunk, specs))
                advance(len(chunk))
        return skipped

    def _chunk_size(self) -> int:
        """Return how many examples are explained at a time, by all methods."""
        return max(1, _max_cases(self.model) // len(self.methods))

    def _measure_chunk(self, examples: Sequence[Example], specs: Sequence[MetricSpec]) -> list[tuple[str, str]]:
        """Measure some examples and return those that were skipped, with the reason."""
        methods = self._remaining_methods()
        needs = required_targets(specs)
        explained = explain_examples(self.model, examples, methods, needs, batch_size=self.batch_size, long=self.long)
        self.refused |= explained.refused
        for spec in specs:
            self._measure_metric(spec, explained.cases)
        return explained.skipped

    def _remaining_methods(self) -> list[MethodSpec]:
        # A method that refused an earlier chunk is not tried again.
        return [method for method in self.methods if method.text not in self.refused]

    def _accepts(self, spec: MetricSpec) -> bool:
        try:
            check_needs(self.model, _explained_targets(spec))
        except UnsupportedModel as error:
            self._refuse(spec, error)
        return spec.text not in self.refused

    def _refuse(self, spec: MetricSpec, error: Exception) -> None:
        self.refused[spec.text] = str(error)

    def _measure_metric(self, spec: MetricSpec, cases: Mapping[str, list[ExplainedExample]]) -> None:
        if spec.text in self.refused or not cases:
            return
        # All methods in one call, so that their perturbed inputs share batches.
        every_case = list(chain.from_iterable(cases.values()))
        try:
            records = spec.measure(self.model, every_case)
        except REFUSALS as error:
            self._refuse(spec, error)
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


def _max_cases(model: Model) -> int:
    # Images need more memory than texts: tensors of pixels, and maps of them.
    if model.takes_images:
        return CASES["image"]
    return CASES["text"]


def _explained_targets(spec: MetricSpec) -> list[str]:
    """Return the targets that a metric needs, and the label if it only compares with it."""
    targets = list(spec.targets)
    if wants_labels(spec):
        targets.append("label")
    return targets


def _build_table(run: _Run, specs: Mapping[str, MetricSpec], task: Task, samples: int, seed: int) -> Table:
    records = {}
    rows = []
    for entry, (metric_text, spec) in product(run.entries, specs.items()):
        repeats = run.records_of(entry, metric_text)
        if repeats is not None:
            records[entry.text, metric_text] = repeats
            rows += table_rows(entry, spec, repeats, samples=samples, seed=seed)
    _check_measured(run, records)
    return Table(rows, _describe_refused(run), _describe_skipped(run, task), records, specs)


def _check_measured(run: _Run, records: Mapping[Any, Any]) -> None:
    # A table without rows would hide the reason.
    if run.refused and not records:
        raise _nothing_measured(run)


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
