"""Explanations of answers: their way to disk and back."""

import json

import numpy as np
import pytest
from helpers.answers import contrasted_answer, explained_answer
from helpers.language_models import make_decoder, make_tokenizer

import clearhead
from clearhead.errors import BadFile
from clearhead.model.target import AnswerTarget


@pytest.fixture(scope="module")
def model():
    return clearhead.load(make_decoder("gpt2"), make_tokenizer())


def assert_equal(read, original):
    assert type(read) is type(original)
    for name in ("tokens", "text", "offsets", "label", "method", "probability", "target", "diagnostics", "options"):
        assert getattr(read, name) == getattr(original, name), name
    for name in ("answer", "prompt_length", "steps", "explained"):
        assert getattr(read, name) == getattr(original, name), name
    for name in ("relevance", "special", "matrix"):
        np.testing.assert_array_equal(getattr(read, name), getattr(original, name))


@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize(
    "explanation", [explained_answer(), contrasted_answer(), explained_answer(with_matrix=False)], ids=str
)
def test_an_answer_is_saved_and_read_back(tmp_path, ending, explanation):
    read = clearhead.read(explanation.save(tmp_path / f"answer.{ending}"))
    assert_equal(read, explanation)
    assert isinstance(read.target, AnswerTarget)
    assert read.shares == explanation.shares


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_an_answer_of_a_model_is_saved_and_read_back(tmp_path, model, ending):
    prompt = "the capital of france is"
    explanation = clearhead.explain(
        model, prompt, "gradient-x-input", answer="paris", versus="london", focus=0, matrix=True
    )
    read = clearhead.read(explanation.save(tmp_path / f"answer.{ending}"))
    assert_equal(read, explanation)
    np.testing.assert_array_equal(read.span(0).relevance, explanation.span(0).relevance)


def test_a_part_of_an_answer_has_no_diagnostics_of_the_whole(model):
    explanation = clearhead.explain(model, "the capital of france is", "attn-lrp", answer="paris .", matrix=True)
    assert {"score", "completeness_gap"} <= set(explanation.diagnostics)
    assert not {"score", "completeness_gap"} & set(explanation.span(0).diagnostics)
    assert explanation.span(0).diagnostics["precision"] == explanation.diagnostics["precision"]


def test_a_changed_step_is_noticed(tmp_path):
    path = explained_answer().save(tmp_path / "answer.json")
    body = json.loads(path.read_text())
    body["explanation"]["steps"][0]["probability"] = 1.0
    path.write_text(json.dumps(body))
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)


def test_answers_are_public_names():
    assert clearhead.AnswerExplanation is type(explained_answer())
    assert clearhead.Step is type(explained_answer().steps[0])
