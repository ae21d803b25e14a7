"""The HTTP API explains similarities of two-tower models as the library does."""

import re
from dataclasses import replace

import pytest
from helpers.api import HOME, JSON, TestClient, ask
from helpers.pictures import encode_base64, make_photo, photo
from helpers.two_towers import TEXTS, sentence_model, tower_model

import clearhead
from clearhead.web.app import build_app
from clearhead.web.job_queue import Interrupted
from clearhead.web.limits import LIMITS
from clearhead.web.service import ExplainService
from clearhead.web.similarity_schemas import SimilarityRequest
from clearhead.web.similarity_service import SimilarityService

PICTURE = encode_base64(make_photo())


@pytest.fixture(scope="module")
def towers():
    return {"clip": replace(tower_model(), name="clip"), "encoder": replace(sentence_model(), name="encoder")}


@pytest.fixture(scope="module")
def client(models, towers):
    with TestClient(build_app({**models, **towers}), base_url=HOME) as test_client:
        yield test_client


def ask_clip(client, path="similarity", **body):
    return ask(client, path, **{"image": PICTURE, "texts": list(TEXTS), **body})


def read_relevance(body):
    return [token["relevance"] for token in body["tokens"]]


def read_error(response):
    assert response.status_code == 422
    return response.json()["error"]


def test_the_most_similar_text_is_explained_as_by_the_library(client, towers):
    body = ask_clip(client).json()
    expected = clearhead.explain(towers["clip"], (photo(), list(TEXTS)), check=False)
    picture, text = body["inputs"]
    assert body["label"] == expected.label == text["text"]
    assert read_relevance(picture) == pytest.approx(expected.image.relevance.tolist())
    assert read_relevance(text) == pytest.approx(expected.text.relevance.tolist())
    assert [entry["score"] for entry in body["texts"]] == pytest.approx(list(expected.diagnostics["scores"].values()))
    assert sum(entry["probability"] for entry in body["texts"]) == pytest.approx(1)
    assert picture["size"] == [60, 40]
    for name in ("measure", "caption", "signed"):
        assert picture["scale"][name] == text["scale"][name]


def test_a_named_text_a_contrast_and_a_check(client):
    named = ask_clip(client, target=2, check=True).json()
    assert named["label"] == TEXTS[2]
    assert all(entry["trust"]["meaning"] for entry in named["inputs"])
    contrast = ask_clip(client, target=TEXTS[1], versus=0).json()
    assert contrast["label"] == f"{TEXTS[1]} rather than {TEXTS[0]}"
    assert len(contrast["inputs"]) == 3


def test_two_texts_are_compared(client, towers):
    body = ask(client, "similarity", text="a fine film", texts=["not bad"], method="cp-lrp").json()
    expected = clearhead.explain(towers["encoder"], ("a fine film", "not bad"), "cp-lrp", check=False)
    assert body["score"] == pytest.approx(expected.score)
    assert [entry["text"] for entry in body["inputs"]] == ["a fine film", "not bad"]
    assert body["texts"] == [{"text": "not bad", "score": pytest.approx(expected.score), "probability": None}]


def test_the_catalogue_tells_what_compares(client):
    listed = {model["name"]: model for model in client.get("/api/models").json()}
    assert {name: model["compares"] for name, model in listed.items()} == {
        "text": False, "image": False, "clip": True, "encoder": True,
    }  # fmt: skip
    assert (listed["clip"]["kind"], listed["encoder"]["kind"]) == ("image", "text")
    assert listed["clip"]["labels"] == []


def test_a_saved_page_has_all_texts_and_an_image_one(client):
    page = ask_clip(client, "similarity/file/html", target=1)
    assert page.text.count("<details name=") == len(TEXTS)
    assert page.text.index(TEXTS[1]) < page.text.index(TEXTS[0])
    assert ask_clip(client, "similarity/file/png").content.startswith(b"\x89PNG")
    assert ask_clip(client, "similarity/file/json", target=1).json()["label"] == TEXTS[1]
    contrast = ask_clip(client, "similarity/file/html", target=1, versus=0)
    assert "<details name=" not in contrast.text and "rather than" in contrast.text


def test_classifiers_and_two_tower_models_are_not_mixed_up(client):
    assert "/api/similarity" in read_error(ask(client, model="clip", text="good"))
    assert "does not compare a picture with texts" in read_error(ask_clip(client, model="image"))
    assert "does not compare two texts" in read_error(ask(client, "similarity", text="a", texts=["b"], model="clip"))
    # Without a name, the classifiers answer as if there were no other models.
    assert ask(client, text="a fine film").json()["model"] == "text"
    assert ask(client, image=PICTURE).json()["model"] == "image"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": []}, "texts"),
        ({"texts": ["a film"] * (LIMITS.max_compared_texts + 1)}, "texts"),
        ({"texts": ["a" * 60_000, "b" * 60_000]}, "together"),
        ({"texts": ["a film", " "]}, "empty"),
        ({"text": "a film"}, "^Give exactly one"),
        ({"image": "AAAA"}, "decoded"),
        ({"texts": ["film " * 60]}, "too long|tokens"),
        ({"target": 3}, "3"),
        ({"method": "occlusion", "options": {"batch": 10_000}}, "batch"),
        ({"method": "lime", "options": {"samples": 10_000}}, "samples"),
        ({"method": "decoded-gradcam"}, "decoded-gradcam"),
        ({"model": "nothing"}, "nothing"),
    ],
)
def test_what_cannot_be_explained_is_refused(client, changes, message):
    assert re.search(message, read_error(ask_clip(client, **changes)))


def test_a_long_text_may_be_cut(client):
    body = ask_clip(client, texts=["film " * 60], overflow="truncate").json()
    assert body["inputs"][1]["coverage"]


def test_characters_that_utf8_lacks_are_no_error(client):
    body = '{"text": "a film", "texts": ["\\ud800 bad"]}'
    for path in ("similarity", "similarity/file/html", "similarity/file/json"):
        response = client.post(f"/api/{path}", content=body, headers=JSON)
        assert response.status_code in (200, 422), path


def test_work_stops_when_no_client_waits(towers):
    def stop():
        raise Interrupted

    service = SimilarityService(ExplainService(towers, LIMITS, stop))
    for source in ({"image": PICTURE}, {"text": "a fine film"}):
        with pytest.raises(Interrupted):
            service.explain([SimilarityRequest(**source, texts=list(TEXTS))])


def test_answers_are_kept_and_the_oldest_dropped(towers):
    service = SimilarityService(ExplainService(towers, replace(LIMITS, cached_inputs=2)))
    requests = [SimilarityRequest(text="a film", texts=[text]) for text in TEXTS]
    first = service.explain(requests[:1])
    assert service.explain(requests[:1]) == first
    service.explain(requests)
    assert len(service.answers) == 2


def test_openapi_describes_the_routes(client):
    schema = client.get("/openapi.json").json()
    assert {"/api/similarity", "/api/similarity/file/html"} <= schema["paths"].keys()
    texts = schema["components"]["schemas"]["SimilarityRequest"]["properties"]["texts"]
    assert texts["maxItems"] == LIMITS.max_compared_texts
