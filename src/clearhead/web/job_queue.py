"""One thread that owns the models: a bounded queue, neighbours of a kind taken together, the hopeless left out."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from clearhead.web.limits import Limits

Work = Callable[[list[Any]], Sequence[Any]]


class Overloaded(Exception):
    """The queue is full, or the answer took too long: try again later."""


class Interrupted(Exception):
    """Nobody waits for the answer any more."""


@dataclass(eq=False)
class Job:
    """A piece of work; those with an equal `group` may be done in one call of `work`."""

    work: Work
    payload: Any
    group: Hashable
    deadline: float
    future: "Future[Any]" = field(default_factory=Future)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def hopeless(self) -> bool:
        return self.gone.is_set() or time.monotonic() > self.deadline


class Worker:
    """Takes jobs in order; stops between forward passes when nobody waits for the running ones."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._ready = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="clearhead-worker", daemon=True)
        self._thread.start()

    def submit(self, work: Work, payload: Any, group: Hashable = None) -> Job:
        """Queues work(list of payloads) → list of results; a group of None is done alone."""
        job = Job(work, payload, group if group is not None else object(), time.monotonic() + self.limits.wait)
        with self._ready:
            if self._closed or len(self._jobs) >= self.limits.queue:
                raise Overloaded("Too many requests are waiting. Try again in a moment.")
            self._jobs.append(job)
            self._ready.notify()
        return job

    def check(self) -> None:
        """Raises where the running work is wanted by nobody."""
        if self._closed or (self._running and all(job.hopeless for job in self._running)):
            raise Interrupted("Stopped: nobody waits for this answer.")

    def close(self, patience: float = 5.0) -> None:
        """Ends the thread after the forward pass it is in; what waits is refused."""
        with self._ready:
            self._closed = True
            waiting, self._jobs = list(self._jobs), deque()
            self._ready.notify()
        for job in waiting:
            job.future.cancel()
        self._thread.join(patience)

    def _loop(self) -> None:
        while (jobs := self._take()) is not None:
            self._running = jobs
            _settle(jobs)
            self._running = []

    def _take(self) -> list[Job] | None:
        """The first job that somebody waits for, with later ones of its group."""
        with self._ready:
            while not self._closed:
                while self._jobs:
                    first = self._jobs.popleft()
                    if _begins(first):
                        return [first, *self._neighbours(first)]
                self._ready.wait()
        return None

    def _neighbours(self, first: Job) -> list[Job]:
        alike = [job for job in self._jobs if job.group == first.group][: self.limits.batch - 1]
        for job in alike:
            self._jobs.remove(job)
        return [job for job in alike if _begins(job)]


def _begins(job: Job) -> bool:
    """Whether the job is still wanted; from here on it cannot be cancelled in the queue."""
    if job.hopeless:
        job.future.cancel()
    return job.future.set_running_or_notify_cancel()


def _settle(jobs: list[Job]) -> None:
    try:
        results = jobs[0].work([job.payload for job in jobs])
    except BaseException as error:
        results = [error] * len(jobs)
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
