"""Local runner: jobs one after another in this process."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from clearhead.bench.plan import Job, Plan
from clearhead.bench.run_folder import ShardResult

if TYPE_CHECKING:
    from clearhead.bench.metric_groups import MetricGroup


def local(plan: Plan, groups: "Sequence[MetricGroup]", jobs: Sequence[Job]) -> Iterator[ShardResult]:
    """Run the jobs in order, with one model."""
    # Imported here because it imports torch, which showing a finished run does not need.
    from clearhead.bench.worker import make_worker, run_job

    worker = make_worker(plan, groups)
    for job in jobs:
        yield run_job(worker, job)
