"""A table run that is killed goes on where it was, to the same bytes."""

import contextlib
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import clearhead
from clearhead.errors import BadFile
from clearhead.tables.run_folder import folder_of

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import clearhead
from clearhead.tables import run_folder

torch.set_num_threads(1)
table, folder, root, ending = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
model = clearhead.load(folder)
out = root / f"killed.{ending}"


def run(path):
    clearhead.explain_table(model, table, path, "att-cat", shard=4)


def shards():
    return len(list(run_folder.folder_of(out).glob(f"shards/*.[jp][sa][or]*l*")))


run(root / f"whole.{ending}")
begun = time.monotonic()
run(root / f"timed.{ending}")
length = time.monotonic() - begun
chance = random.Random(0)
inside = 0
for number in range(10):
    child = os.fork()
    if not child:
        run(out)
        os._exit(0)
    time.sleep(chance.uniform(0.02, 0.4) * length)
    os.kill(child, signal.SIGKILL)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    inside += killed and not out.exists() and run_folder.folder_of(out).exists()
print(inside)
run(out)
"""


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_killed_ten_times_it_ends_with_the_same_bytes(folder, write_rows, tmp_path, ending):
    table = write_rows(60)
    environment = {**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLS, str(table), str(folder), str(tmp_path), ending]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) >= 1, "no kill fell inside a run"
    assert (tmp_path / f"killed.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    assert not folder_of(tmp_path / f"killed.{ending}").exists()


class Crash(BaseException):
    """Stands for the process dying: nothing of ours may catch it."""


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_a_crash_between_any_two_writes_loses_nothing(model, write_rows, tmp_path, monkeypatch, call, moment):
    table = write_rows(12)
    clearhead.explain_table(model, table, tmp_path / "whole.jsonl", "raw-attention", shard=4)
    real, calls = getattr(os, call), iter(range(1, 1000))

    def dying(*arguments):
        if next(calls) == moment:
            raise Crash
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, dying)
        with contextlib.suppress(Crash):
            clearhead.explain_table(model, table, tmp_path / "out.jsonl", "raw-attention", shard=4)
    clearhead.explain_table(model, table, tmp_path / "out.jsonl", "raw-attention", shard=4)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def interrupt(model, table, out, after, monkeypatch, **options):
    """Stop a run after some shards, and return how many rows were explained."""
    from clearhead.tables.explainer import TableExplainer

    real, explained = TableExplainer.explain_rows, []

    def explain_rows(self, rows, advance):
        if len(explained) == after:
            raise KeyboardInterrupt
        explained.append(len(rows))
        return real(self, rows, advance)

    with monkeypatch.context() as patch:
        patch.setattr(TableExplainer, "explain_rows", explain_rows)
        try:
            clearhead.explain_table(model, table, out, "raw-attention", shard=4, **options)
        except KeyboardInterrupt:
            return sum(explained)
    return sum(explained)


def test_completed_shards_are_not_explained_again(model, write_rows, tmp_path, monkeypatch):
    table, out = write_rows(20), tmp_path / "out.parquet"
    assert interrupt(model, table, out, 3, monkeypatch) == 12
    assert interrupt(model, table, out, 99, monkeypatch) == 8


@pytest.mark.parametrize("kept", [0, 100])
def test_a_shard_that_was_cut_off_is_explained_again(kept, model, write_rows, tmp_path, monkeypatch):
    table, out = write_rows(20), tmp_path / "out.jsonl"
    interrupt(model, table, out, 3, monkeypatch)
    shard = sorted((folder_of(out) / "shards").glob("*.jsonl"))[1]
    shard.write_bytes(shard.read_bytes()[:kept])
    assert interrupt(model, table, out, 99, monkeypatch) == 12
    assert len(out.read_text().splitlines()) == 20


def test_another_run_in_the_same_folder_is_refused(model, write_rows, make_rows, tmp_path, monkeypatch):
    table, out = write_rows(20), tmp_path / "out.parquet"
    interrupt(model, table, out, 2, monkeypatch)
    with pytest.raises(BadFile, match="its method was 'raw-attention', and is now 'att-cat'"):
        clearhead.explain_table(model, table, out, "att-cat", shard=4)
    with pytest.raises(BadFile, match="its target was 'None', and is now 'negative'"):
        clearhead.explain_table(model, table, out, "raw-attention", "negative", shard=4)
    with pytest.raises(BadFile, match="its check was 'False', and is now 'True'"):
        clearhead.explain_table(model, table, out, "raw-attention", shard=4, check=True)
    table.write_text(table.read_text() + '{"text": "one more"}\n')
    with pytest.raises(BadFile, match=r"the table has changed since\. .* delete this folder"):
        clearhead.explain_table(model, table, out, "raw-attention", shard=4)
    # Objects have no hash of their own: their rows are compared.
    rows, out = make_rows(20), tmp_path / "rows.jsonl.out.jsonl"
    interrupt(model, rows, out, 2, monkeypatch)
    rows[0]["text"] = "changed"
    with pytest.raises(BadFile, match="rows 1 to 4 of the table have changed"):
        clearhead.explain_table(model, rows, out, "raw-attention", shard=4)


@pytest.mark.parametrize("kind", ["date", "array", "picture"])
def test_changed_objects_in_cells_are_noticed(model, make_rows, tmp_path, monkeypatch, kind):
    def make_cell(number):
        array = np.full((2, 2, 3), number, dtype=np.uint8)
        return {"date": date(2020, 1, number), "array": array, "picture": Image.fromarray(array)}[kind]

    rows, out = [{**row, "cell": make_cell(1)} for row in make_rows(8)], tmp_path / "out.jsonl"
    interrupt(model, rows, out, 1, monkeypatch)
    same = [{**row, "cell": make_cell(1)} for row in make_rows(8)]
    assert interrupt(model, same, out, 0, monkeypatch) == 0
    same[0]["cell"] = make_cell(2)
    with pytest.raises(BadFile, match="rows 1 to 4 of the table have changed"):
        clearhead.explain_table(model, same, out, "raw-attention", shard=4)


def test_more_than_a_million_shards_keep_their_order(tmp_path):
    from clearhead.tables.run_folder import SHARDS, TableRun
    from clearhead.tables.writers import FORMATS

    names = ["000002-a.jsonl", "100000-a.jsonl", "100001-a.jsonl", "1000000-a.jsonl"]
    (tmp_path / "run" / SHARDS).mkdir(parents=True)
    for name in names:
        (tmp_path / "run" / SHARDS / name).write_text(f"{name}\n")
    TableRun(tmp_path / "run", FORMATS[".jsonl"]).join(len(names), tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text().split() == names


def test_two_processes_do_not_write_at_once(model, write_rows, tmp_path, monkeypatch):
    from clearhead.tables import run_folder
    from clearhead.tables.writers import FORMATS

    out = tmp_path / "out.jsonl"
    with (
        run_folder.open_run(out, {"format": 1}, FORMATS[".jsonl"]),
        pytest.raises(BadFile, match="Another process"),
    ):
        clearhead.explain_table(model, write_rows(4), out, "raw-attention")
