"""clearhead snapshot and clearhead diff."""

import json

import pytest
from helpers.commands import assert_one_line

TABLE = "text\tlabel\na bad film\tnegative\na good film\tpositive\nits heart is not dull\tpositive\n"


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text(TABLE)
    return str(path)


def test_two_snapshots_are_compared_without_models(run, model, task, tmp_path):
    path = str(tmp_path / "a.json")
    code, _, errors = run("snapshot", "-m", model, "--task", task, "--out", path, "--noise", "1", "--no-texts")
    assert code == 0, errors
    assert "film" not in (tmp_path / "a.json").read_text()
    code, output, errors = run("diff", path, path)
    assert code == 0, errors
    assert "Same reasons" in output


@pytest.mark.parametrize("ending", ["html", "md", "json", "png", "svg", "pdf"])
def test_diffs_are_written(run, model, task, tmp_path, ending):
    saved = str(tmp_path / "a.json")
    run("snapshot", "-m", model, "--task", task, "--out", saved, "--noise", "0")
    out = tmp_path / f"diff.{ending}"
    code, _, errors = run("diff", saved, model, "--task", task, "--out", str(out))
    assert code == 0, errors
    assert out.stat().st_size > 500
    assert "Wrote" in errors


def test_a_diff_is_printed_as_json(run, model, task):
    code, output, errors = run("diff", model, model, "--task", task, "--noise", "0", "--json", "--limit", "2")
    assert code == 0, errors
    record = json.loads(output)
    assert record["verdict"]["outcome"] == "same reasons"
    assert len(record["examples"]) == 2


def test_mistakes_are_one_line(run, model, task, tmp_path):
    assert_one_line(*run("diff", model, model), "No data given: name it with --task.")
    assert_one_line(*run("diff", str(tmp_path / "none.json"), str(tmp_path / "none.json")), "cannot be loaded")
    assert_one_line(*run("diff", model, model, "--task", task, "--out", str(tmp_path / "a.txt")), ".html")
    assert_one_line(*run("diff", model, model, "--task", task, "-o", "layer=1"), "--method")
    assert_one_line(*run("snapshot", "--task", task, "--out", str(tmp_path / "a.html")), ".json")


@pytest.mark.parametrize("command", [["diff", "a.json", "b.json"], ["snapshot", "--task", "a.json"]])
def test_no_input_is_replaced_by_the_output(run, tmp_path, monkeypatch, command):
    (tmp_path / "a.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert_one_line(*run(*command, "--out", "./a.json"), "'a.json' is an input, which the output would replace")
    assert (tmp_path / "a.json").read_text() == "{}"
