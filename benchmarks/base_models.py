"""Run all methods and the papers' tables on the embedded models and on models of base size, several runs at a time.

    python benchmarks/base_models.py --data ../shared/data --models runs --out results [--jobs 8] [--device cuda]
    python benchmarks/base_models.py … --only 'default-*'                        # the comparison of all methods alone

`--models` is the folder with mpnet-mlm, mpnet-sst2, mpnet-agnews and dinov2-pets, made by training/base.py. Each run is
a `clearhead bench` in a process of its own with a run folder under `--out`, so a second call resumes where the first
stopped; afterwards each has a report, `--out/NAME.md`. Runs start in the order of the list, the most wanted first.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from yardstick import command

GRADIENT_READOUTS = ("cat", "att-cat", "grads", "att-grads", "attention-gradcam", "gradient-x-input", "trans-att")
BACKWARDS = ("balanced", "attn-lrp")
ONE_PASS = (
    "balanced-cat:backward=attn-lrp",
    "balanced-cat:backward=balanced",
    "attn-lrp",
    "cp-lrp",
    "trans-att",
    "att-cat",
    "cat",
    "grads",
    "att-grads",
    "attention-gradcam",
    "layer-gradcam",
    "gae",
    "lrp",
    "partial-lrp",
    "raw-attention",
    "rollout",
    "gradient",
    "gradient-x-input",
)
SAMPLED = ("integrated-gradients", "smooth-gradient", "gradient-shap", "occlusion", "lime", "shapley-sampling")
CONTROL = ("random",)
# Examples of the comparison of all methods, some of which need hundreds of passes each.
EXAMPLES = {"sst2": "872", "agnews": "300", "pets": "300"}
# Examples of those of the papers' tables that need thousands of passes for each; the others use all.
PAPER_EXAMPLES = {
    "decoded-table2-agnews-base": "500",
    "decoded-table2-agnews": "500",
    "decoded-figure4-agnews-base": "200",
}
TEXT_METRICS = "aopc,lodds,comprehensiveness,sufficiency,hiding,revealing"
IMAGE_METRICS = "positive-perturbation,negative-perturbation,segmentation"


@dataclass(frozen=True)
class Run:
    """One benchmark: a name, and the arguments of `clearhead bench`."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Folders:
    """Where data, models and results are."""

    data: Path
    models: Path
    out: Path

    def task(self, name: str) -> tuple[str, str]:
        files = {"sst2": "sst2/dev.tsv", "agnews": "ag_news/test.tsv", "pets": "oxford_pets/test.parquet"}
        return "--task", str(self.data / files[name])

    def overlap(self) -> tuple[str, str]:
        # Without document frequencies articles and punctuation are among the top tokens of every class.
        return "--metrics", f"token-overlap:reference={self.data / 'imdb/unsup.jsonl.gz'},text_column=text"

    def base_model(self, name: str) -> tuple[str, str]:
        return "--model", str(self.models / name / "model")


def list_methods() -> tuple[str, ...]:
    """Return every method that costs one backward pass or less, with each backward pass."""
    variants = []
    for backward in BACKWARDS:
        variants += [f"{name}:backward={backward}" for name in GRADIENT_READOUTS if name != "cat"]
    return (*ONE_PASS, *variants)


