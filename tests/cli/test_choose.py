"""clearhead choose, and the choices that other commands follow."""

import json
from pathlib import Path

import pytest
from helpers.commands import records
from helpers.planted_keywords import train

METHODS = "att-cat,gradient-x-input"


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_CONFIG", str(tmp_path / "settings"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder with a model that a keyword decides, and a file of texts."""
    trained = train("bert")
    folder = tmp_path_factory.mktemp("planted")
    trained.model.network.save_pretrained(folder)
    trained.model.processor.save_pretrained(folder)
    texts = folder / "texts.txt"
    texts.write_text("\n".join(trained.inputs[:80]))
    return str(folder), str(texts)


def test_the_choice_is_listed_followed_and_forgotten(run, planted):
    model, texts = planted
    code, output, errors = run("choose", "--model", model, "--task", texts, "--methods", METHODS)
    assert code == 0
    assert "about" in errors
    assert "From now on" in output
    (row,) = records(run("list", "choices", "--json")[1])
    assert row["name"] == model
    explanation = json.loads(run("explain", "a red film", "--model", model, "--json")[1])
    assert explanation["method"] == row["method"]
    assert explanation["diagnostics"]["chosen"].endswith(row["date"])
    default = json.loads(run("explain", "a red film", "--model", model, "--method", "default", "--json")[1])
    assert default["method"] == "balanced-cat"
    assert "Forgotten" in run("choose", "--forget", model)[1]
    assert "No method has been chosen" in run("list", "choices")[1]


def test_the_result_as_json(run, planted):
    model, texts = planted
    command = ("choose", "--model", model, "--task", texts, "--methods", METHODS, "--no-keep", "--json")
    record = json.loads(run(*command)[1])
    assert record["method"] in METHODS.split(",")
    assert record["file"] is None
    assert {entry["metric"].split(":")[0] for entry in record["rows"]} == {"comprehensiveness", "sufficiency"}


def test_rows_that_were_left_out_are_told(run, planted, tmp_path):
    table = tmp_path / "texts.jsonl"
    model, texts = planted
    lines = ["", *Path(texts).read_text().splitlines()]
    table.write_text("\n".join(json.dumps({"text": line}) for line in lines))
    flags = ("--methods", "attn-lrp", "--limit", "20", "--no-keep")
    code, _, errors = run("choose", "--model", model, "--task", str(table), *flags)
    assert code == 0, errors
    assert "1 row was skipped in 'texts.jsonl' (line 1: no text in column 'text')." in errors


def test_mistakes_are_named(run):
    assert "name a table" in run("choose")[2]
    code, _, errors = run("choose", "--forget", "nothing")
    assert (code, errors) == (2, "clearhead: No method was chosen for 'nothing'. There are no choices.\n")
