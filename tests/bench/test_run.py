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


def test_a_run_keeps_every_value_and_explanation(plan, finished_run):
    rows = values(finished_run)
    assert len(rows) == len(SENTENCES) * len(plan.methods) * len(plan.metrics)
    assert {(row["method"], row["metric"]) for row in rows} == {(m, k) for m in plan.methods for k in plan.metrics}
    explained = list(RunFolder(finished_run).explanations())
    assert len({(row["example"], row["name"]) for row in explained}) == len(SENTENCES) * len(plan.methods)
    assert all(row["tokens"] for row in explained)


def test_values_are_those_of_evaluate(plan, finished_run):
    table = clearhead.evaluate(plan.model, plan.task, list(plan.methods), list(plan.metrics))
    expected = {(row["method"], row["metric"]): row for row in table.rows}
    rows = RunFolder(finished_run).summary()["rows"]
    assert len(rows) == len(expected)
    for row in rows:
        for key in ("value", "low", "high"):
            assert row[key] == pytest.approx(expected[row["method"], row["metric"]][key], abs=1e-6)


def test_the_manifest_says_what_was_run(plan, finished_run):
    manifest = RunFolder(finished_run).manifest
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


def test_a_finished_run_is_shown_without_importing_torch(plan, finished_run):
    code = "import sys; from clearhead.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    arguments = ["bench", "--task", plan.task, "--model", plan.model, "--shard", "2", "--out", str(finished_run)]
    arguments += ["--methods", ",".join(plan.methods[:2]), "--methods", plan.methods[2], "--metrics", "aopc,hiding"]
    shown = child("-c", code, *arguments)
    assert shown.returncode == 0, shown.stderr
    assert "att-cat" in shown.stdout


def test_progress_moves_within_a_shard(plan, tmp_path):
    reported = []
    run_plan(replace(plan, shard=6), tmp_path / "run", local, lambda *counts: reported.append(counts))
    assert reported[0] == (0, 0, 9) and reported[-1] == (9, 9, 9)
    assert {kept for _, kept, _ in reported} == {0, 6, 9}
    done = [done for done, _, _ in reported]
    assert done == sorted(done)
    # Explaining is a third of the work, and each of the two metrics another.
    assert {1, 2, 4, 7, 8} <= set(done)


def test_a_second_run_computes_nothing(plan, finished_run):
    before = {path: path.stat().st_mtime_ns for path in finished_run.rglob("*") if path.is_file()}
    assert run_plan(plan, finished_run, forgetful) == RunFolder(finished_run).summary()
    assert before == {path: path.stat().st_mtime_ns for path in finished_run.rglob("*") if path.is_file()}


def test_a_run_without_its_summary_only_sums_up_again(plan, finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).unlink()
    assert run_plan(plan, tmp_path / "run", forgetful) == RunFolder(finished_run).summary()


def test_a_summary_in_another_layout_is_made_anew(plan, finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).write_text('{"rows": []}')
    assert run_plan(plan, tmp_path / "run", forgetful) == RunFolder(finished_run).summary()


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
def test_batches_are_halved_until_they_fit(plan, finished_run, tmp_path, monkeypatch, batch_size, sizes):
    seen = limit_memory(monkeypatch, 2)
    run_summary = run_plan(replace(plan, shard=9, batch_size=batch_size), tmp_path / "run", local)
    assert seen[: len(sizes)] == sizes
    for row, expected_row in zip(run_summary["rows"], RunFolder(finished_run).summary()["rows"], strict=True):
        assert row["value"] == pytest.approx(expected_row["value"], abs=1e-6)
