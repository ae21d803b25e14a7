"""Ray clusters: jobs on a pool of actors that each hold a model; the only module that imports ray."""

import logging
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from clearhead.environment import set_defaults
from clearhead.errors import Argument, BadOption, ClearheadError, first_line
from clearhead.validation import require_integer

# How many workers a shard may lose before the run stops.
MAX_ATTEMPTS = 3
# Ray reads these when it is imported: no authentication, no usage reports, and GPUs stay visible to actors that
# reserve none.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# The address that starts Ray on this machine.
LOCAL = "local"


@dataclass(frozen=True)
class ActorPlan:
    """What actors are: a class with a method `run_job`, the arguments of its constructor, and its device.

    `most` limits the number of actors. If none is asked for, there is one per CPU, or with `one_per_gpu` one per GPU.
    """

    worker: type
    arguments: tuple[Any, ...]
    device: str | None = None
    most: int | None = None
    one_per_gpu: bool = False

    @property
    def needs_gpu(self) -> bool:
        return (self.device or "").startswith("cuda")

    def limit_count(self, count: int) -> int:
        """Return a number of actors, or the largest one that is of use."""
        if self.most is None:
            return count
        return min(count, self.most)


@dataclass(frozen=True)
class Cluster:
    """Where the actors live: an address such as 'auto' or 'ray://host:10001', or None for this machine."""

    address: str | None = None
    workers: int | None = None

    def run_jobs(self, plan: ActorPlan, jobs: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield jobs with their results as they come; the job of an actor that died goes to a new one.

        Jobs have a `number`. They are read only when an actor is free, so that a stream of them is never in memory.
        """
        with _connect(self.address, self.workers) as ray:
            count = plan.limit_count(self.workers or _default_count(ray, plan))
            yield from _make_pool(ray, plan, count, jobs).run_jobs()


def parse_cluster(address: str | None, workers: int | None) -> Cluster | None:
    """Return the cluster that a user names, None without an address; `local` starts Ray on this machine."""
    if workers is not None:
        _check_workers(address, workers)
    if address is None:
        return None
    if address == LOCAL:
        return Cluster(None, workers)
    return Cluster(_require_address(address), workers)


def _check_workers(address: str | None, workers: int) -> None:
    # Refused, because a user who asks for workers would wonder why one process does it all.
    if address is None:
        local = Argument("ray", LOCAL)
        raise BadOption(Argument("workers"), " counts Ray workers: give ", local, ", or a cluster's address, with it.")
    require_integer("workers", workers, is_flag=True)


def _require_address(address: Any) -> str:
    if not isinstance(address, str) or not address:
        raise BadOption(Argument("ray", address), " is no address: use 'local', 'auto' or 'ray://HOST:10001'.")
    return address


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
        raise BadOption(f"Ray at '{address}' cannot be reached: {first_line(error)}") from error


def _connection_settings(address: str | None, workers: int | None) -> dict[str, Any]:
    if address:
        # A running cluster has its own resources: Ray raises an error if num_cpus is given.
        return {"address": address, "include_dashboard": None}
    return {"address": "local", "include_dashboard": False, "num_cpus": workers or os.cpu_count()}


@dataclass
class _ActorPool:
    """Actors that take one job at a time; the jobs of those that die are done again by new ones.

    `unstarted` actors are started when there are jobs for them; `running` holds actors with their jobs.
    """

    ray: Any
    actor_class: Any
    arguments: list[Any]
    unstarted: int
    jobs: Iterator[Any]
    idle: list[Any] = field(default_factory=list)
    lost: deque[Any] = field(default_factory=deque)
    running: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)

    def run_jobs(self) -> Iterator[tuple[Any, Any]]:
        """Yield jobs with their results in the order in which they are ready."""
        self._assign_jobs()
        while self.running:
            ready, _ = self.ray.wait(list(self.running), num_returns=1)
            finished = self._collect(ready[0])
            # Before the result is handed on, so that the actor works while the caller stores it.
            self._assign_jobs()
            if finished is not None:
                yield finished

    def _assign_jobs(self) -> None:
        while self.idle or self.unstarted:
            job = self._next_job()
            if job is None:
                return
            actor = self._take_actor()
            self.running[actor.run_job.remote(job)] = (actor, job)

    def _next_job(self) -> Any:
        """Return the next job, None if there is none."""
        job = next(self.jobs, None)
        # Lost jobs come last, so that a job that kills its worker does not keep the others waiting.
        if job is None and self.lost:
            return self.lost.popleft()
        return job

    def _take_actor(self) -> Any:
        if self.idle:
            return self.idle.pop()
        return self._start_actor()

    def _start_actor(self) -> Any:
        self.unstarted -= 1
        return self.actor_class.remote(*self.arguments)

    def _collect(self, reference: Any) -> tuple[Any, Any] | None:
        """Return a job and its result, or None if its actor died and the job waits again."""
        actor, job = self.running.pop(reference)
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            # The job itself raised: another attempt would do the same.
            raise _original_error(error) from error
        except self.ray.exceptions.RayError as error:
            self._retry(job, error)
            return None
        self.idle.append(actor)
        return job, result

    def _retry(self, job: Any, error: Exception) -> None:
        self.losses[job.number] += 1
        # A job that kills every worker, by its memory for example, would be tried for ever.
        if self.losses[job.number] == MAX_ATTEMPTS:
            raise _lost_too_often(job, error) from error
        self.lost.append(job)
        self.unstarted += 1


def _make_pool(ray: Any, plan: ActorPlan, count: int, jobs: Iterable[Any]) -> _ActorPool:
    # Stored once for all actors: a model may take gigabytes.
    arguments = list(map(ray.put, plan.arguments))
    return _ActorPool(ray, _make_actor_class(ray, plan, count), arguments, count, iter(jobs))


def _make_actor_class(ray: Any, plan: ActorPlan, count: int) -> Any:
    return ray.remote(plan.worker).options(num_cpus=1, num_gpus=_gpu_share(ray, plan, count))


def _default_count(ray: Any, plan: ActorPlan) -> int:
    if plan.one_per_gpu and plan.needs_gpu:
        return max(1, _count_resource(ray, "GPU"))
    return max(1, _count_resource(ray, "CPU"))


def _count_resource(ray: Any, name: str) -> int:
    return int(ray.cluster_resources().get(name, 0))


def _gpu_share(ray: Any, plan: ActorPlan, count: int) -> float:
    """Return an equal share of the cluster's GPUs if the actors compute on them, else 0."""
    if not plan.needs_gpu:
        return 0
    # An actor that reserves more than one GPU would leave the others idle: it holds one model.
    return min(1.0, _count_resource(ray, "GPU") / count)


def _lost_too_often(job: Any, error: Exception) -> ClearheadError:
    return ClearheadError(f"Shard {job.number} lost its worker {MAX_ATTEMPTS} times: {first_line(error)}")


def _original_error(error: Any) -> Exception:
    """Return what the actor raised, as it would have been raised here."""
    cause = _find_cause(error)
    if isinstance(cause, ClearheadError):
        return cause
    return ClearheadError(f"A Ray worker failed: {first_line(cause)}")


def _find_cause(error: Exception) -> Exception:
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    return error
