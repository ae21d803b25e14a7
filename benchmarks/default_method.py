"""Choose the default method: who leads on each value, from the runs that compare all methods.

    python benchmarks/base_models.py --data ../shared/data --models runs --out results --only 'default-*'
    python benchmarks/default_method.py results/default-* [--out benchmarks/results]

Print the table and the counts of docs/methods/README.md, and write the result file of each run from "## Verdict" on;
the text above it, which says what was run, is kept. Methods without repeated passes are tested among each other. A
method leads on a value if it is the best of them or not significantly worse than the best.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from base_models import SAMPLED
from default_method_text import DEFAULT, format_document, format_main_table

from clearhead.bench.controls import is_control
from clearhead.bench.evidence import Evidence
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.tables import build_table, column_name
from clearhead.evaluation.comparison import compare_methods, difference_rows
from clearhead.evaluation.evaluate import Table
from clearhead.evaluation.metric import MetricSpec
from clearhead.evaluation.paired_tests import Difference, Sample, compare_samples, draw_sample, holm
from clearhead.evaluation.statistics import Repeats

PLAIN = "balanced-cat"
# What balanced-cat without an option was before `balanced` became its default.
EARLIER = "balanced-cat:backward=attn-lrp"
MAIN_VALUES = ("aopc", "negative-perturbation")
ORDER = ("sst2-small", "sst2-base", "agnews-small", "agnews-base", "pets-small", "pets-base")
ROOT = Path(__file__).parents[1]

Row = Mapping[str, Any]
Tested = tuple[Difference, float]
"""The default minus another method, and the corrected p-value."""


@dataclass(frozen=True)
class Leads:
    """On how many values a method leads, and on how many it was measured."""

    count: int
    measured: int


@dataclass(frozen=True)
class Comparison:
    """A run of all methods, with what its records show."""

    name: str
    manifest: Mapping[str, Any]
    table: Table

    @cached_property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.table.records))

    @cached_property
    def cheap(self) -> list[str]:
        """Return the methods without repeated passes."""
        return [method for method in self.methods if is_cheap(method)]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Return whether higher or lower is better, by value."""
        return {self.column(row): row["better"] for row in self.table.rows}

    @cached_property
    def rows(self) -> dict[tuple[str, str], Row]:
        """Return value and interval by method and value."""
        return {(row["method"], self.column(row)): row for row in self.table.rows}

    @cached_property
    def evidence(self) -> Evidence:
        """Return who leads on the values that are means, among the methods without repeated passes."""
        values = {spec.text: self.columns[spec.text] for spec in self.means}
        comparisons = list(chain.from_iterable(map(self.compare, self.means)))
        summary = {"values": values, "costs": {}, "methods": self.cheap, "rows": self.name_rows()}
        return Evidence({**summary, "comparisons": comparisons})

    def compare(self, spec: MetricSpec) -> list[Row]:
        """Return the tests of every two methods without repeated passes on a metric that is a mean."""
        compared = compare_methods(spec, self.records(spec, self.cheap), self.seed)
        return [{**row, "name": spec.text} for row in difference_rows(spec.text, compared)]

    def name_rows(self) -> list[Row]:
        """Return the rows of the methods without repeated passes, each with the name of its value."""
        rows = [row for row in self.table.rows if row["method"] in self.cheap]
        return [{**row, "name": self.column(row)} for row in rows]

    @property
    def means(self) -> list[MetricSpec]:
        return [spec for spec in self.table.metrics.values() if spec.metric.is_mean]

    @property
    def seed(self) -> int:
        return int(self.manifest["plan"]["seed"])

    @property
    def main_value(self) -> str:
        return next(name for name in MAIN_VALUES if name in self.columns)

    @property
    def examples(self) -> int:
        return int(self.rows[DEFAULT, self.main_value]["n"])

    def column(self, row: Row) -> str:
        return column_name(self.table.metrics[row["metric"]], row["part"])

    def records(self, spec: MetricSpec, methods: Sequence[str]) -> dict[str, Repeats]:
        return {method: self.table.records[method, spec.text] for method in methods}

    def test_default(self, spec: MetricSpec, methods: Sequence[str]) -> dict[str, dict[str, Tested]]:
        """Test the default against the methods, corrected for their number; by value and method."""
        samples = {method: self.sample(spec, method) for method in (DEFAULT, *methods)}
        by_method = {method: compare_samples(samples[DEFAULT], samples[method]) for method in methods}
        return {name: correct(name, by_method) for name in spec.metric.values}

    def sample(self, spec: MetricSpec, method: str) -> Sample:
        return draw_sample(spec, self.table.records[method, spec.text], seed=self.seed)


