"""Mistakes in clearhead bench."""

from pathlib import Path

import pytest

from clearhead.bench.run_folder import RunFolder


def wrong(tmp_path: Path, name: str, content: str) -> str:
    path = tmp_path / name
    path.write_text(content)
    return str(path)


ASKED = ("--methods", "att-cat", "--metrics", "aopc,hiding")


MISTAKES = {
    "missing file": (["--task", "{folder}/missing.tsv", *ASKED], "There is no file or folder"),
    "no data": ([*ASKED], "No data given"),
    "method": (["--task", "{task}", "--methods", "attcat", "--metrics", "aopc"], "Did you mean 'att-cat'?"),
    "metric": (["--task", "{task}", "--methods", "att-cat", "--metrics", "aopcc"], "Did you mean 'aopc'?"),
    "benchmark": (["attcat-table9", "--task", "{task}"], "Did you mean 'attcat-table"),
    "columns": (["--task", "{task}", *ASKED, "--text-column", "review"], "review"),
    "label": (["--task", "{folder}/unknown.tsv", *ASKED], "maybe"),
    "empty": (["--task", "{folder}/empty.tsv", *ASKED], "no usable rows"),
    "batch": (
        ["--task", "{task}", *ASKED, "--batch-size", "many"],
        "Invalid --batch-size 'many': use auto or a positive integer.",
    ),
    "seed": (["--task", "{task}", *ASKED, "--seed", "-1"], "--seed -1 must be a whole number, at least 0"),
    "steps": (["--task", "{task}", "--methods", "att-cat", "--metrics", "aopc:steps=0"], "steps=0 must be"),
    "no batch": (["--task", "{task}", *ASKED, "--batch-size", "²"], "Invalid --batch-size '²'"),
    "no share": (["--task", "{task}", "--methods", "layer-gradcam:layer=7/0", "--metrics", "aopc"], "7/12"),
    "backwards": (["--task", "{task}", "--methods", "layer-gradcam:layer=5..3", "--metrics", "aopc"], "layer=3..5"),
    "workers": (["--task", "{task}", *ASKED, "--workers", "2"], "--ray"),
    "layer": (["--task", "{task}", "--methods", "layer-gradcam:layer=99", "--metrics", "aopc"], "99"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(run, model, task, tmp_path, name):
    wrong(tmp_path, "unknown.tsv", "label\tsentence\nmaybe\ta film\npositive\ta good film\n")
    wrong(tmp_path, "empty.tsv", "label\tsentence\n0\t \n1\t\n")
    arguments, message = MISTAKES[name]
    command_line = [argument.format(task=task, folder=tmp_path) for argument in arguments]
    code, _, errors = run(*command_line, "--model", model, "--out", str(tmp_path / "run"))
    assert code == 2
    assert message in errors
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


def test_bad_rows_are_counted_not_fatal(run, model, tmp_path):
    task = wrong(tmp_path, "dev.tsv", "label\tsentence\n0\ta bad film\n1\t \n1\ta good film\n")
    code, _, errors = run("--task", task, *ASKED, "--model", model, "--out", str(tmp_path / "run"))
    assert code == 0, errors
    assert "line 3" in RunFolder(tmp_path / "run").manifest["skipped"]
    assert "line 3" in errors
