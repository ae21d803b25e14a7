"""Jobs one after another in this process."""

from collections.abc import Iterator, Sequence

from clearhead.bench.run import Job, Plan, compute, prepare
from clearhead.bench.run_folder import Outcome


def local(plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Each job in turn, with one model."""
    worker = prepare(plan)
    for job in jobs:
        yield compute(worker, job)
