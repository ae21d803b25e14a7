"""choose(): the method proved on a model becomes its default."""

import pytest
from helpers.language_models import make_decoder, make_tokenizer
from helpers.planted_keywords import train

import clearhead
from clearhead.attribution.choices import find_choice
from clearhead.errors import BadFile, BadOption

METHODS = ["gradient-x-input", "att-cat", "raw-attention"]


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_CONFIG", str(tmp_path / "settings"))


@pytest.fixture(scope="module")
def planted():
    return train("bert")


def test_the_choice_beats_chance_and_becomes_the_default(planted):
    announced = []
    result = clearhead.choose(planted.model, planted.inputs, METHODS, limit=80, announce=announced.append)
    assert result.method in METHODS
    (sentence,) = announced
    assert "3 methods and chance on 80 inputs" in sentence
    assert result.sentences[0].startswith(f"Use {result.method}")
    assert {row["n"] for row in result.table.rows} == {80}
    choice = find_choice(planted.model)
    assert (choice.method, choice.examples, choice.data) == (result.method, 80, "inputs")
    assert clearhead.explain(planted.model, planted.inputs[0]).method == result.method


def test_nothing_is_kept_on_request(planted):
    result = clearhead.choose(planted.model, planted.inputs, METHODS, limit=24, save=False)
    assert result.path is None
    assert clearhead.choices() == {}


def test_too_few_inputs_to_show_anything_are_refused_before_the_work(planted):
    with pytest.raises(BadOption, match=r"21 inputs cannot show that one of 3 methods .* give at least 22"):
        clearhead.choose(planted.model, planted.inputs, METHODS, limit=21)
    with pytest.raises(BadOption, match="at least 37"):
        clearhead.choose(planted.model, planted.inputs, limit=24)


def test_where_nothing_beats_chance_nothing_is_chosen(planted):
    result = clearhead.choose(planted.model, planted.inputs, ["random:seed=1", "random:seed=2"], limit=20)
    assert result.method is None
    assert clearhead.choices() == {}


def test_chance_is_no_candidate(planted):
    with pytest.raises(BadOption, match="Chance is measured in any case"):
        clearhead.choose(planted.model, planted.inputs, ["random"], limit=20)
    result = clearhead.choose(planted.model, planted.inputs, ["attn-lrp", "random"], limit=20, save=False)
    assert {row["method"] for row in result.table.rows} == {"attn-lrp", "random:seed=0"}


def test_inputs_come_from_a_file_as_well(planted, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(planted.inputs[:24]))
    assert clearhead.choose(planted.model, file, METHODS, save=False).summary["examples"] == 24
    with pytest.raises(BadFile, match="There is no file"):
        clearhead.choose(planted.model, tmp_path / "none.txt", METHODS)


def test_a_method_is_chosen_for_the_answers_of_a_language_model():
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    prompts = ["the river is grey. the capital is", "the capital of france is"] * 10
    result = clearhead.choose(model, prompts, ["attn-lrp", "gradient-x-input"], save=False)
    assert set(result.table.metrics) == {"log-prob-drop", "log-prob-revealing:steps=5"}
    assert result.summary["measured"] == 20
