"""Explanations of a language model's answer: Clearhead beside inseq, Captum and ContextCite, in one process.

    python benchmarks/generation_speed.py MODEL [--prompt 128] [--answer 32] [--threads 2] [--repeats 3] [--only WORD …]
    python benchmarks/generation_speed.py MODEL --device cuda [--occluded-steps 4] [--parts 32] [--slow 10]

The same decoder, prompt and answer for all. Rounds are interleaved, and medians of seconds are reported; with
`--cpu-time --threads 1` they are those of the process alone, so that other work on the machine counts less. On a GPU
a round that is not counted comes first. A neighbour that is not installed, or fails, gets a row that says why. They may
be installed apart: `pip install --no-deps --target FOLDER inseq context_cite …`, and PYTHONPATH=FOLDER. The report is
written anew after every row, so that a run that is stopped leaves what it measured.
"""

import argparse
import logging
import math
import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import torch
import transformers
from answer_rows import BATCHES, PACKAGES, PATH_STEPS, Row, Settings, Task, make_task
from neighbours import version
from yardstick import command, synchronise


@dataclass(frozen=True)
class Results:
    """Rows that ran, their numbers and seconds in the first round and in those that count, and why others did not run.

    `save` writes what is known so far. On a GPU the first round does not count: it compiles kernels and takes memory.
    """

    clock: Callable[[], float]
    first_counts: bool
    save: Callable[["Results"], None]
    rows: dict[str, Row] = field(default_factory=dict)
    scores: dict[str, np.ndarray | None] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def seconds(self, name: str) -> float:
        """Return the median over the rounds that count, or the first round's if there are none yet."""
        return median(self.times[name] or [self.first[name]]) / self.rows[name].share


def run_once(task: Task, words: list[str], results: Results) -> None:
    """Build and run every row in a first round."""
    for package, build in PACKAGES.items():
        try:
            for row in build(task):
                if not words or any(word in row.name for word in words):
                    _try(row, results)
        except Exception as error:
            results.refused[package] = _describe(error)
    results.save(results)


def _try(row: Row, results: Results) -> None:
    try:
        row.prepare()
        start = results.clock()
        results.scores[row.name] = row.work()
        results.first[row.name] = results.clock() - start
        results.times[row.name] = [results.first[row.name]] if results.first_counts else []
        results.rows[row.name] = row
        print(f"{row.name}: {results.first[row.name]:.3f} s", flush=True)
    except Exception as error:
        results.refused[row.name] = _describe(error)
        print(row.name, traceback.format_exc(), flush=True)
    results.save(results)


def run_again(results: Results, rounds: int, slow: float) -> None:
    """Time all rows in turn, so that a busy machine disturbs all alike; those slower than `slow` are timed once."""
    for _ in range(rounds):
        for name in list(results.rows):
            if results.first[name] < slow or not results.times[name]:
                _time(name, results)
        results.save(results)


def _time(name: str, results: Results) -> None:
    try:
        start = results.clock()
        results.rows[name].work()
        results.times[name].append(results.clock() - start)
    except Exception as error:
        results.refused[name] = _describe(error)
        del results.rows[name]


def _describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())[:200]


def find_difference(results: Results, row: Row) -> str:
    """Return the largest difference from the row that should give the same, over the largest value."""
    theirs, ours = results.scores[row.name], results.scores.get(row.equals or "")
    if theirs is None or ours is None:
        return "–"
    if len(theirs) != len(ours):
        return f"not comparable: {len(theirs)} steps and {len(ours)}"
    # Captum leaves out the answer's own earlier tokens.
    width = min(ours.shape[1], theirs.shape[1])
    return f"{np.abs(ours[:, :width] - theirs[:, :width]).max() / np.abs(ours).max():.0e}"


def make_table(results: Results) -> list[str]:
    lines = ["| work | seconds | rounds | × Clearhead's | largest difference |", "|---|---|---|---|---|"]
    for name, row in results.rows.items():
        seconds, rounds = results.seconds(name), len(results.times[name]) or "the first, which should not count"
        ratio = f"{seconds / results.seconds(row.beside):.1f}" if row.beside in results.rows else "–"
        lines.append(f"| {name} | {seconds:.3g} | {rounds} | {ratio} | {find_difference(results, row)} |")
    lines += [f"| {name} | {reason} | – | – | – |" for name, reason in results.refused.items()]
    return lines


