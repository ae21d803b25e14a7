"""Accuracy of the model: each labelled example of the task counts once, whatever the metrics make of the examples."""

import json
from dataclasses import replace

import pytest
from helpers.runs import SENTENCES

import clearhead
from clearhead.bench.accuracy import measure_accuracy
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder, ShardResult
from clearhead.bench.runners.local import local
from clearhead.evaluation.distributions import share_bounds


def test_the_accuracy_is_that_of_the_predictions(plan, finished_run):
    texts = [text for _, text in SENTENCES]
    model = clearhead.load(plan.model)
    predicted = [explanation.target.number for explanation in clearhead.explain(model, texts, check=False)]
    right = sum(number == label for number, (label, _) in zip(predicted, SENTENCES, strict=True))
    low, high = share_bounds(right, len(SENTENCES), 0.95)
    expected = {"right": right, "labelled": len(SENTENCES), "value": right / len(SENTENCES), "low": low, "high": high}
    assert RunFolder(finished_run).summary()["accuracy"] == expected


def test_without_labels_there_is_none(plan, tmp_path):
    task = tmp_path / "texts.csv"
    task.write_text("sentence\na bad film\na good film\n")
    summary = run_plan(replace(plan, task=str(task), metrics=("aopc",)), tmp_path / "run", local)
    assert summary["accuracy"] is None


@pytest.fixture
def write_shard(tmp_path):
    """Writes a shard of explanations by hand."""
    for name in ("shards", "times"):
        (tmp_path / name).mkdir()
    run = RunFolder(tmp_path)

    def write(number, *outcomes):
        rows = [{"example": f"{number}-{row}", "source": json.dumps(source)} for row, source in enumerate(outcomes)]
        run.write_shard(ShardResult(number, rows * 2, [], {}, {}))
        return run

    return write


RIGHT = {"gold": "positive", "wrong": False}
WRONG = {"gold": "positive", "wrong": True}
NO_CLASS = {"gold": "mixed", "gold_is_class": False}


def manifest(*metrics):
    return {"examples": 3, "plan": {"metrics": metrics, "shard": 2}}


def test_labels_that_the_model_does_not_have_are_not_counted(write_shard):
    run = write_shard(0, RIGHT, NO_CLASS)
    assert measure_accuracy(run, manifest("aopc"))["labelled"] == 1
    write_shard(1, WRONG)
    accuracy = measure_accuracy(run, manifest("aopc"))
    assert (accuracy["right"], accuracy["labelled"]) == (1, 2)


def test_examples_that_a_metric_makes_are_not_counted(write_shard):
    run = write_shard(0, RIGHT, RIGHT)
    write_shard(2, WRONG, WRONG)
    assert measure_accuracy(run, manifest("hiding", "mosaic"))["value"] == 1
    assert measure_accuracy(run, manifest("mosaic")) is None
