"""Rows, comparisons, curves, word lists and costs of a run, computed from its records alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clearhead.bench.controls import is_control
from clearhead.bench.metric_groups import parse_metrics
from clearhead.bench.run_folder import RunFolder
from clearhead.evaluation.evaluate import Table, TableEntry, parse_entries, table_rows
from clearhead.evaluation.metric import MetricSpec, WordLists
from clearhead.evaluation.statistics import band

Record = dict[str, Any]
RecordsByMethod = dict[str, list[Record]]


def compute_summary(run: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table's rows, every pair of methods compared, and a curve for each metric that has one."""
    plan = manifest["plan"]
    table = build_table(run, plan)
    notes = list(run.notes())
    seconds = run.seconds()
    return {
        "methods": _list_methods(table),
        "values": _value_columns(table),
        "rows": _add_column_names(table, table.rows),
        "comparisons": _add_column_names(table, table.differences(seed=plan["seed"])),
        "curves": _curves(table, plan["seed"]),
        "words": _words(table),
        "costs": _costs(table, seconds),
        "seconds": _total_seconds(seconds),
        "examples": manifest["examples"],
        "measured": _count_measured(table),
        "shards": manifest["shards"],
        "done": run.count_shards(manifest["shards"]),
        "skipped": _list_skipped(manifest, notes),
        "refused": _list_reasons(notes, "refused"),
    }


def build_table(run: RunFolder, plan: Mapping[str, Any]) -> Table:
    """Return the records of a run as the table that `evaluate` returns."""
    specs = {spec.text: spec for spec in parse_metrics(plan["metrics"])}
    records: dict[tuple[str, str], list[list[Record]]] = {}
    rows = []
    for metric, by_method in _group_records(run).items():
        # Per metric, because a method may refuse the targets of one and not of another.
        complete = _complete_methods(by_method)
        for entry in _make_entries(plan["methods"], list(complete)):
            repeats = [complete[method.text] for method in entry.spellings]
            records[entry.text, metric] = repeats
            rows += table_rows(entry, specs[metric], repeats, seed=plan["seed"])
    return Table(rows, records=records, measures=specs)


def _group_records(run: RunFolder) -> dict[str, RecordsByMethod]:
    """Return the records by metric and method."""
    groups: dict[str, RecordsByMethod] = {}
    for row in run.values():
        by_method = groups.setdefault(row["metric"], {})
        by_method.setdefault(row["method"], []).append(row["record"])
    return groups


def _complete_methods(by_method: RecordsByMethod) -> RecordsByMethod:
    """Leave out methods that refused a shard: only methods with the same examples can be compared."""
    count = max(len(records) for records in by_method.values())
    return {method: records for method, records in by_method.items() if len(records) == count}


def _make_entries(planned: Sequence[str], methods: Sequence[str]) -> list[TableEntry]:
    """Return the rows of the table; the seeds of a control that was planned without one are one row."""
    averaged = _averaged_controls(planned)
    seeded = {spec.text for entry in averaged for spec in entry.spellings}
    single = [method for method in methods if method not in seeded]
    entries = parse_entries(single) if single else []
    for entry in averaged:
        if all(spec.text in methods for spec in entry.spellings):
            entries.append(entry)
    return entries


def _averaged_controls(planned: Sequence[str]) -> list[TableEntry]:
    """Return the planned controls that stand for the mean of several seeds."""
    controls = [method for method in planned if is_control(method)]
    if not controls:
        return []
    return [entry for entry in parse_entries(controls) if len(entry.spellings) > 1]


def column_name(spec: MetricSpec, value: str) -> str:
    """Return a metric's spec if it has one value, else the name of the value with the metric's options."""
    if len(spec.metric.values) == 1:
        return spec.text
    options = spec.text.partition(":")[2]
    return f"{value} ({options})" if options else value


def _value_columns(table: Table) -> dict[str, str]:
    """Return whether higher or lower is better, by column."""
    columns = {}
    for spec in table.measures.values():
        for value in spec.metric.values:
            columns[column_name(spec, value)] = spec.metric.better
    return columns


def _add_column_names(table: Table, rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    return [{**row, "name": column_name(table.measures[row["metric"]], row["part"])} for row in rows]


def _list_methods(table: Table) -> list[str]:
    return list(dict.fromkeys(method for method, _ in table.records))


def _curves(table: Table, seed: int) -> dict[str, list[Record]]:
    """Return by metric a line for each method, the mean over its seeds, with its interval."""
    curves: dict[str, list[Record]] = {}
    for (method, metric), repeats in table.records.items():
        curve = band(table.measures[metric], repeats, seed=seed)
        if curve is not None:
            points = {name: list(numbers) for name, numbers in asdict(curve).items()}
            curves.setdefault(metric, []).append({"method": method, **points})
    return curves


def _words(table: Table) -> list[Record]:
    """Return by method and class the strongest tokens, and those that other classes have too."""
    rows = []
    for (method, metric), repeats in table.records.items():
        words_of = table.measures[metric].metric.words_of
        if words_of is not None:
            # Of a control, whose seeds differ, the first seed.
            rows += [{"method": method, **row} for row in _class_words(words_of(repeats[0]))]
    return rows


def _class_words(word_lists: WordLists) -> list[Record]:
    tokens_by_class = {}
    for label, weighted_tokens in word_lists.items():
        tokens_by_class[label] = [token for token, _ in weighted_tokens]
    rows = []
    for label, tokens in tokens_by_class.items():
        elsewhere: set[str] = set()
        for other_label, other_tokens in tokens_by_class.items():
            if other_label != label:
                elsewhere.update(other_tokens)
        rows.append({"class": label, "tokens": tokens, "shared": [token for token in tokens if token in elsewhere]})
    return rows


def _count_measured(table: Table) -> int | None:
    """Return how many of the task's examples have values; None if every metric prepares its own examples."""
    on_task = {text for text, spec in table.measures.items() if spec.metric.prepare is None}
    if not on_task:
        return None
    counts = [len(repeats[0]) for (_, metric), repeats in table.records.items() if metric in on_task]
    return max(counts, default=0)


def _costs(table: Table, seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds per example of each method run alone; with several seeds, of the first."""
    alone: dict[str, float] = {}
    for shard in seconds:
        for name, value in shard.items():
            if name.startswith("alone "):
                alone[name.removeprefix("alone ")] = value
    costs = {}
    for method in _list_methods(table):
        costs[method] = alone.get(method, alone.get(f"{method}:seed=0", 0.0))
    return costs


def _total_seconds(seconds: Sequence[Mapping[str, float]]) -> float:
    durations: list[float] = []
    for shard in seconds:
        # The number of examples is kept beside the times.
        durations += [value for name, value in shard.items() if name != "examples"]
    return sum(durations)


def _list_skipped(manifest: Mapping[str, Any], notes: Sequence[Mapping[str, Any]]) -> list[str]:
    reasons = _list_reasons(notes, "skipped")
    if manifest["skipped"]:
        reasons.insert(0, manifest["skipped"])
    return reasons


def _list_reasons(notes: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return what was refused or skipped in any shard, each once."""
    reasons: dict[str, None] = {}
    for note in notes:
        for name, reason in note[key].items():
            reasons[f"{name}: {reason}"] = None
    return list(reasons)
