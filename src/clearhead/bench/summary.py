"""What a run found: the table's rows, intervals, tests, curves and costs, made from the kept records alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clearhead.bench.run_folder import RunFolder

if TYPE_CHECKING:
    from clearhead.evaluation.evaluate import Table, TableEntry
    from clearhead.evaluation.metric import MetricSpec

LAYOUT = 3
Record = dict[str, Any]


def summarise_run(results: RunFolder) -> dict[str, Any]:
    """Values, intervals, tests, curves and costs: kept with a finished run, made anew for one still under way.

    A summary in the layout of another version is made anew as well, since it follows from the values alone.
    """
    kept = results.summary()
    if kept is not None and kept.get("layout") == LAYOUT:
        return kept
    manifest = results.manifest
    found = summarise(results, manifest)
    if all(results.has(number) for number in range(manifest["shards"])):
        results.finish(found)
    return found


def summarise(results: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the records say: the table's rows, every pair of methods compared, a curve for each that has one."""
    plan, table, notes = manifest["plan"], table_of(results, manifest["plan"]), list(results.notes())
    seconds = results.seconds()
    columns = {
        column_name(measure, part): measure.metric.better
        for measure in table.measures.values()
        for part in measure.metric.values
    }
    return {
        "layout": LAYOUT,
        "methods": list(dict.fromkeys(method for method, _ in table.records)),
        "values": columns,
        "rows": [{**row, "name": column_name(table.measures[row["metric"]], row["part"])} for row in table.rows],
        "comparisons": [
            {**row, "name": column_name(table.measures[row["metric"]], row["part"])}
            for row in table.differences(seed=plan["seed"])
        ],
        "curves": _curves(table, plan["seed"]),
        "words": _words(table),
        "costs": _costs(table, seconds),
        "seconds": sum(value for one in seconds for name, value in one.items() if name != "examples"),
        "examples": manifest["examples"],
        "measured": _measured(table),
        "shards": manifest["shards"],
        "done": sum(results.has(number) for number in range(manifest["shards"])),
        "skipped": [*([manifest["skipped"]] if manifest["skipped"] else []), *_told(notes, "skipped")],
        "refused": _told(notes, "refused"),
    }


def table_of(results: RunFolder, plan: Mapping[str, Any]) -> "Table":
    """The records of a run as `evaluate` would answer them."""
    from clearhead.evaluation.evaluate import Table, table_rows

    measures = {one.text: one for one in parse_metrics(plan["metrics"])}
    found: dict[str, dict[str, list[Record]]] = {}
    for row in results.values():
        found.setdefault(row["metric"], {}).setdefault(row["method"], []).append(row["record"])
    records: dict[tuple[str, str], list[list[Record]]] = {}
    rows = []
    for metric, by_method in found.items():
        whole = max(len(several) for several in by_method.values())
        kept = {method: several for method, several in by_method.items() if len(several) == whole}
        for entry in _entries(plan["methods"], list(kept)):
            records[entry.text, metric] = [kept[one.text] for one in entry.spellings]
            rows += table_rows(entry, measures[metric], records[entry.text, metric], seed=plan["seed"])
    return Table(rows, records=records, measures=measures)


def _entries(planned: Sequence[str], methods: Sequence[str]) -> "list[TableEntry]":
    """The rows of the table: the seeds of a `random` that was planned without one stand there as one."""
    from clearhead.evaluation.evaluate import parse_entries

    controls = [entry for entry in parse_entries(["random"]) if "random" in planned]
    seeds = {one.text for entry in controls for one in entry.spellings}
    own = [method for method in methods if method not in seeds]
    whole = [entry for entry in controls if all(one.text in methods for one in entry.spellings)]
    return [*(parse_entries(own) if own else []), *whole]


def column_name(measure: "MetricSpec", part: str) -> str:
    """A metric with one value is called as it was written, one with several by each of them."""
    if len(measure.metric.values) == 1:
        return measure.text
    options = measure.text.partition(":")[2]
    return f"{part} ({options})" if options else part


def _curves(table: "Table", seed: int) -> dict[str, list[dict[str, Any]]]:
    """By metric a line for each method, with its interval: the mean over its seeds."""
    from clearhead.evaluation.statistics import band

    found: dict[str, list[dict[str, Any]]] = {}
    for (method, metric), repeats in table.records.items():
        drawn = band(table.measures[metric], repeats, seed=seed)
        if drawn is not None:
            parts = {name: list(several) for name, several in asdict(drawn).items()}
            found.setdefault(metric, []).append({"method": method, **parts})
    return found


def _words(table: "Table") -> list[dict[str, Any]]:
    """For token overlap, by method and class: the strongest tokens, and those that other classes have too."""
    from clearhead.evaluation.top_words import word_lists

    found = []
    for (method, metric), repeats in table.records.items():
        if table.measures[metric].metric.name != "token-overlap":
            continue
        lists = {name: [token for token, _ in pairs] for name, pairs in word_lists(repeats[0]).items()}
        for name, tokens in lists.items():
            others = {token for other, several in lists.items() if other != name for token in several}
            shared = [token for token in tokens if token in others]
            found.append({"method": method, "class": name, "tokens": tokens, "shared": shared})
    return found


def _measured(table: "Table") -> int | None:
    """How many of the task's examples have values; none can be told where every metric makes its own."""
    plain = {text for text, measure in table.measures.items() if measure.metric.prepare is None}
    counts = (len(repeats[0]) for (_, metric), repeats in table.records.items() if metric in plain)
    return max(counts, default=0) if plain else None


def _costs(table: "Table", seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds per example of each method alone; of several seeds that of the first."""
    alone = {name.removeprefix("alone "): one[name] for one in seconds for name in one if name.startswith("alone ")}
    methods = dict.fromkeys(method for method, _ in table.records)
    return {one: alone.get(one, alone.get(f"{one}:seed=0", 0.0)) for one in methods}


def _told(notes: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    return list(dict.fromkeys(f"{name}: {reason}" for note in notes for name, reason in note[kind].items()))


def parse_metrics(metrics: Sequence[str]) -> "list[MetricSpec]":
    """The metrics of a plan, each once."""
    from clearhead.evaluation.metric import parse_metric

    return [parse_metric(one) for one in dict.fromkeys(metrics)]