NOTES = """\
Clearhead's rows of gradients for the whole answer take one backward pass; inseq and Captum have no such way, and their
rows stand beside "every step". Gradients of every step need a backward pass for each step in all packages; Clearhead
saves the forward passes, and the head over the vocabulary. "×" is the time over that of Clearhead's row of the same
method. The largest difference is over the largest value. Paths have {path_steps} steps. Clearhead's is that of the
whole answer, the others' are of every step, and baselines differ, so their numbers are not compared. inseq's occlusion,
where it has a row, was run for {settings.occluded_steps} of the steps, and its time multiplied; so was Captum's
FeatureAblation, which ran for {settings.occluded_parts} parts of the prompt, by its default token by token of the
answer. ContextCite puts its chat template around each prompt, so its rows are longer; it ran {settings.batch} prompts
at a time where its row does not say that it ran them one by one, which is its default.{precision}"""
PRECISIONS = {
    "cpu": "",
    "cuda": " On a GPU it computes in float16 wherever torch's autocast admits it: one of its rows runs without that. "
    "All else is float32 without TF32.",
}


def _quiet() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)


def make_report(results: Results, task: Task, options: argparse.Namespace) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    on_gpu = options.device == "cuda"
    device = torch.cuda.get_device_name() if on_gpu else "CPU"
    warm_up = ", after one that is not counted" if on_gpu else ""
    sections = [
        f"# Explaining an answer on a{'n' if device.startswith('N') else ''} {device}, {date.today()}",
        f"`{command().replace(options.model, 'MODEL')}`",
        f"{device}, {platform.machine()}, CPU threads: {options.threads} of {os.cpu_count()}, load average at the end "
        f"{load}; torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{', '.join(map(version, ('inseq', 'captum', 'context-cite')))}. {Path(options.model).name}: prompt of "
        f"{task.start} tokens, answer of {task.steps}, float32; interleaved rounds: {options.repeats}{warm_up}, of "
        f"which medians are shown. Seconds are {'CPU time' if options.cpu_time else 'wall-clock time'}.",
        "\n".join(make_table(results)),
        NOTES.format(path_steps=PATH_STEPS, settings=task.settings, precision=PRECISIONS[options.device]),
    ]
    return "\n\n".join(sections) + "\n"


def make_clock(device: str, *, cpu_time: bool) -> Callable[[], float]:
    read = time.process_time if cpu_time else time.perf_counter

    def clock() -> float:
        synchronise(device)
        return read()

    return clock


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a decoder")
    for name, default in {"prompt": 128, "answer": 32, "threads": 2, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=tuple(BATCHES), default="cpu")
    parser.add_argument("--batch", type=int, help="prompts that ContextCite runs at once; 8, or 64 on a GPU")
    # inseq runs a forward pass for each token and step, an hour on a CPU; Captum one for each part and answer token.
    parser.add_argument("--occluded-steps", type=int, default=1, help="steps of inseq's occlusion")
    parser.add_argument("--parts", type=int, default=16, help="parts of the prompt for Captum's FeatureAblation")
    parser.add_argument("--slow", type=float, default=math.inf, help="seconds above which a row is timed once only")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose names contain one of these words")
    parser.add_argument("--cpu-time", action="store_true", help="measure the time of the process")
    results_folder = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results_folder / f"{date.today()}-generation-speed.md")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    _quiet()
    torch.set_num_threads(options.threads)
    batch = options.batch or BATCHES[options.device]
    settings = Settings(options.device, batch, options.occluded_steps, options.parts)
    task = make_task(options.model, options.prompt, options.answer, settings)

    def save(results: Results) -> None:
        options.out.write_text(make_report(results, task, options))

    first_counts = options.device == "cpu"
    results = Results(make_clock(options.device, cpu_time=options.cpu_time), first_counts, save)
    run_once(task, options.only, results)
    run_again(results, options.repeats - first_counts, options.slow)


if __name__ == "__main__":
    main()
