"""The API with models that have an output for every word, box or pixel."""

import base64
from dataclasses import replace

import pytest
from helpers.api import HOME, TestClient, ask
from helpers.pictures import make_photo
from helpers.tiny_heads import filling_bert, labelling_bert
from helpers.tiny_models import image_processor, text_model
from helpers.tiny_pictures import picture_network

import clearhead
from clearhead.web.app import build_app

TEXT = "a joyless film is not very good"


@pytest.fixture(scope="module")
def models():
    loaded = {
        "words": labelling_bert(),
        "masks": filling_bert(),
        "boxes": clearhead.load(picture_network("yolos"), image_processor()),
        "pixels": clearhead.load(picture_network("segformer"), image_processor()),
        "text": text_model(),
    }
    return {name: replace(model, name=name) for name, model in loaded.items()}


@pytest.fixture(scope="module")
def client(models):
    with TestClient(build_app(models), base_url=HOME, raise_server_exceptions=False) as test_client:
        yield test_client


def read_error(response):
    assert response.status_code == 422, response.text
    return response.json()["error"]


@pytest.mark.parametrize(("focus", "library"), [("film", "film"), ("#4", 4), ("10:14", (10, 14)), (" ", None)])
def test_a_word_is_explained_as_by_the_library(client, models, focus, library):
    body = ask(client, model="words", text=TEXT, focus=focus, method="gradient-x-input", target=1).json()
    expected = clearhead.explain(models["words"], TEXT, "gradient-x-input", 1, focus=library, check=False)
    assert body["label"] == expected.label
    assert [token["relevance"] for token in body["tokens"]] == pytest.approx(expected.relevance.tolist(), rel=1e-5)


def test_answers_about_two_words_are_kept_apart(client):
    labels = [ask(client, model="words", text=TEXT, focus=word, target=1).json()["label"] for word in ("film", "good")]
    assert labels == ["B-PER at “film”", "B-PER at “good”"]


def test_a_mask_has_no_list_of_all_words(client):
    body = ask(client, model="masks", text="the [MASK] is not [MASK]", focus="#1", check=True).json()
    assert body["label"].endswith("at mask 1") or "[MASK]" in body["label"]
    assert body["classes"] == []
    catalogue = {entry["name"]: entry for entry in client.get("/api/models").json()}
    assert catalogue["masks"]["labels"] == []
    assert "first mask" in catalogue["masks"]["focus"] and catalogue["text"]["focus"] == ""


@pytest.mark.parametrize(("model", "focus"), [("boxes", "#2"), ("pixels", "0,0,16,16")])
def test_a_box_and_pixels_are_explained_and_tested(client, model, focus):
    image = base64.b64encode(make_photo()).decode()
    body = ask(client, model=model, image=image, focus=focus, method="gradient-x-input", check=True).json()
    assert body["grid"] and body["diagnostics"]["focus"]
    hidden = ask(client, "hide", model=model, image=image, focus=focus, hidden=[[1, 2]])
    assert len(hidden.json()["values"]) == 1


def test_hiding_and_curves_are_about_the_word(client):
    fields = {"model": "words", "text": TEXT, "focus": "film", "target": 1}
    other = {**fields, "focus": "good"}
    values = [ask(client, "hide", **each, hidden=[[2]]).json()["values"][0] for each in (fields, other)]
    assert values[0] != values[1]
    assert ask(client, "curve", **fields).status_code == 200


def test_what_cannot_be_chosen_is_refused(client):
    assert "does not occur" in read_error(ask(client, model="words", text=TEXT, focus="river"))
    assert "tokens 0 …" in read_error(ask(client, model="words", text=TEXT, focus="#99"))
    assert "leave out focus" in read_error(ask(client, model="text", text=TEXT, focus="film"))
    image = base64.b64encode(make_photo()).decode()
    assert read_error(ask(client, model="pixels", image=image, focus="river"))
