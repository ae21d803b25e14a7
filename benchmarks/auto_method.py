"""Whether the method that auto chooses on each input beats the best single method, by metrics it was not chosen by.

    python benchmarks/auto_method.py --data sst2=dev.tsv --data agnews=test.tsv --data pets=test.parquet \\
        [--device cuda] [--limit 100] [--out benchmarks/results/DATE-auto-method.md]

auto chooses by deleting (images: blackening) the strongest 30 and 50 % of the words (patches), and by showing them
alone. Measured are smaller shares of sub-words, log-odds under padding, and blurred instead of black pixels. The best
single method of a metric is picked on the same inputs, which favours it. A run that was stopped goes on from what is in
the folder of `--records`; what is there is reported with `--measured`.
"""

import argparse
import pickle
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from yardstick import command

import clearhead
from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.data.read import read_task
from clearhead.data.task import Task
from clearhead.evaluation.evaluate import SAMPLES, Table, parse_entries, table_rows
from clearhead.evaluation.metric import parse_metric

MODELS = {"sst2": "clearhead/sst2-minilm", "agnews": "clearhead/agnews-minilm", "pets": "clearhead/pets-vit"}
TEXT_METRICS = ("comprehensiveness:bins=5/10/20", "sufficiency:bins=5/10/20", "lodds:steps=5")
IMAGE_METRICS = ("comprehensiveness:bins=5/10/20,replacement=blur", "sufficiency:bins=5/10/20,replacement=blur")
METHODS = ("auto", *ONE_TRACE_METHODS)
CONTROL = "random:seed=0"
PIECES = {"cpu": 5, "cuda": 50}
"""Inputs that are measured and recorded at a time; a GPU needs more of them to be busy."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FILE", help=", ".join(MODELS))
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--piece", type=int, help="inputs measured at a time, 5 on a CPU and 50 on a GPU")
    parser.add_argument("--records", type=Path, default=Path(tempfile.gettempdir()) / "auto-method")
    parser.add_argument("--measured", action="store_true", help="report what has been measured so far")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def measure(name: str, file: str, arguments: argparse.Namespace) -> list[str]:
    """Return the lines of the report on one model."""
    model = clearhead.load(MODELS[name], device=arguments.device)
    examples = read_task(file, limit=arguments.limit).examples
    metrics = IMAGE_METRICS if model.takes_images else TEXT_METRICS
    pieces = -(-len(examples) // (arguments.piece or PIECES.get(arguments.device, 5)))
    tables = []
    chosen: Counter[str] = Counter()
    for number in range(pieces):
        stored = arguments.records / f"{name}-{number}-of-{pieces}.pickle"
        if not stored.exists():
            if arguments.measured:
                break
            # Spread over all inputs, which may be sorted by class.
            piece = Task(name, examples[number::pieces])
            table = clearhead.evaluate(model, piece, [*METHODS, CONTROL], metrics)
            stored.write_bytes(pickle.dumps((table.records, count_choices(model, piece), len(piece))))
        records, choices, count = pickle.loads(stored.read_bytes())
        tables.append((records, count))
        chosen += choices
    table = join_tables([records for records, _ in tables], metrics)
    inputs = sum(count for _, count in tables)
    lines = [f"## {name}: {MODELS[name]}, {inputs} inputs", "", *describe_metrics(table), ""]
    return [*lines, describe_choices(chosen), ""]


def join_tables(pieces: Sequence[Mapping[tuple[str, str], list[list[Any]]]], metrics: Sequence[str]) -> Table:
    """Return one table of the records of several."""
    specs = {metric: parse_metric(metric) for metric in metrics}
    entries = {entry.text: entry for entry in parse_entries([*METHODS, CONTROL])}
    records = {}
    rows = []
    for key in pieces[0]:
        # Each method was repeated as often in every piece.
        repeats = [list(chain(*parts)) for parts in zip(*[piece[key] for piece in pieces], strict=True)]
        records[key] = repeats
        rows += table_rows(entries[key[0]], specs[key[1]], repeats, samples=SAMPLES, seed=0)
    return Table(rows, records=records, metrics=specs)


def describe_metrics(table: Table) -> list[str]:
    lines = [
        "| metric | auto | best single method | difference | p | default | random |",
        "|:--|--:|:--|--:|--:|--:|--:|",
    ]
    differences = {(row["metric"], row["first"], row["second"]): row for row in table.differences()}
    for metric, spec in table.metrics.items():
        values = {row["method"]: row["value"] for row in table.rows if row["metric"] == metric}
        choose = max if spec.metric.better == "higher" else min
        best = choose(ONE_TRACE_METHODS, key=lambda method: values.get(method, float("nan")))
        row = differences[metric, "auto", best]
        lines.append(
            f"| {metric} ({spec.metric.better}) | {values['auto']:.3f} | {best} {values[best]:.3f} "
            f"| {row['value']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] | {row['p']:.3f} "
            f"| {values[ONE_TRACE_METHODS[0]]:.3f} | {values[CONTROL]:.3f} |"
        )
    return lines


def count_choices(model: Any, task: Task) -> Counter[str]:
    inputs = [example.raw for example in task.examples]
    explanations = clearhead.explain(model, inputs, "auto", check=False, overflow="truncate")
    return Counter(explanation.diagnostics["auto"].split(" before ")[0] for explanation in explanations)


def describe_choices(chosen: Counter[str]) -> str:
    return "Chosen: " + ", ".join(f"{method} {count}" for method, count in chosen.most_common()) + "."


def main() -> None:
    arguments = parse_arguments()
    arguments.records.mkdir(parents=True, exist_ok=True)
    lines = ["# auto beside the best single method", "", f"`{command()}`", ""]
    lines += [f"PyTorch {torch.__version__}, {arguments.device}. p of the paired test, not corrected.", ""]
    for entry in arguments.data:
        name, _, file = entry.partition("=")
        lines += measure(name, file, arguments)
        print("\n".join(lines[-12:]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
