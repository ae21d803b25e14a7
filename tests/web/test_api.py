"""The HTTP API answers as the library does."""

import asyncio
import base64
import io
import json
from itertools import chain

import numpy as np
import pytest
import torch
from helpers.api import HOME, JSON, TEXT, TestClient, ask
from helpers.page_server import save_photo_run, save_run
from helpers.pictures import encode_base64, make_photo
from helpers.saved_models import save_image_model, save_text_model
from PIL import Image

import clearhead
from clearhead.attribution import batch as loop
from clearhead.engine import memory
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.web.app import build_app
from clearhead.web.limits import Limits


@pytest.mark.parametrize("method", ["trans-att", "att-cat", "occlusion", "decoded-gradcam"])
def test_an_answer_is_what_the_library_says(client, models, method):
    answer = ask(client, text=TEXT, model="text", method=method, target="positive")
    if method == "decoded-gradcam":
        assert answer.status_code == 422
        assert "masked-LM head" in answer.json()["error"]
        return
    expected = clearhead.explain(models["text"], TEXT, method, target="positive")
    body = answer.json()
    assert [token["relevance"] for token in body["tokens"]] == pytest.approx(expected.relevance.tolist())
    assert body["label"] == "positive"
    assert body["classes"][2] == pytest.approx(expected.probability)
    assert (body["layers"] is None) == (expected.layers is None)


def test_pair_picture_contrast_and_options(client, models):
    pair = ask(client, pair=["a film", "is good"]).json()
    assert pair["text"] == ["a film", "is good"]
    assert {word["segment"] for word in pair["words"]} == {0, 1}
    picture = ask(client, image=encode_base64(make_photo()), method="att-cat").json()
    assert (picture["grid"], picture["size"], picture["model"]) == ([4, 4], [60, 40], "image")
    contrast = ask(client, text=TEXT, target=0, versus="positive").json()
    assert contrast["label"] == "negative rather than positive"
    sampled = ask(client, text=TEXT, method="lime", options={"samples": 7}).json()
    assert sampled["options"]["samples"] == 7


def test_another_method_needs_no_new_forward_pass(models):
    with TestClient(build_app(models), base_url=HOME) as client:
        passes = []
        hook = models["text"].network.register_forward_hook(lambda *_: passes.append(1))
        try:
            for method in ("trans-att", "att-cat", "rollout", "lrp"):
                assert ask(client, text="the film is dull", method=method).status_code == 200
            assert ask(client, text="the film is dull", method="cat", target=2, versus=0).status_code == 200
        finally:
            hook.remove()
    assert len(passes) == 1


@pytest.fixture
def captures(monkeypatch):
    """The functions by which the attribution loop has traced an input, in order."""
    names = []

    def record(name):
        original = getattr(loop, name)

        def recorded(*args, **options):
            names.append(name)
            return original(*args, **options)

        monkeypatch.setattr(loop, name, recorded)

    record("capture")
    record("capture_blockwise")
    return names


def test_an_input_that_does_not_fit_goes_block_by_block(models, monkeypatch, captures):
    source = {"text": "the film is dull"}
    with TestClient(build_app(models), base_url=HOME) as client:
        expected = ask(client, **source, target=1).json()
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    captures.clear()
    with TestClient(build_app(models), base_url=HOME) as client:
        body = ask(client, **source, target=1).json()
        assert ask(client, **source, target=0, method="trans-att:normalise_rows=true").status_code == 200
        assert ask(client, "hide", **source, target=1, hidden=[[], [2]]).status_code == 200
        assert captures == ["capture_blockwise"], "one forward pass for all of them"
        assert ask(client, **source, target=1, method="att-cat").status_code == 200
        assert captures[1:] == ["capture"], "other methods need the whole trace, as in explain"
        assert ask(client, **source, target=0).status_code == 200
        assert len(captures) == 2, "the whole trace serves every method"
    relevance = [token["relevance"] for token in body["tokens"]]
    assert relevance == pytest.approx([token["relevance"] for token in expected["tokens"]], rel=1e-5, abs=1e-8)
    assert body["classes"] == pytest.approx(expected["classes"])


def test_an_image_that_does_not_fit_is_tried_as_a_whole(models, monkeypatch, captures):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    with TestClient(build_app(models), base_url=HOME) as client:
        assert ask(client, image=encode_base64(make_photo())).status_code == 200
    assert captures == ["capture"]


