"""clearhead check and clearhead audit."""

import json
from xml.etree import ElementTree

import pytest
from helpers.commands import assert_one_line
from helpers.saved_models import save_text_model

TABLE = "text\tlabel\na bad film\tnegative\na good film\tpositive\nits heart is not dull\tpositive\n"


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text(TABLE)
    return str(path)


@pytest.fixture
def baseline(run, model, task, tmp_path):
    path = tmp_path / "baseline.json"
    run("snapshot", "-m", model, "--task", task, "--out", str(path), "--noise", "0")
    return str(path)


def test_the_same_model_passes(run, model, task, baseline):
    for arguments in ((), ("--model", model), ("--model", model, "--task", task), ("--model", baseline)):
        code, output, errors = run("check", baseline, *arguments)
        assert code == 0, errors
        assert output.startswith("passed: ")
        assert output.count("\n") == 1


def test_rows_that_cannot_be_used_are_told(run, model, baseline, tmp_path):
    path = tmp_path / "gaps.tsv"
    path.write_text(TABLE + "\tpositive\n")
    told = "1 row was skipped in 'gaps.tsv' (line 5: no text in column 'text')."
    snapshot = ("snapshot", "-m", model, "--out", str(tmp_path / "b.json"), "--noise", "0")
    for command in (snapshot, ("diff", model, model, "--noise", "0"), ("check", baseline)):
        code, output, errors = run(*command, "--task", str(path))
        assert code == 0, errors
        assert told in errors
        assert told not in output


def test_another_model_fails_with_reports(run, baseline, tmp_path):
    other = str(save_text_model(tmp_path / "other", hidden_act="relu"))
    junit, markdown = tmp_path / "a.xml", tmp_path / "a.md"
    flags = ("--max-shift", "0.0001", "--junit", str(junit), "--markdown", str(markdown))
    code, output, errors = run("check", baseline, "--model", other, *flags)
    assert code == 1, errors
    assert output.startswith("FAILED: ")
    assert errors.count("Wrote") == 2
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert markdown.read_text().startswith("## Clearhead check failed")


def test_mistakes_are_one_line(run, model, task, baseline, tmp_path):
    assert_one_line(*run("check", str(tmp_path / "missing.json"), "-m", model), "cannot be read")
    assert_one_line(*run("check", baseline, "--max-shift", "7"), "max_shift")
    assert_one_line(*run("check", baseline, "--junit", str(tmp_path / "a.txt")), "Invalid --junit 'a.txt'")
    (tmp_path / "other.tsv").write_text("text\tlabel\nanother text\tpositive\n")
    assert_one_line(*run("check", baseline, "--task", str(tmp_path / "other.tsv")), "not of the same inputs")
    assert_one_line(*run("audit", model, task, "--out", str(tmp_path / "a.txt")), ".html")


@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_audits_are_written(run, model, task, tmp_path, ending):
    out = tmp_path / f"audit.{ending}"
    code, output, errors = run("audit", model, task, "--word", "film", "--out", str(out))
    assert code == 0, errors
    assert "No shortcut was found: 1 word tested on 3 texts." in output
    assert "film" in out.read_text()


def test_an_audit_is_printed_as_json(run, model, task):
    code, output, errors = run("audit", model, task, "--word", "film", "--json")
    assert code == 0, errors
    assert json.loads(output)["words"][0]["texts"] == 2
