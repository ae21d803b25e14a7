"""Ray runner: jobs on the actors of a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clearhead.bench.plan import Job, Plan
from clearhead.bench.run_folder import ShardResult
from clearhead.cluster import ActorPlan, Cluster

if TYPE_CHECKING:
    from clearhead.bench.metric_groups import MetricGroup
    from clearhead.bench.worker import Worker


@dataclass(frozen=True)
class RayRunner:
    """Runs jobs on a cluster."""

    cluster: Cluster

    def __call__(self, plan: Plan, groups: "Sequence[MetricGroup]", jobs: Sequence[Job]) -> Iterator[ShardResult]:
        """Yield the results as they come.

        `groups` is not sent: each actor reads the examples itself, once.
        """
        # More actors than jobs would have too small a share of the GPUs.
        actors = ActorPlan(RayWorker, (plan,), plan.device, most=len(jobs))
        for _, result in self.cluster.run_jobs(actors, jobs):
            yield result


class RayWorker:
    """Actor: the model and the examples, kept between jobs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.worker: Worker | None = None

    def run_job(self, job: Job) -> ShardResult:
        from clearhead.bench.worker import make_worker, run_job

        # Not in the constructor: an error there would look like the death of the actor.
        if self.worker is None:
            self.worker = make_worker(self.plan)
        return run_job(self.worker, job)
