"""The runs of base_models.py, with the shards of a run in several processes: for a large GPU, and a short time.

    python benchmarks/shared_gpu.py --data ../shared/data --models runs --out results --only transatt-table1-pets-base

One process cannot keep a large GPU busy; `clearhead bench --ray local --workers N` uses several where Ray is installed.
Here shards come in random order, so that a run that `--minutes` stops holds a random sample; the same command goes on
from there. With `--tf32` the perturbed inputs of metrics are multiplied in tf32, which is several times as fast;
explanations are computed in float32 all the same.
"""

import argparse
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from base_models import Folders, Run, limit_examples, list_default_runs, list_paper_runs, make_parser, select_runs
from yardstick import command

from clearhead.bench.benchmark import BENCHMARKS
from clearhead.bench.plan import Job, Plan
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import ShardResult
from clearhead.bench.worker import Worker, make_worker, run_job
from clearhead.cli.options import split_names
from clearhead.evaluation.metric import MetricSpec

_WORKERS: list[Worker] = []


class TimeIsUp(Exception):
    """The run was stopped before its end."""


@dataclass(frozen=True)
class SharedGpu:
    """Runs jobs in several processes of this machine, in random order, until it is time to stop."""

    processes: int
    stop: float
    tf32: bool

    def __call__(self, plan: Plan, groups: object, jobs: Sequence[Job]) -> Iterator[ShardResult]:
        order = random.Random(0).sample(jobs, len(jobs))
        # The first shard also measures what each method costs.
        order.sort(key=lambda job: job.number != 0)
        context = multiprocessing.get_context("spawn")
        with context.Pool(self.processes, _start, (plan, self.tf32)) as pool:
            results = pool.imap_unordered(_run, order)
            for _ in order:
                yield self._next(results)

    def _next(self, results: "multiprocessing.pool.IMapUnorderedIterator[ShardResult]") -> ShardResult:
        try:
            return results.next(timeout=max(0.0, self.stop - time.monotonic()))
        except multiprocessing.TimeoutError:
            raise TimeIsUp from None


def _start(plan: Plan, tf32: bool) -> None:
    """Load the model of a plan in a new process."""
    torch.set_num_threads(1)
    if tf32:
        MetricSpec.measure = _in_tf32(MetricSpec.measure)  # type: ignore[method-assign]
    _WORKERS.append(make_worker(plan))


def _in_tf32(measure: Callable[..., object]) -> Callable[..., object]:
    def measure_in_tf32(*arguments: object) -> object:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return measure(*arguments)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return measure_in_tf32


def _run(job: Job) -> ShardResult:
    return run_job(_WORKERS[0], job)


def make_plan(run: Run, device: str, shard: int) -> Plan:
    """Return the plan of a run from its arguments to `clearhead bench`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("benchmark", nargs="?")
    parser.add_argument("--limit", type=int)
    for flag in ("--task", "--model", "--lm-head"):
        parser.add_argument(flag)
    for flag in ("--methods", "--metrics"):
        parser.add_argument(flag, action="append")
    values = vars(parser.parse_args(run.arguments))
    for flag in ("methods", "metrics"):
        named = values[flag]
        values[flag] = tuple(split_names(named)) if named else getattr(BENCHMARKS[values["benchmark"]], flag)
    return Plan(**values, device=device, shard=shard)


def main() -> None:
    parser = make_parser(__doc__ or "", jobs=4)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long, whatever is missing")
    parser.add_argument("--shard", type=int, default=32, help="examples per shard")
    parser.add_argument("--limit", type=int, help="fewer examples, for a try")
    parser.add_argument("--tf32", action="store_true", help="multiply perturbed inputs in tf32")
    arguments = parser.parse_args()
    folders = Folders(arguments.data, arguments.models, arguments.out)
    runner = SharedGpu(arguments.jobs, time.monotonic() + 60 * arguments.minutes, arguments.tf32)
    print(command(), flush=True)
    for run in select_runs([*list_paper_runs(folders), *list_default_runs(folders)], arguments.only):
        print(_complete(limit_examples(run), folders.out, runner, arguments), flush=True)


def _complete(run: Run, out: Path, runner: SharedGpu, arguments: argparse.Namespace) -> str:
    """Run what is missing of a run; return what happened in one line."""
    limited = run if arguments.limit is None else Run(run.name, (*run.arguments, "--limit", str(arguments.limit)))
    start = time.monotonic()
    try:
        run_plan(make_plan(limited, arguments.device, arguments.shard), out / run.name, runner)
    except TimeIsUp:
        return f"{run.name}: stopped after {time.monotonic() - start:.0f} s"
    return f"{run.name}: done in {time.monotonic() - start:.0f} s"


if __name__ == "__main__":
    main()
