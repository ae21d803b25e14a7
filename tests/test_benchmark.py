"""Benchmarks: killed at any moment they end with the same values; nothing is mixed, nothing is lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from samples import save_text_model

import clearhead
from clearhead import results
from clearhead.benchmark import BENCHMARKS, Plan, execute, expanded, jobs_of, read, streams_of
from clearhead.cli import main
from clearhead.errors import BadFile, BadOption, ClearheadError
from clearhead.results import Results
from clearhead.runners.local import local

SENTENCES = [
    (0, "a bad , tedious film"),
    (1, "good heart , a good film"),
    (0, "never a good film"),
    (1, "a film with heart"),
    (0, "tedious , bad , bad"),
    (1, "never tedious"),
    (0, "a heart never so bad"),
    (1, "so good a film"),
    (0, "what a tedious heart"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_text_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "dev.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for label, text in SENTENCES))
    return str(path)


@pytest.fixture(scope="module")
def plan(model, task):
    return Plan(task, ("att-cat", "rollout", "random:seed=1"), ("aopc", "hiding"), model=model, shard=2)


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    execute(plan, folder, local)
    return folder


def values(folder: Path) -> list[dict]:
    return list(Results(folder).values())


def forgetful(*_):
    raise AssertionError("a finished run must not compute anything")


# --- a run -----------------------------------------------------------------------------------------------------


def test_a_run_keeps_every_value_and_explanation(plan, whole):
    rows = values(whole)
    assert len(rows) == len(SENTENCES) * len(plan.methods) * len(plan.metrics)
    assert {(row["method"], row["metric"]) for row in rows} == {(m, k) for m in plan.methods for k in plan.metrics}
    explained = list(Results(whole).explanations())
    assert len({(row["example"], row["name"]) for row in explained}) == len(SENTENCES) * len(plan.methods)
    assert all(row["tokens"] for row in explained)


def test_values_are_those_of_evaluate(plan, whole):
    table = clearhead.evaluate(plan.model, plan.task, list(plan.methods), list(plan.metrics))
    wanted = {(row["method"], row["metric"]): row for row in table.rows}
    found = Results(whole).summary()["rows"]
    assert len(found) == len(wanted)
    for row in found:
        for key in ("value", "low", "high"):
            assert row[key] == pytest.approx(wanted[row["method"], row["metric"]][key], abs=1e-6)


def test_the_manifest_says_what_was_run(plan, whole):
    manifest = Results(whole).manifest
    assert manifest["versions"]["clearhead"] == clearhead.__version__
    assert {"python", "torch", "transformers"} <= set(manifest["versions"])
    assert manifest["plan"]["methods"] == list(plan.methods)
    assert len(manifest["hashes"]["task"]) == len(manifest["hashes"]["model"]) == 64
    assert manifest["examples"] == len(SENTENCES)
    assert manifest["shards"] == 5


def test_a_second_run_computes_nothing(plan, whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    assert execute(plan, whole, forgetful) == Results(whole).summary()
    assert before == {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}


def test_a_run_without_its_summary_only_sums_up_again(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).unlink()
    assert execute(plan, tmp_path / "run", forgetful) == Results(whole).summary()


# --- killed ----------------------------------------------------------------------------------------------------

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from clearhead.benchmark import Plan, execute, prepare
from clearhead.runners.local import local
import clearhead.evaluation, torch
torch.set_num_threads(1)
task, model, folder, length = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
plan = Plan(task, ("att-cat", "rollout", "random:seed=1"), ("aopc", "hiding"), model=model, shard=2)
chance = random.Random(0)
killed = 0
for _ in range(10):
    child = os.fork()
    if not child:
        execute(plan, folder, local)
        os._exit(0)
    time.sleep(chance.uniform(0, length))
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(killed, len(list(folder.glob("shards/*-values.parquet"))))
execute(plan, folder, local)
"""


def test_killed_ten_times_it_ends_with_the_same_values(plan, whole, tmp_path):
    source = str(Path(clearhead.__file__).parents[1])
    arguments = [plan.task, plan.model, str(tmp_path / "run"), "0.4"]
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    found = subprocess.run(
        [sys.executable, "-c", KILLS, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr
    killed = int(found.stdout.split()[0])
    assert killed >= 3, "the run was over before it could be killed"
    assert values(tmp_path / "run") == values(whole)
    assert Results(tmp_path / "run").summary()["rows"] == Results(whole).summary()["rows"]


class Crash(BaseException):
    """Stands for the process dying: nothing of ours may catch it."""


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("moment", [1, 2, 3, 5, 9])
def test_a_crash_between_any_two_writes_loses_nothing(plan, whole, tmp_path, monkeypatch, call, moment):
    real, calls = getattr(os, call), iter(range(1, 1000))

    def dying(*arguments):
        if next(calls) == moment:
            raise Crash
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, dying)
        with pytest.raises(Crash):
            execute(plan, tmp_path / "run", local)
    execute(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(whole)


# --- never mixed -----------------------------------------------------------------------------------------------

CHANGES = {
    "methods": {"methods": ("att-cat", "rollout")},
    "metrics": {"metrics": ("aopc:steps=5",)},
    "limit": {"limit": 4},
    "seed": {"seed": 1},
    "precision": {"precision": "float64"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_options_are_refused(plan, whole, name):
    kept = values(whole)
    with pytest.raises(BadFile, match=f"holds another run: its {name} was"):
        execute(replace(plan, **CHANGES[name]), whole, forgetful)
    assert values(whole) == kept


def test_changed_data_are_refused(plan, whole, tmp_path, monkeypatch):
    changed = tmp_path / "dev.tsv"
    changed.write_text(Path(plan.task).read_text().replace("bad", "good"))
    shutil.copytree(whole, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    original = Path(plan.task).read_text()
    try:
        Path(plan.task).write_text(changed.read_text())
        with pytest.raises(BadFile, match="its task was"):
            execute(plan, tmp_path / "run", forgetful)
    finally:
        Path(plan.task).write_text(original)
    assert manifest == Results(whole).manifest


def test_another_version_is_refused(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "torch": "1.0"}}))
    with pytest.raises(BadFile, match=r"begun with torch 1\.0"):
        execute(plan, tmp_path / "run", forgetful)
    path.write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(BadFile, match="has format 99"):
        Results(tmp_path / "run").manifest  # noqa: B018
    assert values(tmp_path / "run") == values(whole)


def test_two_processes_do_not_write_at_once(plan, whole, tmp_path):
    manifest = Results(whole).manifest
    with results.opened(tmp_path / "run", manifest), pytest.raises(BadFile, match="Another process"):
        with results.opened(tmp_path / "run", manifest):
            pass
