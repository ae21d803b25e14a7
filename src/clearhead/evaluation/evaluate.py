"""evaluate: methods × metrics on a task, every value with its interval."""

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.attribution.names import DEFAULT_METHOD
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
from clearhead.evaluation.statistics import SAMPLES, differences, holm, intervals
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.spec import as_list
from clearhead.validation import require_integer

SEEDS = 20
CASES = {"text": 2048, "image": 256}


@dataclass(frozen=True)
class Table:
    """What `evaluate` answers.

    `rows` are dicts: method (as spelled), options, metric (as spelled), part (which of the metric's values), value,
    low, high, n, better. `refused` says which methods or metrics could not run and why; `skipped` which examples.
    """

    rows: list[dict[str, Any]]
    refused: list[dict[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    records: Mapping[tuple[str, str], list[list[Record]]] = field(default_factory=dict, repr=False)
    measures: Mapping[str, MetricSpec] = field(default_factory=dict, repr=False)

    def differences(self, *, seed: int = 0) -> list[dict[str, Any]]:
        """Every two methods compared on every value by a paired test; `p_corrected` is Holm's, per value."""
        require_integer("seed", seed, 0)
        return [row for text in self.measures for row in self._compared(text, seed)]

    def _compared(self, text: str, seed: int) -> list[dict[str, Any]]:
        measure = self.measures[text]
        methods = [method for method, metric in self.records if metric == text]
        found = [
            (first, second, differences(measure, self.records[first, text], self.records[second, text], seed=seed))
            for first, second in combinations(methods, 2)
        ]
        rows = []
        for part in found[0][2] if found else ():
            corrected = holm([one[part].p for _, _, one in found])
            for (first, second, one), p in zip(found, corrected, strict=True):
                plain = {"metric": text, "part": part, "first": first, "second": second}
                rows.append({**plain, **one[part].__dict__, "p_corrected": p})
        return rows

    def __repr__(self) -> str:
        lines = [_columns(cells) for cells in [HEADER, *map(_cells, self.rows)]]
        lines += [f"refused: {one['name']}: {one['reason']}" for one in self.refused]
        return "\n".join([*lines, *(f"skipped: {one}" for one in self.skipped[:3])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{one}</th>" for one in HEADER)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self.rows
        )
        notes = "".join(f"<p>{html.escape(one['name'])}: {html.escape(one['reason'])}</p>" for one in self.refused)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


HEADER = ["method", "metric", "value", "low", "high", "n"]


def _cells(row: Mapping[str, Any]) -> list[str]:
    name = row["metric"] if row["part"] == row["metric"].partition(":")[0] else f"{row['metric']} {row['part']}"
    return [row["method"], name, *(f"{row[key]:.4g}" for key in ("value", "low", "high")), str(row["n"])]


def _columns(cells: Sequence[str]) -> str:
    return f"{cells[0]:32} {cells[1]:32} " + " ".join(f"{cell:>10}" for cell in cells[2:])


@dataclass(frozen=True)
class TableEntry:
    """A method of a table: as it was written, and the spellings whose mean it is."""

    text: str
    spellings: tuple[MethodSpec, ...]


def parse_entries(methods: Sequence[Any], *, seeds: int = SEEDS) -> list[TableEntry]:
    """The methods of a table; `random` without a seed stands for the mean of `seeds` of them."""
    found = [parse_method(one) for one in as_list(methods)]
    if not found:
        raise BadOption("No method was named: give at least one.")
    return [TableEntry(one.text, _seeded(one, seeds)) for one in {one.text: one for one in found}.values()]


def _seeded(one: MethodSpec, seeds: int) -> tuple[MethodSpec, ...]:
    if one.method.name != "random" or "seed" in one.options:
        return (one,)
    return tuple(parse_method(("random", {"seed": seed})) for seed in range(seeds))


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
    """Every metric of every method on a task: a Table of values with bootstrap intervals.

    `task` is a Task, a file or a folder, read with the options in `reading` (text_column, label_column …). Methods
    share traces, and the perturbed inputs of all of them share batches. `random` is the mean of 20 seeds. A method or
    metric that refuses the model is reported in `refused`.

    >>> clearhead.evaluate(model, "dev.tsv", ["att-cat", "random"], ["aopc", "lodds"])     # doctest: +SKIP
    """
    model = as_model(model)
    task = read_task(task, limit=limit, **reading)
    wanted = parse_entries([DEFAULT_METHOD, "random"] if methods is None else methods)
    measures = {one.text: one for one in map(parse_metric, as_list(_usual(model) if metrics is None else metrics))}
    if not measures:
        raise BadOption(f"No metric was named. There is: {', '.join(METRICS)}.")
    require_integer("samples", samples)
    require_integer("seed", seed, 0, is_flag=True)
    run = _Run(model, wanted, batch_size, long)
    for examples, group in _groups(task, list(measures.values())):
        run.over(examples, group)
    return _table(run, wanted, measures, task, samples, seed)


def _usual(model: Model) -> list[str]:
    if model.problem == "span":
        return ["precision-at-k", "aopc"]
    return ["positive-perturbation", "negative-perturbation"] if model.takes_images else ["aopc", "lodds"]


def _groups(task: Task, measures: list[MetricSpec]) -> Iterator[tuple[list[Example], list[MetricSpec]]]:
    """Metrics that look at the same examples, so that they share explanations."""
    plain = [one for one in measures if one.metric.prepare is None]
    if plain:
        yield list(task.examples), plain
    for one in measures:
        if one.metric.prepare is not None:
            yield one.prepare(task), [one]


class _Run:
    """Records as they come in, by method spelling and metric, and what was refused or skipped on the way."""

    def __init__(self, model: Model, wanted: Sequence[TableEntry], batch_size: int | None, long: str) -> None:
        self.model, self.batch_size, self.long = model, batch_size, long
        self.spellings = [spelling for entry in wanted for spelling in entry.spellings]
        self.records: dict[tuple[str, str], list[Record]] = {}
        self.refused: dict[str, str] = {}
        self.skipped: Counter[tuple[str, str]] = Counter()

    def over(self, examples: Sequence[Example], measures: Sequence[MetricSpec]) -> None:
        """Explains and measures a chunk of examples at a time, so that memory stays flat."""
        measures = [one for one in measures if self._takes(one)]
        needs = required_targets(measures)
        check_labels(self.model, examples, ["label"] if any(map(wants_labels, measures)) else [])
        skipped: Counter[tuple[str, str]] = Counter()
        size = max(1, CASES["image" if self.model.takes_images else "text"] // len(self.spellings))
        for start in range(0, len(examples) if measures else 0, size):
            active = [one for one in self.spellings if one.text not in self.refused]
            found = explain_examples(
                self.model, examples[start : start + size], active, needs, batch_size=self.batch_size, long=self.long
            )
            self.refused |= found.refused
            skipped.update(found.skipped)
            for measure in measures:
                self._measure(measure, found.cases)
        self.skipped |= skipped

    def _takes(self, measure: MetricSpec) -> bool:
        try:
            check_needs(self.model, [*measure.targets, *(["label"] if wants_labels(measure) else [])])
        except UnsupportedModel as error:
            self.refused[measure.text] = str(error)
        return measure.text not in self.refused

    def _measure(self, measure: MetricSpec, cases: Mapping[str, list[ExplainedExample]]) -> None:
        if measure.text in self.refused or not cases:
            return
        try:
            records = measure.measure(self.model, [case for several in cases.values() for case in several])
        except REFUSALS as error:
            self.refused[measure.text] = str(error)
            return
        start = 0
        for text, several in cases.items():
            self.records.setdefault((text, measure.text), []).extend(records[start : start + len(several)])
            start += len(several)


def _table(
    run: _Run, wanted: Sequence[TableEntry], measures: Mapping[str, MetricSpec], task: Task, samples: int, seed: int
) -> Table:
    records = {
        (entry.text, text): [run.records[one.text, text] for one in entry.spellings]
        for entry in wanted
        for text in measures
        if all(run.records.get((one.text, text)) for one in entry.spellings)
        and not any(name in run.refused for name in (text, *(one.text for one in entry.spellings)))
    }
    if not records and run.refused:
        raise UnsupportedModel(f"Nothing could be measured. {next(iter(run.refused.values()))}")
    rows = [
        row
        for entry in wanted
        for text, measure in measures.items()
        if (entry.text, text) in records
        for row in table_rows(entry, measure, records[entry.text, text], samples=samples, seed=seed)
    ]
    refused = [{"name": name, "reason": reason} for name, reason in run.refused.items()]
    skipped = [task.notice] if task.notice else []
    skipped += [f"example '{name}': {reason}" for name, reason in run.skipped.elements()]
    return Table(rows, refused, skipped, records, measures)


def table_rows(
    entry: TableEntry,
    measure: MetricSpec,
    repeats: Sequence[Sequence[Record]],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The rows of a table for one method and metric."""
    spelling = entry.spellings[0]
    options = {**spelling.method.options, **spelling.options}
    if len(entry.spellings) > 1:
        options["seed"] = f"0 … {len(entry.spellings) - 1}"
    plain = {"method": entry.text, "options": options, "metric": measure.text}
    return [
        {**plain, "part": name, **one.__dict__, "better": measure.metric.better}
        for name, one in intervals(measure, repeats, samples=samples, seed=seed).items()
    ]
