"""clearhead list."""

import pytest
from helpers.commands import records

import clearhead


def test_list_methods(run):
    code, output, _ = run("list", "methods")
    assert code == 0
    assert all(name in output for name in clearhead.methods())
    rows = records(run("list", "methods", "--json")[1])
    assert {row["name"]: row["signed"] for row in rows}["att-cat"] is True


@pytest.mark.parametrize("catalogue", ["metrics", "tasks", "models"])
def test_list_says_so_where_there_is_nothing(run, catalogue):
    code, output, _ = run("list", catalogue)
    assert code == 0
    assert output.strip()


def test_list_models_tells_their_task_and_whether_they_are_installed(run):
    rows = records(run("list", "models", "--json")[1])
    tasks = {row["name"]: row["task"] for row in rows}
    assert tasks["clearhead/smollm2"] == "text-generation"
    assert all(isinstance(row["installed"], bool) for row in rows)


def test_how_a_table_is_laid_out_is_not_listed(run):
    assert "methods-across" not in run("list", "benchmarks")[1]
