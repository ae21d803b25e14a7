"""Run the metrics of answers on language models: minimal pairs, LAMBADA passages, and aligned translations.

    python benchmarks/generation.py --data ../shared/data --models models --out results [--jobs 4] [--device cuda]
    python benchmarks/generation.py … --only pairs- --limit 40 --device cpu      # a small run

`--models` is the folder with smollm2 and marian-zh-en. Each run is a `clearhead bench` in a process of its own with a
run folder under `--out`, so a second call resumes where the first stopped; afterwards each has a report,
`--out/NAME.md`.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from base_models import Folders, Run, execute, methods_arguments
from yardstick import command

METHODS = (
    "attn-lrp",
    "cp-lrp",
    "balanced-cat",
    "integrated-gradients:steps=10",
    "gradient-x-input",
    "gradient",
    "att-cat",
    "cat",
    "gae",
    "trans-att",
    "rollout",
    "raw-attention",
    "random",
)
# Where the matrix of steps is needed, every method costs a pass for each token of the answer.
STEP_METHODS = ("attn-lrp", "cp-lrp", "gradient-x-input", "gae", "trans-att", "rollout", "raw-attention", "random")
EVIDENCE_METRICS = ("evidence-rank", "evidence-rank:first=true", "first-token-share")
FAITHFULNESS_METRICS = (
    "log-prob-drop",
    "lds",
    "log-prob-hiding",
    "log-prob-revealing",
    "soft-sufficiency",
    "soft-comprehensiveness",
)
PASSAGE_METRICS = ("recovery", "evidence-rank:target=answer", "first-token-share")


def metrics_arguments(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Return a `--metrics` flag for each metric, because options may contain commas."""
    arguments: list[str] = []
    for metric in metrics:
        arguments += ["--metrics", metric]
    return tuple(arguments)


def list_runs(folders: Folders) -> Iterator[Run]:
    """Yield the runs, the most wanted first."""
    generation = folders.data / "generation"
    methods = methods_arguments(METHODS)
    decoder = ("--model", str(folders.models / "smollm2"))
    evidence = (*decoder, *methods, *metrics_arguments(EVIDENCE_METRICS))
    yield Run("pairs-all", ("--task", str(generation / "blimp"), *evidence))
    passages = (*decoder, *methods, *metrics_arguments((*PASSAGE_METRICS, *FAITHFULNESS_METRICS)))
    yield Run("lambada", ("--task", str(generation / "annotated_lambada.json"), *passages))
    steps = (*methods_arguments(STEP_METHODS), *metrics_arguments(("alignment-error-rate", "aopc-per-step")))
    marian = ("--model", str(folders.models / "marian-zh-en"))
    yield Run("translations", ("--task", str(generation / "zhen.src-tgt"), *marian, *steps))
    faithful = (*decoder, *methods, *metrics_arguments(FAITHFULNESS_METRICS))
    # Longer prompts than those of the other tables, so that there is something to remove.
    yield Run("pairs-objects", ("--task", str(generation / "blimp" / "ioi_dataset.csv"), *faithful))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--limit", type=int, help="examples of each run")
    parser.add_argument("--only", default="", help="runs whose names begin so")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    folders = Folders(arguments.data, arguments.models, arguments.out)
    folders.out.mkdir(parents=True, exist_ok=True)
    selected = [run for run in list_runs(folders) if run.name.startswith(arguments.only)]
    common = ["--device", arguments.device, "--shard", "64"]
    if arguments.limit is not None:
        common += ["--limit", str(arguments.limit)]
    print(command(), flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for line in pool.map(lambda run: execute(run, folders, common), selected):
            print(line, flush=True)


if __name__ == "__main__":
    main()
