"""Benchmarks: task × model × methods × metrics, cut into jobs that can be lost and done again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.plan import Job, Plan, expand_layers, make_manifest, read_plan_task
from clearhead.bench.run_folder import (
    MANIFEST,
    SUMMARY,
    RunFolder,
    ShardResult,
    check_same,
    open_run,
)
from clearhead.bench.summary import summarise_run
from clearhead.bench.worker import group_metrics, make_jobs
from clearhead.data.parquet import to_parquet
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.validation import require_integer

if TYPE_CHECKING:
    pass


Record = dict[str, Any]
Runner = Callable[[Plan, Sequence[Job]], Iterator[ShardResult]]
Advance = Callable[[int, int, str], None]


# --- spellings of several methods ------------------------------------------------------------------------------


# --- before a run ----------------------------------------------------------------------------------------------


# --- one job ---------------------------------------------------------------------------------------------------


# --- a whole run -----------------------------------------------------------------------------------------------


def run_plan(plan: Plan, folder: Path, runner: Runner, advance: Advance = lambda *_: None) -> dict[str, Any]:
    """Runs what is missing of a plan into its folder, and sums up; a finished run is only read."""
    manifest = make_manifest(plan)
    if is_finished(folder, manifest):
        return _checked(summarise_run(RunFolder(folder)))
    task = read_plan_task(plan)
    check(plan)
    jobs = make_jobs(group_metrics(plan, task), plan.shard)
    manifest |= {"examples": len(task), "shards": len(jobs), "skipped": task.notice}
    with open_run(folder, manifest) as results:
        missing = [job for job in jobs if not results.has(job.number)]
        done = len(jobs) - len(missing)
        advance(done, len(jobs), "Measuring")
        for place, outcome in enumerate(runner(plan, missing) if missing else (), 1):
            results.keep(outcome)
            advance(done + place, len(jobs), "Measuring")
        return _checked(summarise_run(results))


def _checked(summary: dict[str, Any]) -> dict[str, Any]:
    if not summary["rows"]:
        raise UnsupportedModel(f"Nothing could be measured. {' '.join(summary['refused'][:1])}")
    return summary


def is_finished(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the folder holds this very run, summed up."""
    if not (folder / MANIFEST).exists() or not (folder / SUMMARY).exists():
        return False
    check_same(folder, manifest)
    return True


def check(plan: Plan) -> None:
    """Names and options that make no sense are refused before anything is written or loaded."""
    from clearhead.attribution.method import parse_method

    if not plan.methods or not plan.metrics:
        raise BadOption("Name at least one method and one metric.")
    require_integer("seed", plan.seed, 0, is_flag=True)
    for one in expand_layers(plan.methods, 12):
        parse_method(one)
    to_parquet([])
