"""clearhead bench."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options, outputs
from clearhead.cli.bench_table import print_table
from clearhead.errors import BadOption
from clearhead.progress import Forecast, ProgressBar, progress

if TYPE_CHECKING:
    from clearhead.bench.benchmark import Benchmark
    from clearhead.bench.plan import Plan
    from clearhead.bench.run import Runner


LABEL = "Measuring examples"


def complete_benchmarks(incomplete: str) -> list[str]:
    """Return benchmark names for shell completion."""
    from clearhead.bench.benchmark import BENCHMARKS

    return options.match_prefix(BENCHMARKS, incomplete)


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        autocompletion=complete_benchmarks,
        show_default=False,
        help="A paper's table, such as attcat-table1, for its methods and metrics; see clearhead list benchmarks.",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(metavar="PATH|NAME", help="Data: a .tsv, .csv, .jsonl or .parquet table, a folder …"),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metrics", metavar="A,B,C", help="Metrics, written like --methods; see clearhead list metrics."),
]
Run = Annotated[Path, typer.Option("--out", metavar="RUN", help="Run folder: new, or one to resume.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="Label column of the table.")]
Reader = Annotated[str | None, typer.Option(metavar="NAME", help="Reader of the data; see clearhead list tasks.")]
Limit = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of examples, drawn at random with a fixed seed.")
]
BatchSize = Annotated[
    str, typer.Option(metavar="auto|N", help="Inputs per forward pass; auto halves batches that do not fit.")
]
Shard = Annotated[int, typer.Option(metavar="N", min=1, help="Examples per shard, the unit that is saved and resumed.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the intervals and tests.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per value.")]


def bench(
    name: Name = None,
    task: TaskName = None,
    model: options.ModelName = None,
    methods: options.Methods = None,
    metrics: Metrics = None,
    *,
    out: Run,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    reader: Reader = None,
    limit: Limit = None,
    batch_size: BatchSize = "auto",
    shard: Shard = 32,
    seed: Seed = 0,
    precision: options.Precision = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
    focus: options.Focus = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    json: Json = False,
) -> None:
    """Measure how far explanations can be trusted on your model and data; resumable."""
    from clearhead.bench.plan import Plan

    benchmark = _get_benchmark(name)
    task = _require_task(task, benchmark)
    columns = _select_given(text_column=text_column, label_column=label_column, reader=reader)
    defaults = _choose_defaults(task, columns) if benchmark is None and not (methods and metrics) else {}
    plan = Plan(
        task=task,
        model=model,
        methods=_choose_names("methods", methods, benchmark, defaults),
        metrics=_choose_names("metrics", metrics, benchmark, defaults),
        columns=columns,
        limit=limit,
        shard=shard,
        batch_size=_parse_batch_size(batch_size),
        precision=precision,
        lm_head=lm_head,
        allow_pickle=allow_pickle,
        seed=seed,
        device=device,
        benchmark=name,
        focus=focus,
    )
    # The bar appears at once, because reading the data and the model already takes a while.
    with progress(None, "Starting", at_once=True) as bar:
        summary = _run_or_stop(plan, out, _make_runner(ray, workers), bar, _describe_defaults(plan, defaults))
    _print_summary(summary, json=json)
    print(f"Results are in {out}. Tables, curves and a verdict: clearhead report {out}", file=sys.stderr)


def _select_given(**columns: str | None) -> dict[str, str]:
    # What is not given is not part of the plan, so that the reader uses its own defaults.
    return {key: value for key, value in columns.items() if value is not None}


def _get_benchmark(name: str | None) -> "Benchmark | None":
    from clearhead.bench.benchmark import BENCHMARKS

    if name is None:
        return None
    return BENCHMARKS[name]


def _require_task(task: str | None, benchmark: "Benchmark | None") -> str:
    if task is None:
        raise BadOption(f"No data given: name it with --task. {_suggest_task(benchmark)}")
    return task


def _suggest_task(benchmark: "Benchmark | None") -> str:
    if benchmark is None:
        return "For example --task dev.tsv."
    return f"{benchmark.name} needs {benchmark.data}."


def _describe_defaults(plan: "Plan", defaults: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a sentence for the methods, and for the metrics, if they were chosen for the user."""
    sentences = []
    for flag, names in defaults.items():
        if getattr(plan, flag) == names:
            chosen = ", ".join(names)
            sentences.append(f"No {flag} named, so these are used: {chosen}. Others: --{flag}, clearhead list {flag}.")
    return sentences


