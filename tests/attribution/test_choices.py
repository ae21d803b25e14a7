"""Methods chosen for single models, and where they are found again."""

import json

import pytest
import torch
from helpers.tiny_models import text_model

import clearhead
from clearhead.attribution import choices
from clearhead.attribution.choices import Choice, choices_path, find_choice, forget_choice, save_choice
from clearhead.attribution.method import default_method
from clearhead.attribution.names import DEFAULT_METHOD, ONE_TRACE_METHODS
from clearhead.errors import BadFile, BadOption
from clearhead.model.checksum import count_weights, weights_checksum

SENTENCE = "a joyless film is not good"


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_CONFIG", str(tmp_path / "settings"))


@pytest.fixture
def model():
    return text_model()


def make_choice(model, method="att-cat"):
    return Choice(
        method=method,
        model=model.name,
        checksum=weights_checksum(model),
        weights=count_weights(model),
        date="2026-01-31",
        examples=100,
        metrics=("comprehensiveness", "sufficiency"),
        data="reviews.txt",
        summary="Use att-cat.",
    )


def test_without_choices_the_library_decides_and_no_weight_is_read(model, monkeypatch):
    monkeypatch.setattr(choices, "weights_checksum", pytest.fail)
    assert default_method(model) == DEFAULT_METHOD
    assert clearhead.choices() == {}


def test_a_choice_for_a_model_of_another_size_costs_no_checksum(model, monkeypatch):
    save_choice(Choice(**{**vars(make_choice(model)), "weights": 7, "checksum": "0" * 64}))
    monkeypatch.setattr(choices, "weights_checksum", pytest.fail)
    assert find_choice(model) is None


def test_explain_and_compare_use_and_tell_the_choice(model):
    save_choice(make_choice(model))
    explanation = clearhead.explain(model, SENTENCE)
    assert explanation.method == "att-cat"
    assert explanation.diagnostics["chosen"] == "chosen for this model by clearhead choose on 2026-01-31"
    assert "chosen for this model" in repr(explanation._repr_html_())
    assert list(clearhead.compare(model, SENTENCE)) == ["att-cat"]
    assert clearhead.explain(model, SENTENCE, precision="float32").method == "att-cat"


def test_a_method_that_the_user_names_is_not_called_chosen(model):
    save_choice(make_choice(model))
    assert "chosen" not in clearhead.explain(model, SENTENCE, "att-cat").diagnostics
    explanation = clearhead.explain(model, SENTENCE, "default")
    assert explanation.method == DEFAULT_METHOD
    assert "chosen" not in explanation.diagnostics
    assert list(clearhead.compare(model, SENTENCE, ["default", "gae"])) == [DEFAULT_METHOD, "gae"]


def test_a_model_that_was_trained_further_is_another_model(model):
    save_choice(make_choice(model))
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    assert default_method(model) == DEFAULT_METHOD


def test_two_states_of_a_model_have_choices_of_their_own(model):
    save_choice(make_choice(model))
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    save_choice(make_choice(model, "gae"))
    assert list(clearhead.choices()) == [model.name, f"{model.name} ({weights_checksum(model)[:12]})"]
    assert default_method(model) == "gae"
    assert len(forget_choice(model.name)) == 2


def test_choices_are_forgotten_by_name_or_checksum(model):
    save_choice(make_choice(model))
    with pytest.raises(BadOption, match=f"No method was chosen for 'other'. Choices: {model.name}"):
        forget_choice("other")
    assert [choice.method for choice in forget_choice(model.name)] == ["att-cat"]
    assert default_method(model) == DEFAULT_METHOD
    save_choice(make_choice(model))
    forget_choice(weights_checksum(model)[:12])
    assert clearhead.choices() == {}


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99, "choices": {}}', '{"format": 1, "choices": {"a": {}}}'])
def test_a_damaged_file_is_named(model, content):
    choices_path().parent.mkdir(parents=True)
    choices_path().write_text(content)
    with pytest.raises(BadFile, match=r"choices\.json' is damaged: remove it"):
        clearhead.explain(model, SENTENCE)


def test_the_file_is_small_and_readable(model):
    path = save_choice(make_choice(model))
    assert json.loads(path.read_text())["choices"][weights_checksum(model)]["method"] == "att-cat"
    assert path.stat().st_size < 1000


def test_one_trace_is_enough_for_every_candidate():
    for name in ONE_TRACE_METHODS:
        assert clearhead.methods()[name].needs
    assert ONE_TRACE_METHODS[0] == DEFAULT_METHOD