def test_memory_that_runs_out_frees_what_is_remembered(models, monkeypatch, captures):
    def fail(trace):
        raise torch.OutOfMemoryError

    with TestClient(build_app(models), base_url=HOME) as client:
        assert ask(client, text="a good film", method="rollout").status_code == 200
        monkeypatch.setattr(Trace, "weighted_relevances", property(fail))
        assert ask(client, text="a good film", method="trans-att").status_code == 200
        assert captures == ["capture", "capture_blockwise"]
        assert ask(client, text="a good film", method="att-cat").status_code == 200
        monkeypatch.setattr(Trace, "attentions", property(fail))
        refusal = ask(client, text="a good film", method="raw-attention")
        assert refusal.status_code == 422 and "does not fit into the memory" in refusal.json()["error"]


def test_what_is_remembered_is_bounded(models):
    limits = Limits(cached_inputs=3, cached_answers=4, cached_traces=2, cached_token_pairs=10_000)
    app = build_app(models, limits=limits)
    cache = app.state.service.cache
    with TestClient(app, base_url=HOME) as client:
        for seed in range(8):
            assert ask(client, text="a film", method="random", options={"seed": seed}).status_code == 200
            assert ask(client, text="a film", target=seed % 3, versus=(seed + 1) % 3).status_code == 200
        (cached,) = cache.inputs.values()
        assert len(cached.answers) <= 5
        assert len(cached.traces) <= 3
        for text in ("good", "bad", "dull", "film " * 60):
            ask(client, text=text)
    assert len(cache.inputs) == 3
    assert [bool(cached.traces) for cached in cache.inputs.values()] == [False, True, True]


def test_a_slow_body_is_given_up(models):
    async def scenario():
        sent = []
        app = build_app(models, limits=Limits(body_timeout=0.1))

        async def receive():
            await asyncio.sleep(0.06)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/explain", "query_string": b"", "headers": headers}
        await app({**scope, "http_version": "1.1", "scheme": "http", "raw_path": b""}, receive, send)
        return sent[0]["status"]

    assert asyncio.run(scenario()) == 408


def test_the_model_is_left_without_hooks(client, models):
    ask(client, text=TEXT)
    assert not models["text"].network._forward_pre_hooks


def test_hiding_asks_the_perturbation_engine(client, models):

    from clearhead.perturbation.run import perturbed_logits

    response = ask(client, "hide", text=TEXT, target="negative", hidden=[[], [1], [2, 3]]).json()
    masks = torch.ones(3, 7, dtype=torch.bool)
    masks[1, 0] = masks[2, 1] = masks[2, 2] = False
    (logits,) = perturbed_logits(models["text"], TEXT, [masks])
    assert response["values"] == pytest.approx(logits.softmax(-1)[:, 0].tolist())
    assert response["classes"][1] == pytest.approx(logits.softmax(-1)[1].tolist())


def test_a_curve_goes_from_everything_to_nothing_beside_random(client):
    curve = ask(client, "curve", text=TEXT, method="att-cat").json()
    explanation = ask(client, text=TEXT, method="att-cat").json()
    values = {word["word"]: word["relevance"] for word in explanation["words"]}
    relevance = [token["relevance"] for token in explanation["tokens"]]
    sums = [sum(relevance[index] for index in indices) for indices in curve["order"]]
    assert sums == pytest.approx(sorted(values.values(), reverse=True))
    assert curve["counts"] == list(range(7))
    assert curve["values"][0] == pytest.approx(explanation["probability"])
    assert curve["values"][-1] == pytest.approx(curve["random"][-1])
    for low, middle, high in zip(curve["low"], curve["random"], curve["high"], strict=True):
        assert low - 1e-9 <= middle <= high + 1e-9
    tokens = ask(client, "curve", text=TEXT, method="att-cat", unit="token").json()
    assert tokens["counts"][-1] == 7
    patches = ask(client, "curve", image=encode_base64(make_photo()), method="rollout").json()
    assert patches["counts"][-1] == 16


