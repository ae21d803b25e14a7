"""Runs: what they keep, and what a second run computes."""

import shutil
from dataclasses import replace

import pytest
import torch
from helpers.commands import child
from helpers.runs import SENTENCES, forgetful, values

import clearhead
from clearhead.attribution import batch
from clearhead.bench import run_folder as results
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local
from clearhead.errors import ClearheadError


def test_a_run_keeps_every_value_and_explanation(plan, whole):
    rows = values(whole)
    assert len(rows) == len(SENTENCES) * len(plan.methods) * len(plan.metrics)
    assert {(row["method"], row["metric"]) for row in rows} == {(m, k) for m in plan.methods for k in plan.metrics}
    explained = list(RunFolder(whole).explanations())
    assert len({(row["example"], row["name"]) for row in explained}) == len(SENTENCES) * len(plan.methods)
    assert all(row["tokens"] for row in explained)


def test_values_are_those_of_evaluate(plan, whole):
    table = clearhead.evaluate(plan.model, plan.task, list(plan.methods), list(plan.metrics))
    wanted = {(row["method"], row["metric"]): row for row in table.rows}
    found = RunFolder(whole).summary()["rows"]
    assert len(found) == len(wanted)
    for row in found:
        for key in ("value", "low", "high"):
            assert row[key] == pytest.approx(wanted[row["method"], row["metric"]][key], abs=1e-6)


def test_the_manifest_says_what_was_run(plan, whole):
    manifest = RunFolder(whole).manifest
    assert manifest["versions"]["clearhead"] == clearhead.__version__
    assert {"python", "torch", "transformers"} <= set(manifest["versions"])
    assert manifest["plan"]["methods"] == list(plan.methods)
    assert len(manifest["hashes"]["task"]) == len(manifest["hashes"]["model"]) == 64
    assert manifest["examples"] == len(SENTENCES)
    assert manifest["shards"] == 5


def test_a_run_reads_its_task_once(plan, tmp_path, monkeypatch):
    from clearhead.data import read

    read_task = read.read_task
    sources = []

    def read_counted(source, **options):
        sources.append(source)
        return read_task(source, **options)

    monkeypatch.setattr(read, "read_task", read_counted)
    run_plan(plan, tmp_path / "run", local)
    assert sources == [plan.task]


def test_a_finished_run_is_shown_without_importing_torch(plan, whole):
    code = "import sys; from clearhead.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    arguments = ["bench", "--task", plan.task, "--model", plan.model, "--shard", "2", "--out", str(whole)]
    arguments += ["--methods", ",".join(plan.methods[:2]), "--methods", plan.methods[2], "--metrics", "aopc,hiding"]
    shown = child("-c", code, *arguments)
    assert shown.returncode == 0, shown.stderr
    assert "att-cat" in shown.stdout


def test_a_second_run_computes_nothing(plan, whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    assert run_plan(plan, whole, forgetful) == RunFolder(whole).summary()
    assert before == {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}


def test_a_run_without_its_summary_only_sums_up_again(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).unlink()
    assert run_plan(plan, tmp_path / "run", forgetful) == RunFolder(whole).summary()


def test_a_summary_in_another_layout_is_made_anew(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).write_text('{"rows": []}')
    assert run_plan(plan, tmp_path / "run", forgetful) == RunFolder(whole).summary()


def test_nothing_measured_is_an_error(plan, tmp_path):
    """A masked-LM head is needed, and this model has none."""
    with pytest.raises(ClearheadError, match="masked-LM"):
        run_plan(replace(plan, methods=("decoded-gradcam",)), tmp_path / "run", local)


def limit_memory(monkeypatch, most: int) -> list[int]:
    """As if memory ended at batches of `most`."""
    capture = batch.capture
    sizes = []

    def capture_limited(model, inputs, targets, **options):
        sizes.append(len(inputs))
        if len(inputs) > most:
            raise torch.OutOfMemoryError
        return capture(model, inputs, targets, **options)

    monkeypatch.setattr(batch, "capture", capture_limited)
    return sizes


@pytest.mark.parametrize(("batch_size", "sizes"), [(None, [9, 4, 2, 2, 5, 2, 3, 1, 2]), (4, [4, 2, 2, 4, 2, 2, 1])])
def test_batches_are_halved_until_they_fit(plan, whole, tmp_path, monkeypatch, batch_size, sizes):
    seen = limit_memory(monkeypatch, 2)
    found = run_plan(replace(plan, shard=9, batch_size=batch_size), tmp_path / "run", local)
    assert seen[: len(sizes)] == sizes
    for row, wanted in zip(found["rows"], RunFolder(whole).summary()["rows"], strict=True):
        assert row["value"] == pytest.approx(wanted["value"], abs=1e-6)
