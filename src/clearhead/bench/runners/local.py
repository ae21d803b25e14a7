"""Jobs one after another in this process."""

from collections.abc import Iterator, Sequence

from clearhead.bench.plan import Job, Plan
from clearhead.bench.run_folder import ShardResult
from clearhead.bench.worker import make_worker, run_job


def local(plan: Plan, jobs: Sequence[Job]) -> Iterator[ShardResult]:
    """Each job in turn, with one model."""
    worker = make_worker(plan)
    for job in jobs:
        yield run_job(worker, job)
