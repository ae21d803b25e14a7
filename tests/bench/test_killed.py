"""Runs that are killed or crash go on where they were."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.runs import values

import clearhead
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import clearhead.evaluation.evaluate
from clearhead.bench.run import run_plan
from clearhead.bench.plan import Plan
from clearhead.bench.runners.local import local

torch.set_num_threads(1)
task, model, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
plan = Plan(task, ("att-cat", "rollout", "random:seed=1"), ("aopc", "hiding"), model=model, shard=2)


def begin(folder):
    child = os.fork()
    if not child:
        run_plan(plan, folder, local)
        os._exit(0)
    return child


def shards(folder):
    return len(list(folder.glob("shards/*-values.parquet")))


run_plan(plan, root / "warm", local)
begun = time.monotonic()
os.waitpid(begin(root / "timed"), 0)
length = time.monotonic() - begun
chance = random.Random(0)
for number in range(10):
    folder = root / f"run{number}"
    child = begin(folder)
    late, before = time.monotonic() + length, chance.randrange(5)
    while shards(folder) < before and time.monotonic() < late:
        time.sleep(length / 1000)
    time.sleep(chance.uniform(0, 1) * length / 5)
    os.kill(child, signal.SIGKILL)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(int(killed), shards(folder))
    run_plan(plan, folder, local)
"""


def test_killed_at_ten_random_moments_it_ends_with_the_same_values(plan, finished_run, tmp_path):
    source = str(Path(clearhead.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-c", KILLS, plan.task, plan.model, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stderr
    moments = [tuple(map(int, line.split())) for line in process.stdout.splitlines()]
    assert any(killed and 0 < shards < 5 for killed, shards in moments), f"no kill fell inside a run: {moments}"
    for number in range(10):
        assert values(tmp_path / f"run{number}") == values(finished_run)
        assert RunFolder(tmp_path / f"run{number}").summary()["rows"] == RunFolder(finished_run).summary()["rows"]


class Crash(BaseException):
    """Stands for the process dying: nothing of ours may catch it."""


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("moment", [1, 2, 3, 5, 9])
def test_a_crash_between_any_two_writes_loses_nothing(plan, finished_run, tmp_path, monkeypatch, call, moment):
    real, calls = getattr(os, call), iter(range(1, 1000))

    def dying(*arguments):
        if next(calls) == moment:
            raise Crash
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, dying)
        with pytest.raises(Crash):
            run_plan(plan, tmp_path / "run", local)
    run_plan(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(finished_run)
    assert list(RunFolder(tmp_path / "run").explanations()) == list(RunFolder(finished_run).explanations())
    assert len(RunFolder(tmp_path / "run").seconds()) == RunFolder(finished_run).manifest["shards"]
