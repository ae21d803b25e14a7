"""clearhead plan."""

import json
from pathlib import Path

from helpers.commands import TEXT, assert_one_line
from helpers.language_models import make_decoder, make_tokenizer
from PIL import Image

import clearhead
from clearhead.model.answer_inputs import DEFAULT_NEW_TOKENS


def test_plan_tells_memory_and_time(run, model, image_model, tmp_path):
    code, output, errors = run("plan", TEXT, "a bad film", "-m", model, "--methods", "trans-att,att-cat")
    assert code == 0, errors
    first, second, *rest = output.splitlines()
    assert first.startswith("2 inputs, ") and "trans-att, att-cat, 2 at a time" in second
    assert [line.split()[0] for line in rest] == ["memory", "way", "time"]
    plan = json.loads(run("plan", TEXT, "-m", model, "--json")[1])
    assert plan["memory_blockwise"] < plan["memory_whole"] < plan["memory_free"]
    assert plan["way"] == "whole" and plan["seconds"] > 0
    section = (Path(__file__).parents[2] / "docs" / "json.md").read_text().split("`clearhead plan … --json`")[1]
    assert all(f"`{key}`" in section for key in plan)
    assert "per explanation" not in run("plan", "--help")[1]
    Image.new("RGB", (40, 40)).save(tmp_path / "grey.png")
    assert run("plan", str(tmp_path / "grey.png"), "-m", image_model)[1].startswith("1 picture\n")
    code, _, errors = run("plan", TEXT, "-m", model, "--methods", "no-such")
    assert code == 2 and "no-such" in errors
    assert_one_line(*run("plan", TEXT, "-m", model, "--batch-size", "0"), "at least 1")


def test_plan_counts_every_window(run, model, monkeypatch):
    tried = []
    monkeypatch.setattr(
        "clearhead.attribution.plan.estimate_seconds", lambda work, sizes, *_: tried.append(list(sizes)) or 1.0
    )
    long = "film " * 100
    windows = clearhead.explain(clearhead.load(model), long, overflow="windows").diagnostics["windows"]
    flags = ["-m", model, "--overflow", "windows", "--batch-size", "2"]
    plan = json.loads(run("plan", long, "a film", *flags, "--json")[1])
    assert (plan["inputs"], plan["windows"], plan["longest"], plan["seconds"]) == (2, windows, 102, 2.0)
    explaining, predicting = tried
    assert len(explaining) == 1 + len(predicting) == 1 + (windows + 1) // 2
    assert f"102 at most, {windows} windows\n" in run("plan", long, *flags)[1]
    assert_one_line(*run("plan", long, "film", "--pair", *flags), "cannot be cut into windows")


def test_plan_for_the_answers_of_a_language_model(run, tmp_path):
    folder = tmp_path / "decoder"
    make_decoder("llama").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    flags = ["-m", str(folder), "--methods", "attn-lrp", "--json"]
    with_answer = json.loads(run("plan", "the capital of france is", "--answer", "paris", *flags)[1])
    generated = json.loads(run("plan", "the capital of france is", *flags)[1])
    # The last token of an answer is predicted, not read.
    assert generated["longest"] - with_answer["longest"] == DEFAULT_NEW_TOKENS - 1
    assert generated["memory_whole"] > with_answer["memory_whole"]
    assert with_answer["way"] == "whole" and with_answer["seconds"] > 0
    flags = ["-m", str(folder), "--methods", "context-cite", "--json"]
    # The two sentences are its sources; the runs that measure the time may read the last only.
    by_source = json.loads(run("plan", "paris is in france. " + "the river in paris is long and " * 9, *flags)[1])
    assert by_source["seconds"] > 0
