"""The route that compares two models on one input."""

from dataclasses import replace

import pytest
from helpers.tiny_models import text_model

pytest.importorskip("fastapi", reason="the page needs clearhead[web]")

TEXT = "a good film never bad"


@pytest.fixture(scope="module")
def models():
    stars = {"id2label": {0: "one", 1: "two", 2: "three"}, "label2id": {"one": 0, "two": 1, "three": 2}}
    made = {"old": text_model(), "new": text_model(seed=2), "stars": text_model(**stars)}
    return {name: replace(model, name=name) for name, model in made.items()}


def compare(client, *names, **changes):
    first, second = ({"text": TEXT, "model": name, "method": "cat"} for name in names)
    return client.post("/api/difference", json={"first": first, "second": {**second, **changes}})


def test_two_models_are_compared(client):
    response = compare(client, "old", "new")
    assert response.status_code == 200, response.text
    body = response.json()
    assert [TEXT[start:end] for _, start, end in body["spans"]] == TEXT.split()
    assert body["change"] == pytest.approx([b - a for a, b in zip(body["first"], body["second"], strict=True)])
    assert body["agreement"]["shift"] == pytest.approx(sum(map(abs, body["change"])) / 2)
    assert body["agreement"]["shift"] > 0
    assert [entry["model"] for entry in body["predictions"]] == ["old", "new"]
    assert "of the relevance moved" in body["sentence"]
    assert (body["unit"], body["grid"]) == ("word", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "stars"}, "different questions: the classes of old are negative, neutral, positive"),
        ({"method": "rollout"}, "same method"),
        ({"text": "another film"}, "on one input"),
        ({"model": "missing"}, "missing"),
    ],
)
def test_what_cannot_be_compared_is_refused(client, changes, message):
    response = compare(client, "old", "new", **changes)
    assert response.status_code == 422
    assert message in response.json()["error"]
