"""Rows, comparisons, curves, word lists and costs of a run, computed from its records alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from clearhead.bench.accuracy import measure_accuracy
from clearhead.bench.controls import is_control
from clearhead.bench.metric_groups import parse_metrics, prepares_examples
from clearhead.bench.run_folder import RunFolder
from clearhead.evaluation.evaluate import Table, TableEntry, parse_entries, table_rows
from clearhead.evaluation.metric import MetricSpec, WordLists
from clearhead.evaluation.statistics import Band, band

Record = dict[str, Any]
RecordsByMethod = dict[str, list[Record]]
TokensByClass = Mapping[str, Sequence[str]]
Seconds = Mapping[str, float]

# Prefix of a method under which the times hold its seconds per example when run alone.
ALONE = "alone "


def compute_summary(run: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table's rows, every pair of methods compared, and a curve for each metric that has one."""
    seed = manifest["plan"]["seed"]
    table = build_table(run, manifest["plan"])
    return {
        **summarise_values(table, seed),
        "curves": _curves(table, seed),
        "words": _words(table),
        "accuracy": measure_accuracy(run, manifest),
        **_summarise_times(run, table),
        **_summarise_progress(run, manifest, table),
        **_summarise_notes(run, manifest),
    }


def summarise_values(table: Table, seed: int) -> dict[str, Any]:
    """Return the methods, the columns, the rows of the table, and every pair of methods compared."""
    return {
        "methods": _list_methods(table),
        "values": _value_columns(table),
        "metrics": list(map(_describe_metric, table.metrics.values())),
        "rows": _add_column_names(table, table.rows),
        "comparisons": _add_column_names(table, table.differences(seed=seed)),
    }


def _summarise_times(run: RunFolder, table: Table) -> dict[str, Any]:
    seconds = run.seconds()
    return {"costs": _costs(table, seconds), "seconds": _total_seconds(seconds)}


def _summarise_progress(run: RunFolder, manifest: Mapping[str, Any], table: Table) -> dict[str, Any]:
    return {
        "examples": manifest["examples"],
        "measured": _count_measured(table),
        "shards": manifest["shards"],
        "done": run.count_shards(manifest["shards"]),
    }


