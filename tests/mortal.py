"""Ray workers that die; in a file of their own, since each new worker imports it."""

import os
import signal
from pathlib import Path

from clearhead.bench.run import Job
from clearhead.bench.run_folder import Outcome
from clearhead.bench.runners.ray import Holder


class Mortal(Holder):
    """Its process is killed in the middle of its third shard, once."""

    def compute(self, job: Job) -> Outcome:
        mark = Path(self.plan.task).with_suffix(".killed")
        if job.number == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(job)


class Doomed(Holder):
    """Dies at every shard."""

    def compute(self, job: Job) -> Outcome:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError
