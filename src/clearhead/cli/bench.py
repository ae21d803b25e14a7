"""clearhead bench."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options as option
from clearhead.cli import outputs as sink
from clearhead.cli.compare import METHODS, named
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from rich.table import Table

    from clearhead.bench.benchmark import Benchmark
    from clearhead.bench.run import Runner


def benchmark_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from clearhead.bench.benchmark import BENCHMARKS

    return [name for name in BENCHMARKS if name.startswith(incomplete)]


NAME = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        autocompletion=benchmark_names,
        show_default=False,
        help="A paper's table, such as attcat-table1: its methods and metrics. See clearhead list benchmarks.",
    ),
]
TASK = Annotated[
    str | None, typer.Option(metavar="PATH|NAME", help="The data: .tsv, .csv, .jsonl, .parquet, a folder …")
]
METRICS = Annotated[
    list[str] | None,
    typer.Option("--metrics", metavar="A,B,C", help="As --methods; see clearhead list metrics."),
]
RUN = Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder: new, or begun and to be finished.")]
LABEL = Annotated[str | None, typer.Option(metavar="C", help="The table's column with the labels.")]
READER = Annotated[str | None, typer.Option(metavar="KIND", help="How to read the data; see clearhead list tasks.")]
LIMIT = Annotated[int | None, typer.Option(metavar="N", min=1, help="Draw so many examples, always the same.")]
BATCH = Annotated[str, typer.Option(metavar="auto|N", help="How many inputs share a pass.")]
SHARD = Annotated[int, typer.Option(metavar="N", min=1, help="How many examples are kept at a time.")]
SEED = Annotated[int, typer.Option(metavar="N", help="For the intervals and tests.")]
RAY = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS|local", help="Run on a Ray cluster: its address, or local for this machine."),
]
WORKERS = Annotated[int | None, typer.Option(metavar="N", min=1, help="How many Ray workers hold a model.")]


def bench(
    name: NAME = None,
    task: TASK = None,
    model: option.MODEL = None,
    methods: METHODS = None,
    metrics: METRICS = None,
    *,
    out: RUN,
    text_column: option.COLUMN = None,
    label_column: LABEL = None,
    reader: READER = None,
    limit: LIMIT = None,
    batch_size: BATCH = "auto",
    shard: SHARD = 32,
    seed: SEED = 0,
    precision: option.PRECISION = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
    ray: RAY = None,
    workers: WORKERS = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per value.")] = False,
) -> None:
    """Measure how far explanations can be trusted, on your model and data; killed, it goes on where it was."""
    from clearhead.bench.plan import Plan
    from clearhead.bench.run import run_plan

    chosen = _chosen(name)
    columns = {"text_column": text_column, "label_column": label_column, "reader": reader}
    plan = Plan(
        task=_task(task, chosen),
        model=model,
        methods=tuple(named(methods)) if methods else _default(chosen, "methods"),
        metrics=tuple(named(metrics)) if metrics else _default(chosen, "metrics"),
        columns={key: value for key, value in columns.items() if value is not None},
        limit=limit,
        shard=shard,
        batch_size=_batch(batch_size),
        precision=precision,
        lm_head=lm_head,
        seed=seed,
        device=device,
        benchmark=name,
    )
    with progress() as advance:
        found = run_plan(plan, out, _runner(ray, workers), advance)
    show(found, json)
    for line in (*found["skipped"], *found["refused"]):
        print(line, file=sys.stderr)
    print(f"Results are in {out}. Tables, curves and a verdict: clearhead report {out}", file=sys.stderr)


def _chosen(name: str | None) -> "Benchmark | None":
    if name is None:
        return None
    from clearhead.bench.benchmark import BENCHMARKS

    return BENCHMARKS[name]


def _task(task: str | None, chosen: "Benchmark | None") -> str:
    if task is None:
        hint = f"{chosen.name} wants {chosen.data}." if chosen else "For example --task dev.tsv."
        raise BadOption(f"Which data? Name it with --task. {hint}")
    return task


def _default(chosen: "Benchmark | None", kind: str) -> tuple[str, ...]:
    if chosen is None:
        raise BadOption(f"Which {kind}? Name them with --{kind} (see clearhead list {kind}), or name a paper's table.")
    found: tuple[str, ...] = getattr(chosen, kind)
    return found


def _batch(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"--batch-size {text} makes no sense: give auto, or a whole number, at least 1.")
    return int(text)


def _runner(ray: str | None, workers: int | None) -> "Runner":
    if ray is None:
        if workers is not None:
            raise BadOption("--workers counts Ray workers: give --ray local, or a cluster's address, with it.")
        from clearhead.bench.runners.local import local

        return local
    from clearhead.bench.runners.ray import Cluster

    return Cluster(None if ray == "local" else ray, workers)


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left on stderr, where that is a terminal, and no other beside it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from clearhead.progress import BAR

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    with BAR, Progress(*columns, *left, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Starting", total=None)

        def advance(done: int, total: int, said: str) -> None:
            bar.update(task, completed=done, total=total, description=said)

        yield advance


def show(found: Mapping[str, Any], json: bool) -> None:
    """The table: lines of JSON for programs, a grid for people."""
    if json:
        for row in found["rows"]:
            sink.print_json(row)
        return
    from rich.console import Console

    Console(highlight=False, markup=False, no_color=sink.is_plain()).print(_grid(found))


def _grid(found: Mapping[str, Any]) -> "Table":
    """A row per method, a column per value."""
    from rich.table import Table

    from clearhead.bench.run_folder import ARROWS, format_number

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    for name, better in found["values"].items():
        table.add_column(f"{name} {ARROWS.get(better, '')}", justify="right")
    cells = {(row["method"], row["name"]): f"{format_number(row['value'])}" for row in found["rows"]}
    for method in found["methods"]:
        table.add_row(method, *(cells.get((method, name), "–") for name in found["values"]))
    return table