@pytest.mark.parametrize(
    ("file_type", "start"), [("html", b"<!doctype html>"), ("png", b"\x89PNG"), ("json", b'{"format"')]
)
@pytest.mark.parametrize("source", [{"text": TEXT}, {"image": encode_base64(make_photo())}], ids=["text", "photo"])
def test_files(client, file_type, start, source):
    answer = ask(client, f"file/{file_type}", **source)
    assert answer.content.startswith(start)
    assert answer.headers["content-disposition"] == f'attachment; filename="clearhead.{file_type}"'


def test_lists_and_description(client):
    assert [model["name"] for model in client.get("/api/models").json()] == ["text", "image"]
    assert "trans-att" in [method["name"] for method in client.get("/api/methods").json()]
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/api/explain", "/api/hide", "/api/curve", "/api/file/html"} <= set(paths)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": "a film", "image": "x"},
        {"text": "a film", "model": "image"},
        {"text": "a film", "model": "../../etc/passwd"},
        {"text": "a film", "method": "explian"},
        {"text": "a film", "target": "no such class"},
        {"text": "a film", "target": 99},
        {"text": "a film", "target": 1, "versus": 1},
        {"text": "a film", "options": {"layer": 1}},
        {"text": "a film", "method": "lime", "options": {"samples": 100000}},
        {"text": "a film", "method": "lime:samples=100000"},
        {"text": "a film", "method": "decoded-gradcam", "options": {"layer": "x"}},
        {"text": "a film", "unknown": 1},
        {"text": "film " * 1000},
        {"text": "\ud800 film"},
        {"image": "not base64!"},
        {"image": encode_base64(b"GIF89a garbage")},
        {"image": "/etc/passwd"},
        {"pair": ["one"]},
    ],
)
def test_a_wrong_question_is_refused_with_a_reason(client, body):
    answer = client.post("/api/explain", content=json.dumps(body), headers=JSON)
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.json()["error"]) > 10


def test_hiding_what_is_not_there_is_refused(client):
    for index in (0, 8, 999):
        assert ask(client, "hide", text=TEXT, hidden=[[index]]).status_code == 422


def test_a_run_can_be_browsed(models, tmp_path):
    from clearhead.web.runs import Runs

    pytest.importorskip("pyarrow", reason="runs are kept in Parquet files")
    run = save_run(tmp_path, save_text_model(tmp_path / "model"))
    with TestClient(build_app(models, runs=Runs([run])), base_url=HOME) as client:
        assert client.get("/api/runs").json() == [
            {
                "name": "my-run",
                "methods": ["att-cat", "rollout"],
                "metrics": ["aopc"],
                "labels": ["negative", "positive"],
                "error": "",
            }
        ]
        asked = {"method": "rollout", "metric": "aopc"}
        highest = client.get("/api/runs/my-run/examples", params=asked).json()
        lowest = client.get("/api/runs/my-run/examples", params={**asked, "lowest": True, "start": 2}).json()
        values = [example["value"] for example in highest["examples"]]
        assert values == sorted(values, reverse=True)
        assert [example["value"] for example in lowest["examples"]] == values[::-1][2:]
        assert {tuple(example["text"]) for example in highest["examples"]} >= {("a heart",), ("bad heart",)}
        report = client.get("/runs/my-run")
        assert "aopc" in report.text
        assert "script-src" not in report.headers["content-security-policy"]
        assert "default-src 'none'" in report.headers["content-security-policy"]
        assert client.get("/api/runs/other/examples", params=asked).status_code == 404
        assert client.get("/api/runs/my-run/examples", params={**asked, "metric": "x"}).status_code == 404
        assert 400 <= client.get("/runs/..%2f..%2fetc").status_code < 500


