"""Ray workers that die; in a file of their own, since each new worker imports it."""

import os
import signal
from pathlib import Path

from clearhead.bench.plan import Job
from clearhead.bench.run_folder import ShardResult
from clearhead.bench.runners.ray import RayWorker


class Mortal(RayWorker):
    """Its process is killed in the middle of its third shard, once."""

    def run_job(self, job: Job) -> ShardResult:
        mark = Path(self.plan.task).with_suffix(".killed")
        if job.number == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run_job(job)


class Doomed(RayWorker):
    """Dies at every shard."""

    def run_job(self, job: Job) -> ShardResult:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError
