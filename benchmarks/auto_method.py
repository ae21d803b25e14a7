"""Whether the method that auto chooses on each input beats the best single method, by metrics it was not chosen by.

    python benchmarks/auto_method.py --data sst2=dev.tsv --data agnews=test.tsv --data pets=test.parquet \\
        --out benchmarks/results/DATE-auto-method.md

auto chooses by deleting (images: blackening) the strongest 30 and 50 % of the words (patches), and by showing them
alone. Measured are smaller shares of sub-words, log-odds under padding, and blurred instead of black pixels. The best
single method of a metric is picked on the same inputs, which favours it.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from yardstick import command

import clearhead
from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.data.read import read_task
from clearhead.evaluation.evaluate import Table

MODELS = {"sst2": "clearhead/sst2-minilm", "agnews": "clearhead/agnews-minilm", "pets": "clearhead/pets-vit"}
TEXT_METRICS = ("comprehensiveness:bins=5/10/20", "sufficiency:bins=5/10/20", "lodds:steps=5")
IMAGE_METRICS = ("comprehensiveness:bins=5/10/20,replacement=blur", "sufficiency:bins=5/10/20,replacement=blur")
METHODS = ("auto", *ONE_TRACE_METHODS)
CONTROL = "random:seed=0"
LEVEL = 0.05


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FILE", help=", ".join(MODELS))
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def measure(name: str, file: str, arguments: argparse.Namespace) -> list[str]:
    """Return the lines of the report on one model."""
    model = clearhead.load(MODELS[name], device=arguments.device)
    task = read_task(file, limit=arguments.limit)
    metrics = IMAGE_METRICS if model.takes_images else TEXT_METRICS
    start = time.perf_counter()
    table = clearhead.evaluate(model, task, [*METHODS, CONTROL], metrics)
    seconds = time.perf_counter() - start
    lines = [f"## {name}: {MODELS[name]}, {len(task)} inputs", "", *describe_metrics(table), ""]
    lines += [describe_choices(model, task), "", f"Measured in {seconds:.0f} s.", ""]
    return lines


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


def describe_choices(model: Any, task: Any) -> str:
    inputs = [example.raw for example in task.examples]
    explanations = clearhead.explain(model, inputs, "auto", check=False, overflow="truncate")
    chosen = Counter(explanation.diagnostics["auto"].split(" before ")[0] for explanation in explanations)
    return "Chosen: " + ", ".join(f"{method} {count}" for method, count in chosen.most_common()) + "."


def main() -> None:
    arguments = parse_arguments()
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
