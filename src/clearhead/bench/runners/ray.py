"""Ray runner: jobs on a pool of actors that each hold the model; the only file that imports ray."""

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.bench.plan import Job, Plan
from clearhead.bench.run_folder import ShardResult
from clearhead.environment import set_defaults
from clearhead.errors import BadOption, ClearheadError

if TYPE_CHECKING:
    from clearhead.bench.metric_groups import MetricGroup
    from clearhead.bench.worker import Worker

# How many workers a shard may lose before the run stops.
MAX_ATTEMPTS = 3
# Ray reads these when it is imported: no authentication, no usage reports, and GPUs stay visible to actors that
# reserve none.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class Cluster:
    """Where the actors live: an address such as 'auto' or 'ray://host:10001', or None for this machine."""

    address: str | None = None
    workers: int | None = None

    def __call__(self, plan: Plan, groups: "Sequence[MetricGroup]", jobs: Sequence[Job]) -> Iterator[ShardResult]:
        """Yield the results as they come; the job of an actor that died goes to a new one.

        `groups` is not sent: each actor reads the examples itself, once.
        """
        with _connect(self.address, self.workers) as ray:
            # More actors than jobs would load the model for nothing.
            count = min(self.workers or _count_cpus(ray), len(jobs))
            yield from _ActorPool(ray, plan, count).run_jobs(jobs)


def _import_ray() -> Any:
    set_defaults(ENVIRONMENT)
    try:
        import ray
    except ImportError as error:
        raise BadOption("Ray is not installed: pip install 'clearhead[ray]', or leave --ray out.") from error
    return ray


@contextmanager
def _connect(address: str | None, workers: int | None) -> Iterator[Any]:
    """Start Ray or join a cluster, and disconnect at the end; a connection of the caller is used and kept."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    _start_ray(ray, address, workers)
    try:
        yield ray
    finally:
        ray.shutdown()


def _start_ray(ray: Any, address: str | None, workers: int | None) -> None:
    settings = _connection_settings(address, workers)
    try:
        # Quiet: standard error is for the command's own messages.
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        # Ray raises any of them for an address that is wrong or does not answer.
        raise BadOption(f"Ray at '{address}' cannot be reached: {str(error).splitlines()[0]}") from error


def _connection_settings(address: str | None, workers: int | None) -> dict[str, Any]:
    if address:
        # A running cluster has its own resources: Ray raises an error if num_cpus is given.
        return {"address": address, "include_dashboard": None}
    return {"address": "local", "include_dashboard": False, "num_cpus": workers or os.cpu_count()}


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


class _ActorPool:
    """Actors that take one job at a time; the jobs of those that die are done again by new ones."""

    def __init__(self, ray: Any, plan: Plan, count: int) -> None:
        self.ray = ray
        self.plan = plan
        gpus = _gpu_share(ray, plan, count)
        self.actor_class = ray.remote(RayWorker).options(num_cpus=1, num_gpus=gpus)
        self.idle = [self._start_actor() for _ in range(count)]
        self.waiting: deque[Job] = deque()
        self.running: dict[Any, tuple[Any, Job]] = {}
        self.losses: Counter[int] = Counter()

    def _start_actor(self) -> Any:
        return self.actor_class.remote(self.plan)

    def run_jobs(self, jobs: Sequence[Job]) -> Iterator[ShardResult]:
        """Yield the results in the order in which they are ready."""
        self.waiting.extend(jobs)
        while self.waiting or self.running:
            self._assign_jobs()
            ready, _ = self.ray.wait(list(self.running), num_returns=1)
            result = self._collect(ready[0])
            if result is not None:
                yield result

    def _assign_jobs(self) -> None:
        while self.waiting and self.idle:
            actor = self.idle.pop()
            job = self.waiting.popleft()
            self.running[actor.run_job.remote(job)] = (actor, job)

    def _collect(self, reference: Any) -> ShardResult | None:
        """Return the result of a job, or None if its actor died and the job waits again."""
        actor, job = self.running.pop(reference)
        try:
            result: ShardResult = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            # The job itself raised: another attempt would do the same.
            raise _original_error(error) from error
        except self.ray.exceptions.RayError as error:
            self._retry(job, error)
            return None
        self.idle.append(actor)
        return result

    def _retry(self, job: Job, error: Exception) -> None:
        self.losses[job.number] += 1
        # A job that kills every worker, by its memory for example, would be tried for ever.
        if self.losses[job.number] == MAX_ATTEMPTS:
            message = f"Shard {job.number} lost its worker {MAX_ATTEMPTS} times: {_first_line(error)}"
            raise ClearheadError(message) from error
        # At the end of the queue, so that a job that kills its worker does not keep the others waiting.
        self.waiting.append(job)
        self.idle.append(self._start_actor())


def _count_cpus(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _gpu_share(ray: Any, plan: Plan, count: int) -> float:
    """Return an equal share of the cluster's GPUs if the plan asks for CUDA, else 0."""
    if not (plan.device or "").startswith("cuda"):
        return 0
    gpus = float(ray.cluster_resources().get("GPU", 0))
    # An actor that reserves more than one GPU would leave the others idle: it holds one model.
    return min(1.0, gpus / count)


def _original_error(error: Any) -> Exception:
    """Return what the actor raised, as it would have been raised here."""
    cause = _find_cause(error)
    if isinstance(cause, ClearheadError):
        return cause
    return ClearheadError(f"A Ray worker failed: {_first_line(cause)}")


def _find_cause(error: Exception) -> Exception:
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
