"""Ray workers that die; in a file of their own, since each new worker imports it."""

import os
import signal
from pathlib import Path

from clearhead.bench.plan import Job
from clearhead.bench.run_folder import ShardResult
from clearhead.bench.runners.ray import RayWorker
from clearhead.tables.ray_runner import TableWorker
from clearhead.tables.records import Record
from clearhead.tables.shards import Shard


def die_once(mark: Path) -> None:
    """Kill this process unless the mark says that this has been done."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Mortal(RayWorker):
    """Its process is killed in the middle of its third shard, once."""

    def run_job(self, job: Job) -> ShardResult:
        if job.number == 2:
            die_once(Path(self.plan.task).with_suffix(".killed"))
        return super().run_job(job)


class Doomed(RayWorker):
    """Dies at every shard."""

    def run_job(self, job: Job) -> ShardResult:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class MortalTableWorker(TableWorker):
    """Notes every shard beside the table, and is killed in the middle of the third one, once."""

    def run_job(self, shard: Shard) -> list[Record]:
        table = shard.rows[0].file
        with open(table.with_suffix(".begun"), "a") as begun:
            begun.write(f"{shard.number}\n")
        if shard.number == 2:
            die_once(table.with_suffix(".killed"))
        return super().run_job(shard)
