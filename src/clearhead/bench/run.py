"""Run: completes or resumes a plan in its folder; a job that is lost is done again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.plan import SHARD_STEPS, Job, Plan, PlannedTask, expand_layers, make_manifest
from clearhead.bench.run_folder import SUMMARY, RunFolder, ShardResult, open_run
from clearhead.bench.summary import summarise_run
from clearhead.data.parquet import to_parquet
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.manifest import MANIFEST, check_same
from clearhead.progress import observe
from clearhead.validation import require_integer

if TYPE_CHECKING:
    from clearhead.bench.metric_groups import MetricGroup
    from clearhead.data.task import Task

# Runs the jobs of a plan and yields their results in any order.
Runner = Callable[[Plan, Sequence["MetricGroup"], Sequence[Job]], Iterator[ShardResult]]
# Shows progress: examples done, of which are kept on disk, and examples in all.
Advance = Callable[[int, int, int], None]

# Depth with which layer ranges are expanded to validate method names before the model is loaded.
PLACEHOLDER_BLOCKS = 12


def _ignore_progress(done: int, kept: int, total: int) -> None:
    """Show nothing."""


def run_plan(plan: Plan, folder: Path, runner: Runner, advance: Advance = _ignore_progress) -> dict[str, Any]:
    """Run what is missing of a plan into its folder, and return the summary; a finished run is only read."""
    task = PlannedTask(plan)
    manifest = make_manifest(plan, task)
    if is_finished(folder, manifest):
        summary = summarise_run(RunFolder(folder))
    else:
        summary = _complete(plan, task, folder, manifest, runner, advance)
    _require_rows(summary)
    return summary


def _complete(
    plan: Plan, task: PlannedTask, folder: Path, manifest: Mapping[str, Any], runner: Runner, advance: Advance
) -> dict[str, Any]:
    """Run the missing jobs and return the summary."""
    # Before the plan is validated: data that cannot be read is the first thing to mend.
    examples = task.task
    validate_plan(plan)
    # Imported here because it imports torch, which showing a finished run does not need.
    from clearhead.bench.metric_groups import group_metrics, make_jobs

    groups = group_metrics(plan, examples)
    jobs = make_jobs(groups, plan.shard)
    with open_run(folder, {**manifest, **_count_contents(examples, jobs)}) as run:
        missing = _find_missing(run, jobs)
        results = _run_jobs(runner, plan, groups, missing)
        _write_shards(run, results, _ProgressOfJobs(jobs, missing, advance))
        return summarise_run(run)


def _count_contents(task: "Task", jobs: Sequence[Job]) -> dict[str, Any]:
    # Not part of the plan: they are known only once the data has been read.
    return {"examples": len(task), "shards": len(jobs), "skipped": task.notice}


def _find_missing(run: RunFolder, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs without a shard: those that an interrupted run completed are not computed again."""
    return [job for job in jobs if not run.has_shard(job.number)]


class _ProgressOfJobs:
    """Counts the examples of finished jobs: a person knows how many there are, but not what a shard is."""

    def __init__(self, jobs: Sequence[Job], missing: Sequence[Job], advance: Advance) -> None:
        self._sizes = {job.number: job.stop - job.start for job in jobs}
        self._total = sum(self._sizes.values())
        self._pending = [job.number for job in missing]
        self._advance = advance
        self._show()

    def add(self, number: int) -> None:
        """Count a finished job."""
        self._pending.remove(number)
        self._show()

    def note_steps(self, done: int, total: int | None, label: str) -> None:
        """Count a part of the job under way, which in this process is the first of those that are missing."""
        # Other work that counts its progress is a part of a step.
        if label == SHARD_STEPS and total:
            self._show(self._sizes[self._pending[0]] * done // total)

    def _show(self, under_way: int = 0) -> None:
        kept = self._total - sum(self._sizes[number] for number in self._pending)
        self._advance(kept + under_way, kept, self._total)


def _write_shards(run: RunFolder, results: Iterator[ShardResult], progress: _ProgressOfJobs) -> None:
    with observe(progress.note_steps):
        for result in results:
            # At once, so that a run that is killed loses only the shards under way.
            run.write_shard(result)
            progress.add(result.number)


def _run_jobs(
    runner: Runner, plan: Plan, groups: "Sequence[MetricGroup]", jobs: Sequence[Job]
) -> Iterator[ShardResult]:
    # Without jobs the runner, and with it the model, is not needed.
    if jobs:
        yield from runner(plan, groups, jobs)


def _require_rows(summary: Mapping[str, Any]) -> None:
    if not summary["rows"]:
        raise UnsupportedModel(f"Nothing could be measured. {' '.join(summary['refused'][:1])}")


def is_finished(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether the folder holds this run with its summary; raise BadFile if it holds another run."""
    if not _has_summary(folder):
        return False
    # Not only for unfinished runs: the results of another plan must not be shown as this one's.
    check_same(folder, manifest)
    return True


def _has_summary(folder: Path) -> bool:
    # The summary is written last, when every shard is complete.
    return (folder / MANIFEST).exists() and (folder / SUMMARY).exists()


def validate_plan(plan: Plan) -> None:
    """Raise BadOption for invalid names and options before anything is written or loaded."""
    _require_names(plan)
    require_integer("seed", plan.seed, 0, is_flag=True)
    _check_methods(plan.methods)
    # Raises if pyarrow is not installed, instead of failing on the first shard.
    to_parquet([])


def _require_names(plan: Plan) -> None:
    if not plan.methods or not plan.metrics:
        raise BadOption("Name at least one method and one metric.")


def _check_methods(methods: Sequence[str]) -> None:
    from clearhead.attribution.method import parse_method

    for spec in expand_layers(methods, PLACEHOLDER_BLOCKS):
        parse_method(spec)
