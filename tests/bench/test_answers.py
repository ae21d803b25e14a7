"""Benchmarks of language models: from a file of prompts to a report, resumed where they stopped."""

import json
import os
from dataclasses import replace

import pytest
from helpers.language_models import make_decoder, make_tokenizer
from helpers.runs import values

from clearhead.bench.plan import Plan
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local
from clearhead.cli import main

ROWS = [
    ("the capital of france is", "paris", "london", "france"),
    ("the capital of england is", "london", "paris", "england"),
    ("the river in paris is", "long", "grey", "paris"),
    ("the river in london is", "grey", "long", "london"),
    ("the capital of england and the river", "is grey", "is long", "capital"),
    ("the capital of france and", "the river", "london", "france"),
]
METRICS = (
    "log-prob-drop",
    "lds:ablations=8",
    "aopc-per-step:steps=2",
    "evidence-rank",
    "recovery",
    "soft-sufficiency",
    "first-token-share",
)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language-model")
    make_decoder("llama").float().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    names = ("prompt", "answer", "foil", "evidence")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS))
    return str(path)


@pytest.fixture(scope="module")
def answer_plan(language_model, prompts):
    methods = ("attn-lrp", "raw-attention", "random:seed=1")
    return Plan(prompts, methods, METRICS, model=language_model, shard=2)


@pytest.fixture(scope="module")
def finished(answer_plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "finished"
    run_plan(answer_plan, folder, local)
    return folder


def test_every_metric_has_a_value_for_every_method(finished):
    summary = RunFolder(finished).summary()
    assert not summary["refused"]
    names = {row["name"] for row in summary["rows"]}
    assert names >= {"drop-1", "drop-5", "lds:ablations=8", "evidence-mrr", "evidence-mass", "recovery"}
    assert len(summary["rows"]) == 3 * len(names)
    assert all(row["low"] <= row["value"] <= row["high"] for row in summary["rows"])


def test_a_report_is_written(finished, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["report", str(finished), "--out", str(tmp_path / "report.md")])
    assert not left.value.code
    report = (tmp_path / "report.md").read_text()
    assert "evidence-mrr" in report and "attn-lrp" in report
    # Described, but neither judged nor counted.
    verdict, _, values = report.partition("## Values")
    assert "first-token-share" in values and "first-token-share" not in verdict


def test_a_run_of_descriptions_alone_has_a_report(answer_plan, tmp_path):
    run_plan(replace(answer_plan, metrics=("first-token-share",)), tmp_path / "run", local)
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")])
    assert not left.value.code


class Killed(BaseException):
    """Stands for the process dying: nothing of ours may catch it."""


@pytest.mark.parametrize("moment", [3, 6])
def test_killed_it_goes_on_and_ends_with_the_same_values(answer_plan, finished, tmp_path, monkeypatch, moment):
    rename, calls = os.replace, iter(range(1, 1000))

    def die(*arguments):
        if next(calls) == moment:
            raise Killed
        return rename(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed):
            run_plan(answer_plan, tmp_path / "run", local)
    run_plan(answer_plan, tmp_path / "run", local)
    assert values(tmp_path / "run") == values(finished)


def test_the_command_names_metrics_of_answers_for_a_language_model(run, language_model, prompts, tmp_path):
    arguments = ["--task", prompts, "--model", language_model, "--methods", "attn-lrp", "--out", str(tmp_path / "run")]
    code, _, errors = run(*arguments, "--metrics", "aopc")
    assert code != 0
    assert "log-prob-drop" in errors
    code, output, _ = run(*arguments[:-1], str(tmp_path / "second"), "--metrics", "recovery", "--limit", "3")
    assert code == 0
    assert "recovery" in output
