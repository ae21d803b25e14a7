"""clearhead sanity."""

import pytest
from helpers.commands import records


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a joyless film\nthe best of all\nnot my cup of tea\na good heart\n")
    return str(file)


def test_the_report_on_the_terminal_and_in_a_file(run, model, texts, tmp_path):
    out = tmp_path / "sanity.md"
    code, output, _ = run("sanity", "--model", model, "--task", texts, "--methods", "att-cat,gae", "--out", str(out))
    assert code == 0
    assert "random weights" in output
    assert "of 4 inputs" in output
    assert out.read_text().startswith("# Sanity of explanations")


def test_a_line_of_json_per_method(run, model, texts):
    rows = records(run("sanity", "--model", model, "--task", texts, "--methods", "gae", "--json")[1])
    assert [row["method"] for row in rows] == ["gae", "random:seed=0"]
    assert {"correlation", "first", "verdict"} <= set(rows[0])


def test_without_data_nothing_is_loaded(run):
    assert "No data given" in run("sanity", "--model", "nowhere")[2]