def _run_or_stop(
    plan: "Plan", folder: Path, runner: "Runner", bar: ProgressBar, sentences: list[str]
) -> dict[str, Any]:
    """Run a plan, print sentences once nothing is wrong with it, and if the user stops it, say what is kept."""
    from clearhead.bench.run import run_plan

    shown = RunProgress(bar, sentences)
    try:
        return run_plan(plan, folder, runner, shown)
    except KeyboardInterrupt:
        bar.close()
        print(shown.describe_stop(folder), file=sys.stderr)
        raise


class RunProgress:
    """Shows how far a run is, and prints sentences about it."""

    def __init__(self, bar: ProgressBar, sentences: list[str]) -> None:
        self.bar = bar
        self.sentences = sentences
        self.forecast = Forecast()
        self.kept = 0

    def __call__(self, done: int, kept: int, total: int) -> None:
        """Move the bar; tell the remaining time once a whole shard is finished, because its steps differ in cost."""
        self.kept = kept
        self.bar.update(done, total, LABEL)
        self.sentences.extend(filter(None, [self.forecast.update(kept, total)]))
        while self.sentences:
            print(self.sentences.pop(0), file=sys.stderr)

    def describe_stop(self, folder: Path) -> str:
        """Return what is left of a run that was stopped."""
        if self.bar.total is None:
            return "Stopped before anything was measured."
        kept = f"{self.kept} of {self.bar.total} examples are kept in {folder}"
        return f"Stopped: {kept}. The same command goes on from there."


def _choose_defaults(task: str, columns: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return a small set of methods and metrics for the data."""
    from clearhead.bench.default_plan import choose_default_plan
    from clearhead.data.read import read_task

    examples = read_task(task, limit=1, **columns).examples
    return choose_default_plan(examples)


def _choose_names(
    flag: str, names: list[str] | None, benchmark: "Benchmark | None", defaults: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the methods or metrics that were named, else those of the paper's table, else a small set."""
    if names:
        return tuple(options.split_names(names))
    if benchmark is not None:
        table: tuple[str, ...] = getattr(benchmark, flag)
        return table
    return defaults[flag]


def _parse_batch_size(text: str) -> int | None:
    if text == "auto":
        return None
    _require_positive(text)
    return int(text)


def _require_positive(text: str) -> None:
    if not _is_positive_integer(text):
        raise BadOption(f"Invalid --batch-size '{text}': use auto or a positive integer.")


def _is_positive_integer(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def _make_runner(ray: str | None, workers: int | None) -> "Runner":
    from clearhead.bench.runners.local import local
    from clearhead.bench.runners.ray import RayRunner
    from clearhead.cluster import parse_cluster

    cluster = parse_cluster(ray, workers)
    if cluster is None:
        return local
    return RayRunner(cluster)


def _print_summary(summary: Mapping[str, Any], *, json: bool) -> None:
    """Print the table, and on stderr what was skipped or refused."""
    if json:
        _print_records(summary)
    else:
        print_table(summary)
    _print_notes(summary)


def _print_notes(summary: Mapping[str, Any]) -> None:
    # On stderr, so that a program that reads the JSON is not disturbed.
    for line in (*summary["skipped"], *summary["refused"]):
        print(line, file=sys.stderr)


def _print_records(summary: Mapping[str, Any]) -> None:
    for row in summary["rows"]:
        outputs.print_json(row)