def repeat_flag(flag: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flag before each value, because the options of methods and metrics may contain commas."""
    arguments: list[str] = []
    for value in values:
        arguments += [flag, value]
    return tuple(arguments)


def list_default_runs(folders: Folders) -> Iterator[Run]:
    """Yield the runs that choose the default: all methods on every model and data set."""
    text = (
        *repeat_flag("--methods", (*list_methods(), "decoded-gradcam", *SAMPLED, *CONTROL)),
        "--metrics",
        TEXT_METRICS,
    )
    # Sampling 256 patches one by one costs more than all other methods together; superpixels do not fit a patch grid.
    images = (*repeat_flag("--methods", (*list_methods(), *SAMPLED[:3], *CONTROL)), "--metrics", IMAGE_METRICS)
    head = ("--lm-head", str(folders.models / "mpnet-mlm" / "model"))
    for name in ("sst2", "agnews"):
        task = (*folders.task(name), "--limit", EXAMPLES[name])
        yield Run(f"default-{name}-base", (*task, *folders.base_model(f"mpnet-{name}"), *head, *text))
        yield Run(f"default-{name}-small", (*task, "--model", f"clearhead/{name}-minilm", *text))
    pets = (*folders.task("pets"), "--limit", EXAMPLES["pets"])
    yield Run("default-pets-base", (*pets, *folders.base_model("dinov2-pets"), *images))
    yield Run("default-pets-small", (*pets, "--model", "clearhead/pets-vit", *images))


def list_paper_runs(folders: Folders) -> Iterator[Run]:
    """Yield the papers' tables and figures on the models of base size, and the runs that were stopped early."""
    head = ("--lm-head", str(folders.models / "mpnet-mlm" / "model"))
    for name in ("sst2", "agnews"):
        model = (*folders.task(name), *folders.base_model(f"mpnet-{name}"))
        yield Run(f"attcat-table1-{name}-base", ("attcat-table1", *model))
        orders = ("--metrics", "kendall", "--metrics", "kendall:order=index")
        yield Run(f"attcat-table2-{name}-base", ("attcat-table2", *model, *orders))
        table, layers = ("table1", "figure5") if name == "sst2" else ("table2", "figure6")
        yield Run(f"decoded-{table}-{name}-base", (f"decoded-{table}", *model, *head))
        yield Run(f"decoded-{layers}-{name}-base", (f"decoded-{layers}", *model, *head))
        yield Run(f"decoded-figure4-{name}-base", ("decoded-figure4", *model, *head, *folders.overlap()))
    pets = (*folders.task("pets"), *folders.base_model("dinov2-pets"))
    for table in ("table1", "table2", "table3"):
        yield Run(f"transatt-{table}-pets-base", (f"transatt-{table}", *pets))
    yield Run("decoded-table1-sst2", ("decoded-table1", *folders.task("sst2"), "--model", "clearhead/sst2-minilm"))
    news = (*folders.task("agnews"), "--model", "clearhead/agnews-minilm")
    yield Run("decoded-table2-agnews", ("decoded-table2", *news))
    yield Run("transatt-table1-pets", ("transatt-table1", *folders.task("pets"), "--model", "clearhead/pets-vit"))


def limit_examples(run: Run) -> Run:
    """Return the run with the number of examples it is made on, if not all."""
    if run.name not in PAPER_EXAMPLES:
        return run
    return Run(run.name, (*run.arguments, "--limit", PAPER_EXAMPLES[run.name]))


def execute(run: Run, folders: Folders, common: list[str]) -> str:
    """Run a benchmark and write its report; return what happened in one line."""
    folder = folders.out / run.name
    with open(folders.out / f"{run.name}.log", "w") as log:
        bench = [sys.executable, "-m", "clearhead", "bench", *run.arguments, "--out", str(folder), *common]
        code = subprocess.run(bench, stdout=log, stderr=subprocess.STDOUT).returncode
        report = [sys.executable, "-m", "clearhead", "report", str(folder), "--out", str(folder.with_suffix(".md"))]
        subprocess.run(report, stdout=log, stderr=subprocess.STDOUT)
    return f"{run.name}: {'done' if code == 0 else f'exit code {code}'}"


def make_parser(description: str, *, jobs: int) -> argparse.ArgumentParser:
    """Return a parser with the options of scripts that make several runs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=jobs, help="runs at a time")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="runs by name, with *; may be repeated")
    return parser


def select_runs(runs: Iterable[Run], patterns: list[str] | None) -> list[Run]:
    """Return the runs whose names match one of the patterns, or all without patterns; stop if no name does."""
    named = {run.name: run for run in runs}
    if patterns is None:
        return list(named.values())
    selected = [run for name, run in named.items() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not selected:
        raise SystemExit(f"No run is called {' or '.join(patterns)}. Runs: {', '.join(named)}.")
    return selected


def execute_all(runs: Iterable[Run], folders: Folders, arguments: argparse.Namespace, *flags: str) -> None:
    """Execute the selected runs, some at a time; `flags` are further arguments of each."""
    folders.out.mkdir(parents=True, exist_ok=True)
    selected = select_runs(runs, arguments.only)
    common = ["--device", arguments.device, "--shard", "64", *flags]
    print(command(), flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for line in pool.map(lambda run: execute(run, folders, common), selected):
            print(line, flush=True)


def main() -> None:
    arguments = make_parser(__doc__ or "", jobs=8).parse_args()
    folders = Folders(arguments.data, arguments.models, arguments.out)
    paper_runs = map(limit_examples, list_paper_runs(folders))
    execute_all([*paper_runs, *list_default_runs(folders)], folders, arguments)


if __name__ == "__main__":
    main()
