"""Worker thread that owns the models: a bounded queue, jobs batched by group, abandoned requests dropped."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from clearhead.web.limits import Limits

Work = Callable[[list[Any]], Sequence[Any]]

THREAD_JOIN_TIMEOUT = 5.0


class Overloaded(Exception):
    """The queue is full, or the answer took too long: try again later."""


class Interrupted(Exception):
    """No client waits for the answer any more."""


@dataclass(eq=False)
class Job:
    """A queued call; jobs with an equal `group` may be computed by one call of `work`."""

    work: Work
    payload: Any
    group: Hashable
    deadline: float
    ticket: str = ""
    future: "Future[Any]" = field(default_factory=Future)
    abandoned: threading.Event = field(default_factory=threading.Event)

    @property
    def is_stale(self) -> bool:
        """True if the client has left or the deadline has passed."""
        return self.abandoned.is_set() or time.monotonic() > self.deadline


@dataclass(frozen=True)
class JobProgress:
    """How far a job is: how many wait before it, or how many steps of its present part are done."""

    is_running: bool
    ahead: int = 0
    done: int = 0
    total: int | None = None
    label: str = ""


IDLE = JobProgress(is_running=True)


class Worker:
    """Runs jobs in order on one thread; stops between forward passes once all running jobs are stale."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._progress = IDLE
        self._ready = threading.Condition()
        self._closed = False
        # A daemon, so that a forward pass that hangs cannot keep the process from ending.
        self._thread = threading.Thread(target=self._loop, name="clearhead-worker", daemon=True)
        self._thread.start()

    def submit(self, work: Work, payload: Any, group: Hashable = None, ticket: str = "") -> Job:
        """Queue work(list of payloads) → list of results; a job without a group is computed alone."""
        if group is None:
            group = object()  # equal to no other group
        job = Job(work, payload, group, time.monotonic() + self.limits.answer_timeout, ticket)
        with self._ready:
            if not self._accepts_jobs():
                raise Overloaded("Too many requests are waiting. Try again in a moment.")
            self._jobs.append(job)
            self._ready.notify()
        return job

    def _accepts_jobs(self) -> bool:
        return not self._closed and len(self._jobs) < self.limits.max_queued_jobs

    def discard(self, job: Job) -> None:
        """Take a job that no client waits for any more out of the queue; one that is running stops by itself."""
        job.abandoned.set()
        with self._ready:
            if job in self._jobs:
                self._jobs.remove(job)
        job.future.cancel()

    def note_progress(self, done: int, total: int | None, label: str) -> None:
        """Note how far the running jobs are, and stop them if no client waits for them."""
        self._progress = JobProgress(is_running=True, done=done, total=total, label=label)
        self.check_interrupted()

    def find_progress(self, ticket: str) -> JobProgress | None:
        """Return how far the job with this ticket is; None if there is none, or if it is finished."""
        with self._ready:
            if any(job.ticket == ticket for job in self._running):
                return self._progress
            for index, job in enumerate(self._jobs):
                if job.ticket == ticket:
                    return JobProgress(is_running=False, ahead=index + len(self._running))
        return None

    def check_interrupted(self) -> None:
        """Raise Interrupted if no client waits for any of the running jobs."""
        if self._closed or self._is_abandoned():
            raise Interrupted("Stopped: no client waits for this answer.")

    def _is_abandoned(self) -> bool:
        # Without running jobs, as when a service is used outside the worker, nobody has left.
        return bool(self._running) and all(job.is_stale for job in self._running)

    def close(self, timeout: float = THREAD_JOIN_TIMEOUT) -> None:
        """Cancel waiting jobs and end the thread after the forward pass that is running."""
        # Outside the lock, because cancelling runs the callbacks of the futures.
        for job in self._stop():
            job.future.cancel()
        self._thread.join(timeout)

    def _stop(self) -> list[Job]:
        """Let the thread end after the running jobs; return those that have not started."""
        with self._ready:
            self._closed = True
            waiting = list(self._jobs)
            self._jobs.clear()
            self._ready.notify()
        return waiting

    def _loop(self) -> None:
        while True:
            jobs = self._wait_for_jobs()
            if jobs is None:
                return
            # Read by check_interrupted, which this thread calls between forward passes.
            self._running = jobs
            self._progress = IDLE
            _run_jobs(jobs)
            self._running = []

    def _wait_for_jobs(self) -> list[Job] | None:
        """Block until there is a job; return it with later ones of its group, or None once closed."""
        with self._ready:
            while not self._closed:
                jobs = self._take_batch()
                if jobs:
                    return jobs
                self._ready.wait()
        return None

    def _take_batch(self) -> list[Job]:
        while self._jobs:
            first = self._jobs.popleft()
            if _start(first):
                return [first, *self._take_group(first.group)]
        return []

    def _take_group(self, group: Hashable) -> list[Job]:
        matching = [job for job in self._jobs if job.group == group]
        # One less, because the first job of the batch has been taken already.
        batch = matching[: self.limits.max_batch - 1]
        for job in batch:
            self._jobs.remove(job)
        return list(filter(_start, batch))


def _start(job: Job) -> bool:
    """Mark the job as running; return False if it is stale or was cancelled in the queue."""
    if job.is_stale:
        job.future.cancel()
    return job.future.set_running_or_notify_cancel()


def _run_jobs(jobs: list[Job]) -> None:
    for job, result in zip(jobs, _compute(jobs), strict=True):
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def _compute(jobs: list[Job]) -> Sequence[Any]:
    """Return a result or an error per job."""
    payloads = [job.payload for job in jobs]
    try:
        return jobs[0].work(payloads)
    except BaseException as error:
        # The thread must survive whatever happens in a job: the error goes to those who wait for it.
        return [error] * len(jobs)