def _summarise_notes(run: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    notes = run.notes()
    return {"skipped": _list_skipped(manifest, notes), "refused": _list_reasons(notes, "refused")}


def build_table(run: RunFolder, plan: Mapping[str, Any]) -> Table:
    """Return the records of a run as the table that `evaluate` returns."""
    specs = {spec.text: spec for spec in parse_metrics(plan["metrics"])}
    records = {}
    rows = []
    for metric, by_method in _group_records(run).items():
        for entry, repeats in _group_repeats(plan["methods"], by_method):
            records[entry.text, metric] = repeats
            rows += table_rows(entry, specs[metric], repeats, seed=plan["seed"])
    return Table(rows, records=records, metrics=specs)


def _group_repeats(
    planned: Sequence[str], by_method: RecordsByMethod
) -> Iterator[tuple[TableEntry, list[list[Record]]]]:
    """Yield the rows of the table for one metric, each with the records of its seeds."""
    # Per metric, because a method may refuse the targets of one and not of another.
    complete = _complete_methods(by_method)
    for entry in _make_entries(planned, list(complete)):
        yield entry, [complete[method] for method in _list_texts(entry)]


def _list_texts(entry: TableEntry) -> list[str]:
    """Return the spec strings of a row, one for each seed."""
    return [spec.text for spec in entry.specs]


def _group_records(run: RunFolder) -> dict[str, RecordsByMethod]:
    """Return the records by metric and method."""
    groups: dict[str, RecordsByMethod] = {}
    for row in run.values():
        by_method = groups.setdefault(row["metric"], {})
        by_method.setdefault(row["method"], []).append(row["record"])
    return groups


def _complete_methods(by_method: RecordsByMethod) -> RecordsByMethod:
    """Leave out methods that refused a shard: only methods with the same examples can be compared."""
    count = max(map(len, by_method.values()))
    return {method: records for method, records in by_method.items() if len(records) == count}


def _make_entries(planned: Sequence[str], methods: Sequence[str]) -> list[TableEntry]:
    """Return the rows of the table; the seeds of a control that was planned without one are one row."""
    averaged = _averaged_controls(planned)
    entries = _single_entries(methods, averaged)
    # A mean over some of its seeds only would not be the planned control.
    entries += [entry for entry in averaged if set(methods).issuperset(_list_texts(entry))]
    return entries


def _single_entries(methods: Sequence[str], averaged: Sequence[TableEntry]) -> list[TableEntry]:
    """Return a row for each method that is not a seed of an averaged control."""
    seeds = set(chain.from_iterable(map(_list_texts, averaged)))
    return _parse_entries([method for method in methods if method not in seeds])


def _parse_entries(methods: Sequence[str]) -> list[TableEntry]:
    # parse_entries refuses an empty list, which is a mistake in a plan but not here.
    if not methods:
        return []
    return parse_entries(methods)


def _averaged_controls(planned: Sequence[str]) -> list[TableEntry]:
    """Return the planned controls that stand for the mean of several seeds."""
    controls = _parse_entries(list(filter(is_control, planned)))
    return list(filter(_is_averaged, controls))


def _is_averaged(entry: TableEntry) -> bool:
    return len(entry.specs) > 1


def column_name(spec: MetricSpec, value: str) -> str:
    """Return a metric's spec if it has one value, else the name of the value with the metric's options."""
    if len(spec.metric.values) == 1:
        return spec.text
    options = spec.text.partition(":")[2]
    if not options:
        return value
    return f"{value} ({options})"


def _value_columns(table: Table) -> dict[str, str]:
    """Return whether higher or lower is better, by column."""
    columns = {}
    for spec in table.metrics.values():
        for name in _column_names(spec):
            columns[name] = spec.metric.better
    return columns


def _column_names(spec: MetricSpec) -> list[str]:
    return [column_name(spec, value) for value in spec.metric.values]


def _describe_metric(spec: MetricSpec) -> Record:
    """Return the columns of a metric and what it measures, so that a report need not import metrics."""
    return {"columns": _column_names(spec), "better": spec.metric.better, "summary": spec.summary}


def _add_column_names(table: Table, rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    return [{**row, "name": _row_column(table, row)} for row in rows]


def _row_column(table: Table, row: Mapping[str, Any]) -> str:
    return column_name(table.metrics[row["metric"]], row["part"])


def _list_methods(table: Table) -> list[str]:
    return list(dict.fromkeys(method for method, _ in table.records))


def _curves(table: Table, seed: int) -> dict[str, list[Record]]:
    """Return by metric a line for each method, the mean over its seeds, with its interval."""
    curves: dict[str, list[Record]] = {}
    for (method, metric), repeats in table.records.items():
        curve = band(table.metrics[metric], repeats, seed=seed)
        if curve is not None:
            curves.setdefault(metric, []).append(_curve_record(method, curve))
    return curves


def _curve_record(method: str, curve: Band) -> Record:
    # Lists, because the summary must equal what is read back from JSON.
    points = {name: list(numbers) for name, numbers in asdict(curve).items()}
    return {"method": method, **points}


def _words(table: Table) -> list[Record]:
    """Return by method and class the strongest tokens, and those that other classes have too."""
    rows: list[Record] = []
    for (method, metric), repeats in table.records.items():
        words_of = table.metrics[metric].metric.words_of
        if words_of is not None:
            # Of a control, whose seeds differ, the first seed.
            rows += _class_words(method, _tokens_by_class(words_of(repeats[0])))
    return rows


def _class_words(method: str, tokens_by_class: TokensByClass) -> Iterator[Record]:
    for label, tokens in tokens_by_class.items():
        shared = _shared_tokens(tokens_by_class, label)
        yield {"method": method, "class": label, "tokens": tokens, "shared": shared}


def _shared_tokens(tokens_by_class: TokensByClass, label: str) -> list[str]:
    """Return the tokens of a class that another class has too."""
    elsewhere = _tokens_of_others(tokens_by_class, label)
    return [token for token in tokens_by_class[label] if token in elsewhere]


def _tokens_by_class(word_lists: WordLists) -> TokensByClass:
    return {label: _drop_weights(weighted) for label, weighted in word_lists.items()}


def _drop_weights(weighted_tokens: Iterable[tuple[str, float]]) -> list[str]:
    return [token for token, _ in weighted_tokens]


def _tokens_of_others(tokens_by_class: TokensByClass, label: str) -> set[str]:
    """Return the tokens of all classes but one."""
    remaining = (tokens for name, tokens in tokens_by_class.items() if name != label)
    return set(chain.from_iterable(remaining))


def _count_measured(table: Table) -> int | None:
    """Return how many of the task's examples have values; None if every metric prepares its own examples."""
    if all(map(prepares_examples, table.metrics.values())):
        return None
    return max(_count_records(table), default=0)


def _count_records(table: Table) -> Iterator[int]:
    """Yield the number of records of each method and metric on the task's own examples."""
    for (_, metric), repeats in table.records.items():
        if not prepares_examples(table.metrics[metric]):
            yield len(repeats[0])


def _costs(table: Table, seconds: Sequence[Seconds]) -> dict[str, float]:
    """Return the seconds per example of each method run alone."""
    alone = _seconds_alone(seconds)
    return {method: _find_cost(alone, method) for method in _list_methods(table)}


def _find_cost(alone: Seconds, method: str) -> float:
    # A method with several seeds was timed with the first.
    return alone.get(method, alone.get(f"{method}:seed=0", 0.0))


def _seconds_alone(seconds: Sequence[Seconds]) -> dict[str, float]:
    """Return the costs that the first job measured, by method."""
    alone = {}
    for name, value in _list_times(seconds):
        if name.startswith(ALONE):
            alone[name.removeprefix(ALONE)] = value
    return alone


def _total_seconds(seconds: Sequence[Seconds]) -> float:
    # The number of examples is kept beside the times.
    return sum(value for name, value in _list_times(seconds) if name != "examples")


def _list_times(seconds: Sequence[Seconds]) -> Iterator[tuple[str, float]]:
    """Yield what the shards recorded, by name."""
    for shard in seconds:
        yield from shard.items()


def _list_skipped(manifest: Mapping[str, Any], notes: Sequence[Mapping[str, Any]]) -> list[str]:
    reasons = _list_reasons(notes, "skipped")
    if manifest["skipped"]:
        reasons.insert(0, manifest["skipped"])
    return reasons


def _list_reasons(notes: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return what was refused or skipped in any shard, each once."""
    return list(dict.fromkeys(_iterate_reasons(notes, key)))


def _iterate_reasons(notes: Sequence[Mapping[str, Any]], key: str) -> Iterator[str]:
    for note in notes:
        yield from map(": ".join, note[key].items())
