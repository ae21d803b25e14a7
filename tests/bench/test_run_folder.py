"""A run folder refuses what does not belong to it."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.runs import forgetful, values

from clearhead.bench import run_folder as results
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local
from clearhead.errors import BadFile

CHANGES = {
    "methods": {"methods": ("att-cat", "rollout")},
    "metrics": {"metrics": ("aopc:steps=5",)},
    "limit": {"limit": 4},
    "seed": {"seed": 1},
    "precision": {"precision": "float64"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_options_are_refused(plan, finished_run, name):
    kept = values(finished_run)
    with pytest.raises(BadFile, match=f"holds another run: its {name} was"):
        run_plan(replace(plan, **CHANGES[name]), finished_run, forgetful)
    assert values(finished_run) == kept


def test_changed_data_are_refused(plan, finished_run, tmp_path, monkeypatch):
    changed = tmp_path / "dev.tsv"
    changed.write_text(Path(plan.task).read_text().replace("bad", "good"))
    shutil.copytree(finished_run, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    original = Path(plan.task).read_text()
    try:
        Path(plan.task).write_text(changed.read_text())
        with pytest.raises(BadFile, match="the task has changed since"):
            run_plan(plan, tmp_path / "run", forgetful)
    finally:
        Path(plan.task).write_text(original)
    assert manifest == RunFolder(finished_run).manifest


def test_another_version_is_refused(plan, finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "torch": "1.0"}}))
    with pytest.raises(BadFile, match=r"begun with torch 1\.0"):
        run_plan(plan, tmp_path / "run", forgetful)
    path.write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(BadFile, match="has format 99"):
        RunFolder(tmp_path / "run").manifest  # noqa: B018
    assert values(tmp_path / "run") == values(finished_run)


def test_two_processes_do_not_write_at_once(plan, finished_run, tmp_path):
    manifest = RunFolder(finished_run).manifest
    opened = results.open_run(tmp_path / "run", manifest)
    with opened, pytest.raises(BadFile, match="Another process"), results.open_run(tmp_path / "run", manifest):
        pass


@pytest.mark.parametrize("moment", [1, 3, 6, 10])
def test_a_full_disk_loses_nothing(plan, finished_run, tmp_path, monkeypatch, moment):
    real, calls = os.fsync, iter(range(1, 1000))

    def full(number):
        if next(calls) >= moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(BadFile, match=r"No space left on device. Completed shards are kept"):
            run_plan(plan, tmp_path / "run", local)
    assert not list((tmp_path / "run").rglob(".*"))
    run_plan(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(finished_run)


def test_what_a_killed_process_was_writing_is_removed(plan, finished_run, tmp_path):
    (tmp_path / "run" / "shards").mkdir(parents=True)
    names = (".manifest.json.x1_y", "shards/.00000-values.parquet.x1_y")
    for name in names:
        (tmp_path / "run" / name).write_text("half a fi")
    run_plan(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(finished_run)
    assert not list((tmp_path / "run").rglob(".*"))


def test_a_damaged_shard_is_named(plan, finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).unlink()
    (tmp_path / "run" / "shards" / "00001-values.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(BadFile, match="00001-values"):
        run_plan(plan, tmp_path / "run", local)
