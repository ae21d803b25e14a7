"""Jobs on a pool of Ray actors, each of which holds the model; the only file that imports ray."""

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clearhead.bench.plan import Job, Plan
from clearhead.bench.run_folder import ShardResult
from clearhead.bench.worker import Worker, make_worker, run_job
from clearhead.errors import BadOption, ClearheadError

ATTEMPTS = 3


@dataclass(frozen=True)
class Cluster:
    """Where the actors live: an address such as 'auto' or 'ray://host:10001', or None for this machine."""

    address: str | None = None
    workers: int | None = None

    def __call__(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[ShardResult]:
        """The outcomes as they come; the job of an actor that died is given to a new one."""
        with _connected(self.address, self.workers) as ray:
            count = min(self.workers or max(1, int(ray.cluster_resources().get("CPU", 1))), len(jobs))
            yield from _shared_out(ray, plan, jobs, count)


def _ray() -> Any:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise BadOption("Ray is not installed: pip install 'clearhead[ray]', or leave --ray out.") from error
    return ray


@contextmanager
def _connected(address: str | None, workers: int | None) -> Iterator[Any]:
    """Ray, started here or joined, and left again; a connection that was there before stays."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    size = {} if address else {"num_cpus": workers or os.cpu_count()}
    quiet = {"log_to_driver": False, "include_dashboard": None if address else False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address or "local", **size, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadOption(f"Ray at '{address}' cannot be reached: {str(error).splitlines()[0]}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


class RayWorker:
    """What an actor is: the model and the examples, kept between jobs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.worker: Worker | None = None

    def run_job(self, job: Job) -> ShardResult:
        self.worker = self.worker or make_worker(self.plan)
        return run_job(self.worker, job)


def _shared_out(ray: Any, plan: Plan, jobs: Sequence[Job], count: int) -> Iterator[ShardResult]:
    make = ray.remote(RayWorker).options(num_cpus=1, num_gpus=_gpus(ray, plan, count)).remote
    waiting, attempts = deque(jobs), dict.fromkeys((job.number for job in jobs), 0)
    idle, running = [make(plan) for _ in range(count)], dict[Any, tuple[Any, Job]]()
    while waiting or running:
        while waiting and idle:
            actor, job = idle.pop(), waiting.popleft()
            running[actor.run_job.remote(job)] = (actor, job)
        finished = ray.wait(list(running), num_returns=1)[0][0]
        actor, job = running.pop(finished)
        try:
            outcome = ray.get(finished)
        except ray.exceptions.RayTaskError as error:
            raise _reason(error) from error
        except ray.exceptions.RayError as error:
            attempts[job.number] += 1
            if attempts[job.number] == ATTEMPTS:
                raise ClearheadError(f"Shard {job.number} lost its worker {ATTEMPTS} times: {_first(error)}") from error
            waiting.append(job)
            idle.append(make(plan))
            continue
        idle.append(actor)
        yield outcome


def _gpus(ray: Any, plan: Plan, count: int) -> float:
    """An equal share of the cluster's GPUs, where the plan asks for one."""
    if not (plan.device or "").startswith("cuda"):
        return 0
    return min(1.0, float(ray.cluster_resources().get("GPU", 0)) / count)


def _reason(error: Any) -> Exception:
    """What went wrong in the actor, as it would have been raised here."""
    cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
    return cause if isinstance(cause, ClearheadError) else ClearheadError(f"A Ray worker failed: {_first(cause)}")


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