def is_cheap(method: str) -> bool:
    return method not in SAMPLED and not is_control(method)


def correct(name: str, by_method: Mapping[str, Mapping[str, Difference]]) -> dict[str, Tested]:
    tested = [by_value[name] for by_value in by_method.values()]
    corrected = holm([difference.p for difference in tested])
    return dict(zip(by_method, zip(tested, corrected, strict=True), strict=True))


def read_comparison(folder: Path) -> Comparison:
    run = RunFolder(folder)
    manifest = run.manifest
    table = name_backward(build_table(run, manifest["plan"]))
    return Comparison(folder.name.removeprefix("default-"), manifest, table)


def name_backward(table: Table) -> Table:
    """Return the table with balanced-cat's backward pass in its name, each pass once.

    Earlier runs have it without an option, which means the default of their version, and with `balanced`.
    """
    metric = next(iter(table.metrics))
    if (PLAIN, metric) not in table.records:
        return table
    if table.records[PLAIN, metric] == table.records[DEFAULT, metric]:
        return drop_method(table, PLAIN)
    return rename_method(table, PLAIN, EARLIER)


def drop_method(table: Table, method: str) -> Table:
    rows = [row for row in table.rows if row["method"] != method]
    records = {key: repeats for key, repeats in table.records.items() if key[0] != method}
    return replace(table, rows=rows, records=records)


def rename_method(table: Table, old: str, new: str) -> Table:
    rows = [{**row, "method": rename(row["method"], old, new)} for row in table.rows]
    records = {(rename(key[0], old, new), key[1]): repeats for key, repeats in table.records.items()}
    return replace(table, rows=rows, records=records)


def rename(method: str, old: str, new: str) -> str:
    if method == old:
        return new
    return method


def position(comparison: Comparison) -> int:
    return ORDER.index(comparison.name)


def count_all_leads(comparisons: Sequence[Comparison]) -> dict[str, Leads]:
    """Return the leads of each method without repeated passes, the most first."""
    methods = dict.fromkeys(chain.from_iterable(comparison.cheap for comparison in comparisons))
    leads = {method: count_leads(comparisons, method) for method in methods}
    return dict(sorted(leads.items(), key=lambda entry: -entry[1].count))


def count_leads(comparisons: Sequence[Comparison], method: str) -> Leads:
    count = measured = 0
    for comparison in comparisons:
        if method in comparison.cheap:
            count += comparison.evidence.count_leads(method)
            measured += len(comparison.evidence.standings)
    return Leads(count, measured)


def list_lost_values(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the values on which the default does not lead."""
    for comparison in comparisons:
        for standing in comparison.evidence.standings:
            if DEFAULT not in standing.leading:
                yield f"{comparison.name}, {standing.name}"


def find_result_file(folder: Path, comparison: Comparison) -> Path:
    """Return the latest result file of the run, or that of today."""
    ending = f"default-{comparison.name}.md"
    today = folder / f"{date.today()}-{ending}"
    return max(folder.glob(f"*-{ending}"), default=today)


def write_result(path: Path, document: str) -> None:
    """Write the verdict and tables below the text that the file has above them."""
    introduction = ""
    if path.exists():
        introduction = path.read_text("utf-8").partition("## Verdict")[0]
    path.write_text(introduction + document, "utf-8")


def print_leads(comparisons: Sequence[Comparison]) -> None:
    leads = count_all_leads(comparisons)
    print(format_main_table(comparisons, leads))
    for method, entry in leads.items():
        print(f"{method}: {entry.count} of {entry.measured}")
    print("The default does not lead on:", "; ".join(list_lost_values(comparisons)))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder default-*")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the result files")
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    comparisons = sorted(map(read_comparison, arguments.runs), key=position)
    for comparison in comparisons:
        write_result(find_result_file(arguments.out, comparison), format_document(comparison))
    print_leads(comparisons)


if __name__ == "__main__":
    main()
