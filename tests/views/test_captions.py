"""Captions of methods, options and predictions."""

import json

import pytest
from helpers.explanations import review
from helpers.tiny_models import text_model

import clearhead
from clearhead import serialization
from clearhead.views import captions, notes


@pytest.mark.parametrize(
    ("label", "is_named"),
    [("cat", False), ("cat rather than cattle", False), ("cattle", True), ("cattle rather than cat", True)],
)
def test_another_class_than_the_predicted_one_is_named(label, is_named):
    explanation = review(label=label, diagnostics={"predicted": "cat", "predicted_probability": 0.9})
    assert ("the model predicts cat, 90.0 %" in notes.format_diagnostics(explanation)) is is_named


@pytest.mark.parametrize(
    ("changed_options", "caption"),
    [({}, "lime"), ({"samples": 50}, "lime (samples=50)"), (None, "lime (samples=50, seed=0)")],
    ids=["defaults", "changed", "unknown"],
)
def test_a_caption_shows_the_options_that_differ_from_the_defaults(changed_options, caption):
    explanation = review(method="lime", options={"samples": 50, "seed": 0}, changed_options=changed_options)
    assert captions.format_method(explanation) == caption


@pytest.mark.parametrize(
    ("options", "caption"), [({"hidden": "output"}, "att-cat"), ({"hidden": "input"}, "att-cat (hidden=input)")]
)
def test_a_saved_explanation_keeps_its_caption(tmp_path, options, caption):
    explanation = clearhead.explain(text_model(), "a film", "att-cat", **options)
    assert captions.format_method(explanation) == caption
    for name in ("explanation.json", "explanation.safetensors"):
        assert captions.format_method(clearhead.read(explanation.save(tmp_path / name))) == caption


def test_a_file_of_an_earlier_version_shows_all_options(tmp_path):
    file = clearhead.explain(text_model(), "a film", "att-cat").save(tmp_path / "explanation.json")
    content = json.loads(file.read_text("utf-8"))
    del content["explanation"]["changed_options"]
    content["sha256"] = serialization.json_checksum(content["explanation"])
    file.write_text(json.dumps(content), "utf-8")
    assert captions.format_method(clearhead.read(file)) == "att-cat (hidden=output, backward=gradient, heads=False)"
