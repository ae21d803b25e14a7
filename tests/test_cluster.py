"""Pool of actors, on a stand-in for Ray that runs every call when its result is asked for."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import clearhead
from clearhead import cluster
from clearhead.cluster import ActorPlan, Cluster
from clearhead.errors import BadOption, ClearheadError


class RayError(Exception):
    """Stands for the death of an actor."""


class RayTaskError(RayError):
    """Stands for an error that a job raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Runs the oldest call first."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, **resources):
        self.resources = resources
        self.actors = []
        self.options = {}

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return self.resources

    def put(self, value):
        return value

    def remote(self, worker):
        def start(*arguments):
            actor = worker(*arguments)
            self.actors.append(actor)
            return SimpleNamespace(run_job=SimpleNamespace(remote=lambda job: Call(actor, job)))

        return SimpleNamespace(options=lambda **options: self.options.update(options) or SimpleNamespace(remote=start))

    def wait(self, calls, num_returns):
        return calls[:num_returns], calls[num_returns:]

    def get(self, call):
        try:
            return call.actor.run_job(call.job)
        except ClearheadError as error:
            raise RayTaskError(error) from error


class Call:
    """A call of an actor that has not been answered yet."""

    def __init__(self, actor, job):
        self.actor = actor
        self.job = job


@dataclass(frozen=True)
class Job:
    number: int


class Doubler:
    """Doubles numbers."""

    def __init__(self, deaths):
        self.deaths = deaths

    def run_job(self, job):
        if self.deaths.get(job.number, 0):
            self.deaths[job.number] -= 1
            raise RayError("killed")
        if job.number < 0:
            raise BadOption("negative")
        return job.number * 2


@pytest.fixture
def start(monkeypatch):
    def start(**resources):
        ray = FakeRay(**resources)
        monkeypatch.setattr(cluster, "_import_ray", lambda: ray)
        return ray

    return start


def run(jobs, workers=2, deaths=None, **plan):
    results = Cluster(None, workers).run_jobs(ActorPlan(Doubler, (deaths or {},), **plan), jobs)
    return {job.number: result for job, result in results}


def test_every_job_is_done_once_by_no_more_actors_than_there_are_jobs(start):
    ray = start()
    assert run(map(Job, range(7))) == {number: 2 * number for number in range(7)}
    assert len(ray.actors) == 2
    ray = start()
    assert run([Job(3)], workers=8) == {3: 6}
    assert len(ray.actors) == 1


def test_jobs_are_read_when_an_actor_is_free(start):
    start()
    read = []

    def jobs():
        for number in range(10):
            read.append(number)
            yield Job(number)

    results = Cluster(None, 2).run_jobs(ActorPlan(Doubler, ({},)), jobs())
    for count, _ in enumerate(results, 1):
        assert len(read) <= count + 2


def test_the_job_of_a_lost_worker_is_done_again_by_a_new_one(start):
    ray = start()
    assert run(map(Job, range(5)), workers=1, deaths={1: 2}) == {number: 2 * number for number in range(5)}
    assert len(ray.actors) == 3


def test_a_job_that_kills_every_worker_ends_the_run_after_the_others(start):
    start()
    done = []
    with pytest.raises(ClearheadError, match="Shard 1 lost its worker 3 times: killed"):
        for job, _ in Cluster(None, 2).run_jobs(ActorPlan(Doubler, ({1: 9},)), map(Job, range(5))):
            done.append(job.number)
    assert done == [0, 2, 3, 4]


def test_an_error_of_a_job_is_raised_as_it_is(start):
    start()
    with pytest.raises(BadOption, match="negative"):
        run([Job(-1)])


@pytest.mark.parametrize(
    ("resources", "workers", "device", "count", "share"),
    [
        ({"GPU": 4.0, "CPU": 64.0}, None, "cuda", 4, 1.0),
        ({"GPU": 2.0, "CPU": 64.0}, 4, "cuda", 4, 0.5),
        ({"GPU": 4.0, "CPU": 64.0}, 2, "cuda", 2, 1.0),
        ({"GPU": 4.0, "CPU": 3.0}, None, "cpu", 3, 0),
        ({"CPU": 3.0}, None, "cuda", 1, 0),
    ],
)
def test_every_gpu_holds_one_model_unless_more_workers_are_asked_for(start, resources, workers, device, count, share):
    ray = start(**resources)
    run(map(Job, range(99)), workers=workers, device=device, one_per_gpu=True)
    assert len(ray.actors) == count
    assert ray.options == {"num_cpus": 1, "num_gpus": share}


def test_only_one_file_imports_ray():
    source = Path(clearhead.__file__).parent
    importing = [path.name for path in source.rglob("*.py") if "import ray" in path.read_text()]
    assert importing == ["cluster.py"]
