"""Benchmarks: killed at any moment they end with the same values; nothing is mixed, nothing is lost."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from samples import save_image_model, save_text_model

import clearhead
from clearhead.bench import report
from clearhead.bench import run_folder as results
from clearhead.bench.plan import Plan, expand_layers, read_plan_task
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local
from clearhead.bench.worker import group_metrics, make_jobs
from clearhead.cli import main
from clearhead.data.parquet import to_parquet
from clearhead.errors import BadFile, BadOption, ClearheadError

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
    run_plan(plan, folder, local)
    return folder


def values(folder: Path) -> list[dict]:
    return list(RunFolder(folder).values())


def forgetful(*_):
    raise AssertionError("a finished run must not compute anything")


# --- a run -----------------------------------------------------------------------------------------------------


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


# --- killed ----------------------------------------------------------------------------------------------------

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


def test_killed_at_ten_random_moments_it_ends_with_the_same_values(plan, whole, tmp_path):
    source = str(Path(clearhead.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-c", KILLS, plan.task, plan.model, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    moments = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    assert any(killed and 0 < shards < 5 for killed, shards in moments), f"no kill fell inside a run: {moments}"
    for number in range(10):
        assert values(tmp_path / f"run{number}") == values(whole)
        assert RunFolder(tmp_path / f"run{number}").summary()["rows"] == RunFolder(whole).summary()["rows"]


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
            run_plan(plan, tmp_path / "run", local)
    run_plan(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(whole)
    assert list(RunFolder(tmp_path / "run").explanations()) == list(RunFolder(whole).explanations())
    assert len(RunFolder(tmp_path / "run").seconds()) == RunFolder(whole).manifest["shards"]


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
        run_plan(replace(plan, **CHANGES[name]), whole, forgetful)
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
            run_plan(plan, tmp_path / "run", forgetful)
    finally:
        Path(plan.task).write_text(original)
    assert manifest == RunFolder(whole).manifest


def test_another_version_is_refused(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "torch": "1.0"}}))
    with pytest.raises(BadFile, match=r"begun with torch 1\.0"):
        run_plan(plan, tmp_path / "run", forgetful)
    path.write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(BadFile, match="has format 99"):
        RunFolder(tmp_path / "run").manifest  # noqa: B018
    assert values(tmp_path / "run") == values(whole)


def test_two_processes_do_not_write_at_once(plan, whole, tmp_path):
    manifest = RunFolder(whole).manifest
    opened = results.open_run(tmp_path / "run", manifest)
    with opened, pytest.raises(BadFile, match="Another process"), results.open_run(tmp_path / "run", manifest):
        pass


# --- mistakes --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    """Runs a command and gives exit code, output and errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["bench", *arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command


def wrong(tmp_path: Path, name: str, content: str) -> str:
    path = tmp_path / name
    path.write_text(content)
    return str(path)


ASKED = ("--methods", "att-cat", "--metrics", "aopc,hiding")
MISTAKES = {
    "missing file": (["--task", "{folder}/missing.tsv", *ASKED], "There is no file or folder"),
    "no data": ([*ASKED], "Which data?"),
    "no methods": (["--task", "{task}", "--metrics", "aopc"], "Which methods?"),
    "no metrics": (["--task", "{task}", "--methods", "att-cat"], "Which metrics?"),
    "method": (["--task", "{task}", "--methods", "attcat", "--metrics", "aopc"], "Did you mean 'att-cat'?"),
    "metric": (["--task", "{task}", "--methods", "att-cat", "--metrics", "aopcc"], "Did you mean 'aopc'?"),
    "benchmark": (["attcat-table9", "--task", "{task}"], "Did you mean 'attcat-table"),
    "columns": (["--task", "{task}", *ASKED, "--text-column", "review"], "review"),
    "label": (["--task", "{folder}/unknown.tsv", *ASKED], "maybe"),
    "empty": (["--task", "{folder}/empty.tsv", *ASKED], "no usable rows"),
    "batch": (["--task", "{task}", *ASKED, "--batch-size", "many"], "--batch-size many"),
    "seed": (["--task", "{task}", *ASKED, "--seed", "-1"], "--seed -1 must be a whole number, at least 0"),
    "steps": (["--task", "{task}", "--methods", "att-cat", "--metrics", "aopc:steps=0"], "steps=0 must be"),
    "no batch": (["--task", "{task}", *ASKED, "--batch-size", "²"], "--batch-size ²"),
    "no share": (["--task", "{task}", "--methods", "layer-gradcam:layer=7/0", "--metrics", "aopc"], "7/12"),
    "backwards": (["--task", "{task}", "--methods", "layer-gradcam:layer=5..3", "--metrics", "aopc"], "layer=3..5"),
    "workers": (["--task", "{task}", *ASKED, "--workers", "2"], "--ray"),
    "layer": (["--task", "{task}", "--methods", "layer-gradcam:layer=99", "--metrics", "aopc"], "99"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(run, model, task, tmp_path, name):
    wrong(tmp_path, "unknown.tsv", "label\tsentence\nmaybe\ta film\npositive\ta good film\n")
    wrong(tmp_path, "empty.tsv", "label\tsentence\n0\t \n1\t\n")
    arguments, wanted = MISTAKES[name]
    given = [one.format(task=task, folder=tmp_path) for one in arguments]
    code, _, errors = run(*given, "--model", model, "--out", str(tmp_path / "run"))
    assert code == 2
    assert wanted in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_mistake_leaves_the_folder_free_for_the_next_try(run, model, task, tmp_path):
    unknown = wrong(tmp_path, "unknown.tsv", "label\tsentence\nmaybe\ta film\n")
    out = str(tmp_path / "run")
    assert run("--task", unknown, *ASKED, "--model", model, "--out", out)[0] == 2
    code, _, errors = run("--task", task, *ASKED, "--model", model, "--out", out)
    assert code == 0, errors


def test_a_folder_with_something_else_is_left_alone(run, model, task, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, errors = run("--task", task, *ASKED, "--model", model, "--out", str(tmp_path))
    assert code == 2
    assert "thesis.txt" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_place_that_cannot_be_written(run, model, task, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, errors = run("--task", task, *ASKED, "--model", model, "--out", str(tmp_path / "file" / "run"))
    assert code == 2
    assert "cannot be written" in errors


@pytest.mark.parametrize("moment", [1, 3, 6, 10])
def test_a_full_disk_loses_nothing(plan, whole, tmp_path, monkeypatch, moment):
    real, calls = os.fsync, iter(range(1, 1000))

    def full(number):
        if next(calls) >= moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(BadFile, match=r"No space left on device. What is done is kept"):
            run_plan(plan, tmp_path / "run", local)
    assert not list((tmp_path / "run").rglob(".partial-*"))
    run_plan(plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(whole)


def test_a_damaged_shard_is_named(plan, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / results.SUMMARY).unlink()
    (tmp_path / "run" / "shards" / "00001-values.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(BadFile, match="00001-values"):
        run_plan(plan, tmp_path / "run", local)


def test_bad_rows_are_counted_not_fatal(run, model, tmp_path):
    task = wrong(tmp_path, "dev.tsv", "label\tsentence\n0\ta bad film\n1\t \n1\ta good film\n")
    code, _, errors = run("--task", task, *ASKED, "--model", model, "--out", str(tmp_path / "run"))
    assert code == 0, errors
    assert "line 3" in RunFolder(tmp_path / "run").manifest["skipped"]
    assert "line 3" in errors


# --- plans -----------------------------------------------------------------------------------------------------


def test_every_example_is_in_one_shard(plan):
    streams = group_metrics(plan, read_plan_task(plan))
    jobs = make_jobs(streams, 4)
    covered = [(job.stream, place) for job in jobs for place in range(job.start, job.stop)]
    assert covered == [(0, place) for place in range(len(SENTENCES))]
    assert [job.number for job in jobs] == [0, 1, 2]


def test_layers_may_be_counted_by_depth():
    assert expand_layers(["layer-gradcam:layer=*"], 2) == [f"layer-gradcam:layer={layer}" for layer in (0, 1, 2)]
    assert expand_layers(["decoded-gradcam:layer=7/12,top=3"], 12) == ["decoded-gradcam:layer=7,top=3"]
    assert expand_layers(["decoded-gradcam:layer=7/12"], 6) == ["decoded-gradcam:layer=4"]
    assert expand_layers(["decoded-gradcam:layer=5/12", "decoded-gradcam:layer=6/12"], 6) == ["decoded-gradcam:layer=3"]
    assert expand_layers(["att-cat"], 0) == ["att-cat"]


PAPERS = [
    *("attcat-table1", "attcat-table2", "attcat-figure3"),
    *("decoded-table1", "decoded-table2", "decoded-figure2", "decoded-figure3", "decoded-figure4", "decoded-figure5"),
    *("decoded-figure6", "decoded-figure9"),
    *("transatt-table1", "transatt-table2", "transatt-table3", "transatt-figure4"),
]


def test_the_papers_tables_are_there():
    assert sorted(clearhead.benchmarks()) == sorted(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_tables_name_methods_and_metrics_that_exist(name):
    from clearhead.attribution.method import parse_method
    from clearhead.evaluation.metric import parse_metric

    benchmark = clearhead.benchmarks()[name]
    assert [parse_method(one) for one in expand_layers(benchmark.methods, 12)]
    assert [parse_metric(one) for one in benchmark.metrics]


def pixels(seed: int, low: int, high: int) -> bytes:
    buffer = io.BytesIO()
    values = np.random.default_rng(seed).integers(low, high, (32, 32, 3) if high > 4 else (32, 32), dtype=np.uint8)
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def material(model, task, tmp_path_factory):
    """By kind of data: the task, the model, and what else the command needs."""
    folder = tmp_path_factory.mktemp("material")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    config = transformers.AutoConfig.from_pretrained(model)
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(folder / "lm")
    transformers.BertForQuestionAnswering(config).save_pretrained(folder / "qa")
    tokenizer.save_pretrained(folder / "qa")
    passage = "a good film has a heart"
    answer = {"id": "1", "question": "what has a film", "answers": [{"text": "a heart", "answer_start": 16}]}
    squad = {"data": [{"paragraphs": [{"context": passage, "qas": [answer, {**answer, "id": "2"}]}]}]}
    (folder / "squad.json").write_text(json.dumps(squad))
    marked = {"text": "a bad film , never good", "label": 0, "rationale_char_spans": [[2, 5]]}
    (folder / "movies.jsonl").write_text(json.dumps(marked) + "\n" + json.dumps({**marked, "label": 1}) + "\n")
    pets = [
        {"image": pixels(n, 0, 256), "trimap": pixels(n, 1, 4), "breed_id": n % 2, "breed": ("cat", "dog")[n % 2]}
        for n in range(4)
    ]
    (folder / "pets.parquet").write_bytes(to_parquet(pets))
    image_model = str(save_image_model(folder / "vit"))
    return {
        "attcat-figure3": [str(folder / "squad.json"), "--model", str(folder / "qa")],
        "attcat": [task, "--model", model],
        "decoded": [task, "--model", model, "--lm-head", str(folder / "lm")],
        "transatt-figure4": [str(folder / "movies.jsonl"), "--model", model],
        "transatt": [str(folder / "pets.parquet"), "--model", image_model],
    }


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_table_runs_on_ones_own_model_and_data(run, material, tmp_path, name):
    kind = name if name in material else name.split("-")[0]
    code, output, errors = run(
        name, "--limit", "2", "--out", str(tmp_path / "run"), "--json", "--task", *material[kind]
    )
    assert code == 0, errors
    rows = [json.loads(line) for line in output.splitlines()]
    benchmark = clearhead.benchmarks()[name]
    assert {row["method"] for row in rows} == set(expand_layers(benchmark.methods, 2)), errors
    assert {row["metric"] for row in rows} == set(benchmark.metrics)
    assert report.page(RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run").summary())


def test_methods_can_be_chosen_within_a_papers_table(run, model, task, tmp_path):
    arguments = ["attcat-table2", "--methods", "cat", "--task", task, "--model", model, "--json"]
    code, output, _ = run(*arguments, "--out", str(tmp_path / "run"))
    assert code == 0
    assert [json.loads(line)["method"] for line in output.splitlines()] == ["cat"]


def test_nothing_measured_is_an_error(plan, tmp_path):
    """A masked-LM head is needed, and this model has none."""
    with pytest.raises(ClearheadError, match="masked-LM"):
        run_plan(replace(plan, methods=("decoded-gradcam",)), tmp_path / "run", local)


def limited(monkeypatch, most: int) -> list[int]:
    """As if memory ended at batches of `most`."""
    from clearhead.evaluation import explained as cases

    real, seen = cases.explain_examples, []

    def explain_cases(*arguments, batch_size, **options):
        seen.append(batch_size)
        if batch_size is not None and batch_size > most:
            raise torch.OutOfMemoryError
        return real(*arguments, batch_size=batch_size, **options)

    monkeypatch.setattr(cases, "explain_examples", explain_cases)
    return seen


def test_automatic_batches_are_halved_until_they_fit(plan, whole, tmp_path, monkeypatch):
    seen = limited(monkeypatch, 2)
    found = run_plan(replace(plan, shard=9), tmp_path / "run", local)
    assert seen[:3] == [9, 4, 2]
    for row, wanted in zip(found["rows"], RunFolder(whole).summary()["rows"], strict=True):
        assert row["value"] == pytest.approx(wanted["value"], abs=1e-6)


def test_a_fixed_batch_that_does_not_fit_is_a_mistake(plan, tmp_path, monkeypatch):
    limited(monkeypatch, 2)
    with pytest.raises(BadOption, match="A batch of 4 does not fit"):
        run_plan(replace(plan, shard=9, batch_size=4), tmp_path / "run", local)


def test_a_plan_without_methods_is_refused(plan, tmp_path):
    with pytest.raises(BadOption, match="at least one method"):
        run_plan(replace(plan, methods=()), tmp_path / "run", local)


def test_a_clear_difference_survives_the_correction_for_many_comparisons():
    """Values that are no means are tested by trading examples, whose p must be able to become small."""
    from clearhead.evaluation.statistics import _extreme, holm

    chance = np.random.default_rng(0).normal(0.0, 0.1, 499)
    assert holm([_extreme(np.array([1.0, *chance]))] * 100)[0] < 0.001
    assert _extreme(np.array([0.0, *chance])) == 1.0
    assert 0.0 < _extreme(np.array([0.2, *chance])) < 0.1
    assert _extreme(np.zeros(500)) == 1.0
