"""The commands on planted truth, with the embedded sentiment model: noise passes, a planted word and pruning fail."""

import json
from functools import partial

import pytest
from helpers.commands import assert_one_line
from helpers.planted_words import (
    TOKEN,
    plant_word,
    prune_heads,
    round_to_bfloat16,
    round_to_int8,
    save_model,
    save_task,
)
from helpers.precision import require_half_precision

from clearhead.model.weight_noise import with_weight_noise

ORIGINAL = "clearhead/sst2-minilm"
ROUNDED = {"int8": round_to_int8, "bfloat16": round_to_bfloat16, "noise": partial(with_weight_noise, seed=77)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def planted(folder):
    planted = plant_word()
    save_model(planted.model, folder / "planted")
    save_model(prune_heads(planted.original), folder / "pruned")
    for name, change in ROUNDED.items():
        save_model(change(planted.original), folder / name)
    return planted


@pytest.fixture(scope="module")
def task(planted, folder):
    return save_task(planted.task, folder / "dev.tsv")


@pytest.fixture
def baseline(run, task, folder):
    """The snapshot of the original, which the first test that needs it makes."""
    path = folder / "baseline.json"
    if not path.exists():
        code, _, errors = run("snapshot", "-m", ORIGINAL, "--task", task, "--out", str(path))
        assert code == 0, errors
    return str(path)


@pytest.mark.parametrize("name", ROUNDED)
def test_noise_passes(run, folder, baseline, task, name):
    code, output, errors = run("check", baseline, "--model", str(folder / name), "--task", task)
    assert code == 0, errors
    assert output.startswith("passed: ")
    later = str(folder / f"{name}.json")
    run("snapshot", "-m", str(folder / name), "--task", task, "--out", later, "--noise", "0")
    code, output, errors = run("diff", baseline, later, "--json")
    assert code == 0, errors
    assert json.loads(output)["verdict"]["outcome"] in ("same reasons", "moved within noise")


def test_half_precision_passes(run, baseline):
    require_half_precision("bfloat16")
    code, _, errors = run("check", baseline, "--precision", "bfloat16")
    assert code == 0, errors


def test_half_of_the_heads_pruned_fails(run, folder, baseline):
    code, output, errors = run("check", baseline, "--model", str(folder / "pruned"))
    assert code == 1, errors
    assert "Moved: " in output


def test_a_planted_word_fails_and_is_named_first(run, folder, baseline, task):
    model = str(folder / "planted")
    code, output, errors = run("check", baseline, "--model", model, "--markdown", str(folder / "comment.md"))
    assert code == 1, errors
    assert f"most by '{TOKEN}' +" in output
    code, output, errors = run("diff", baseline, model, "--task", task, "--json")
    assert code == 0, errors
    record = json.loads(output)
    assert record["verdict"]["outcome"] == "moved"
    assert record["words"][0]["word"] == TOKEN


def test_the_audit_names_the_planted_word(run, folder, planted, task):
    code, output, errors = run("audit", str(folder / "planted"), task, "--count", "5", "--json")
    assert code == 0, errors
    word = json.loads(output)["words"][0]
    assert (word["word"], word["label"], word["is_shortcut"]) == (TOKEN, "positive", True)


def test_models_that_count_as_the_same_are_noise(run, folder, planted, task):
    saved = str(folder / "seeds.json")
    names = [flag for name in ("int8", "noise") for flag in ("--noise-model", str(folder / name))]
    code, _, errors = run("snapshot", "-m", ORIGINAL, "--task", task, "--limit", "16", *names, "--out", saved)
    assert code == 0, errors
    noise = json.loads((folder / "seeds.json").read_text())["snapshot"]["noise"]
    assert [draw["name"] for draw in noise["draws"]] == [str(folder / name) for name in ("int8", "noise")]
    assert_one_line(*run("snapshot", "-m", ORIGINAL, "--task", task, *names[:2], "--out", saved), "at least 2 models")