def test_pictures_of_a_run_come_from_the_data_named_at_the_start(models, tmp_path):
    from clearhead.web.runs import Runs

    pytest.importorskip("pyarrow", reason="runs are kept in Parquet files")
    run, data = save_photo_run(tmp_path, save_image_model(tmp_path / "model"))
    asked = {"method": "rollout", "metric": "positive-perturbation"}
    with TestClient(build_app(models, runs=Runs([run])), base_url=HOME) as client:
        examples = client.get("/api/runs/photo-run/examples", params=asked).json()["examples"]
        assert not any(example["picture"] for example in examples)
        refused = client.get("/api/runs/photo-run/picture", params={"example": examples[0]["example"]})
        assert (refused.status_code, "started without --data" in refused.json()["error"]) == (404, True)
    with TestClient(build_app(models, runs=Runs([run], [data])), base_url=HOME) as client:
        examples = client.get("/api/runs/photo-run/examples", params=asked).json()["examples"]
        assert [example["picture"] for example in examples] == [True] * 4
        image = client.get("/api/runs/photo-run/picture", params={"example": examples[0]["example"]})
        assert image.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(image.content)).size == (60, 40)
        for name in ("../../etc/passwd", str(data / "cat" / "0.png"), "nobody", ""):
            assert client.get("/api/runs/photo-run/picture", params={"example": name}).status_code == 404
    (data / "cat" / "0.png").write_bytes(make_photo(seed=9))
    with pytest.raises(BadOption, match="No run was made from"):
        Runs([run], [data])
    with pytest.raises(BadOption, match="check --data"):
        Runs([run], [tmp_path / "nothing"])


PAIR = ["a good film ?", "never a bad heart"]


OTHER_MODELS = {"stars": {"text": "a good film"}, "answers": {"pair": PAIR}}


@pytest.mark.parametrize("method", ["trans-att", "att-cat", "integrated-gradients", "occlusion"])
@pytest.mark.parametrize("name", OTHER_MODELS)
def test_numbers_and_spans_are_explained_as_by_the_library(other_client, other_models, name, method):
    answer = ask(other_client, model=name, method=method, **OTHER_MODELS[name]).json()
    source = OTHER_MODELS[name].get("text") or tuple(PAIR)
    expected = clearhead.explain(other_models[name], source, method)
    assert [token["relevance"] for token in answer["tokens"]] == pytest.approx(
        expected.relevance.tolist(), rel=1e-5, abs=1e-12
    )
    assert (answer["label"], answer["probability"]) == (expected.label, pytest.approx(expected.probability))
    assert len(answer["classes"]) == (1 if name == "stars" else 0)
    assert (answer["target"]["span"] is None) == (name == "stars")


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_numbers_and_spans_are_tested_and_kept(other_client, other_models, name):
    asked = {"model": name, **OTHER_MODELS[name]}
    explanation = ask(other_client, **asked).json()
    curve = ask(other_client, "curve", **asked).json()
    before = explanation["classes"][0] if name == "stars" else explanation["probability"]
    assert curve["values"][0] == pytest.approx(before, rel=1e-4)
    # Rows of other batches may differ in the last digits of float32.
    assert curve["random"][0] == pytest.approx(curve["values"][0], rel=1e-5)
    hidden = ask(other_client, "hide", hidden=[list(chain(*curve["order"]))], **asked).json()
    assert hidden["values"][0] == pytest.approx(curve["values"][-1], rel=1e-5)
    for file_type in ("html", "png", "json"):
        assert ask(other_client, f"file/{file_type}", **asked).status_code == 200


def test_a_span_may_be_named(other_client, other_models):
    answer = ask(other_client, model="answers", pair=PAIR, span=[6, 8]).json()
    assert answer["target"]["span"] == [6, 8]
    expected = clearhead.explain(other_models["answers"], tuple(PAIR), target=clearhead.Target(span=(6, 8)))
    assert answer["label"] == expected.label
    assert ask(other_client, model="answers", pair=PAIR, span=[6, 99]).status_code == 422
    assert ask(other_client, model="answers", pair=PAIR, target=1).status_code == 422
    assert ask(other_client, model="stars", text="a film", span=[1, 2]).status_code == 422


def test_pixels_are_sent_as_whole_numbers(client, models):
    source = make_photo((60, 40))
    asked = {
        "image": encode_base64(source),
        "model": "image",
        "method": "integrated-gradients",
        "options": {"steps": 4},
    }
    pixels = ask(client, **asked).json()["pixels"]
    levels = np.frombuffer(base64.b64decode(pixels["levels"]), np.int8).reshape(pixels["size"])
    picture = Image.open(io.BytesIO(source))
    expected = clearhead.explain(models["image"], picture, "integrated-gradients", steps=4).pixels
    assert np.abs(levels * pixels["unit"] - expected).max() <= pixels["unit"] * 0.51
    assert ask(client, **{**asked, "method": "trans-att", "options": {}}).json()["pixels"] is None
