"""The HTTP API checks explanations as the library does, and compares what is hidden with random choices."""

from dataclasses import replace
from itertools import chain, product

import numpy as np
import pytest
from helpers.api import HOME, TEXT, TestClient, ask
from helpers.language_models import make_decoder, make_tokenizer
from helpers.pictures import encode_base64, make_photo

import clearhead
from clearhead.trust.controls import CONTROLS
from clearhead.web.app import build_app
from clearhead.web.job_queue import Interrupted
from clearhead.web.limits import Limits
from clearhead.web.schemas import ExplainRequest
from clearhead.web.service import ExplainService

LONG_TEXT = "the film is not good , never very good . a dull film"
SUBJECTS = ["the plot", "the whole cast", "its ending", "the music in this film"]
OPINIONS = ["is dull", "is a delight", "is warm and funny", "never works", "moves me deeply"]
SEEDS = (11, 12, 13)


@pytest.mark.parametrize("method", ["att-cat", "lrp", "occlusion"])
def test_a_check_is_that_of_the_library(client, models, method):
    body = ask(client, text=LONG_TEXT, model="text", method=method, check=True).json()
    expected = clearhead.explain(models["text"], LONG_TEXT, method)
    assert body["check"]["verdict"] == expected.check.verdict
    assert tuple(body["check"]["strongest"]) == expected.check.strongest
    assert body["check"]["hidden"] == pytest.approx(expected.check.hidden)
    assert body["check"]["p_value"] == pytest.approx(expected.check.p_value)
    assert body["diagnostics"]["rounding_error"] == pytest.approx(expected.diagnostics["rounding_error"])
    assert body["diagnostics"]["precision"] == expected.diagnostics["precision"]
    assert body["trust"]["meaning"] in body["check"]["caption"]
    assert body["trust"]["evidence"] in body["check"]["caption"]
    assert body["trust"]["error"] in body["notes"]


def test_without_being_asked_for_there_is_no_check(client):
    body = ask(client, text=LONG_TEXT, model="text").json()
    assert body["check"] is None
    assert set(body["trust"].values()) == {""}
    assert "rounding_error" not in body["diagnostics"]


def test_images_contrasts_and_files_are_checked(client):
    photo = encode_base64(make_photo())
    image = ask(client, image=photo, check=True).json()
    assert (image["check"]["kind"], image["check"]["units"]) == ("patch", 16)
    contrast = ask(client, text=LONG_TEXT, target=0, versus=2, check=True).json()
    assert "rather than" in contrast["trust"]["evidence"]
    page = ask(client, "file/html", image=photo, check=True)
    assert image["trust"]["evidence"] in page.text.replace("&nbsp;", " ")
    assert "ch-check" not in ask(client, "file/html", image=photo).text.partition("<body")[2]


def test_what_cannot_be_checked_says_why(client):
    body = ask(client, text="film", model="text", check=True).json()
    assert body["check"] is None
    assert "single word" in body["trust"]["unchecked"]
    assert not any("single word" in note for note in body["notes"])


def test_the_number_of_groups_is_limited(client):
    finer = ask(client, text=LONG_TEXT, model="text", check=8).json()
    assert finer["check"]["passes"] > 10
    for groups in (4, Limits().max_check_groups + 1):
        assert ask(client, text=LONG_TEXT, check=groups).status_code == 422


def test_a_check_adds_only_its_own_passes(models):
    passes = []
    with TestClient(build_app(models), base_url=HOME) as client:
        ask(client, text=LONG_TEXT, model="text", method="occlusion")
        hook = models["text"].network.register_forward_hook(lambda *_: passes.append(1))
        try:
            ask(client, text=LONG_TEXT, model="text", method="occlusion", check=True)
        finally:
            hook.remove()
    assert 0 < len(passes) <= 4, "the groups are hidden and shown in a few batches, and occlusion is not repeated"


def test_a_check_stops_when_nobody_waits(models):
    passes = []

    def check_interrupted():
        passes.append(1)
        if len(passes) == 2:
            raise Interrupted

    service = ExplainService({"text": models["text"]}, Limits(), check_interrupted)
    (stopped,) = service.explain([ExplainRequest(text=LONG_TEXT, check=True)])
    assert isinstance(stopped, Interrupted)
    (answer,) = service.explain([ExplainRequest(text=LONG_TEXT, check=True)])
    assert answer.explanation.check is not None


def test_a_copy_of_the_model_outlives_the_server_that_made_it(models):
    """Methods that lose digits are computed on a copy in float64, which the next server finds."""
    for _ in range(2):
        with TestClient(build_app(models), base_url=HOME) as client:
            body = ask(client, text=LONG_TEXT, model="text", method="lrp", check=True).json()
            assert body["diagnostics"]["precision"] == "float64"


def test_answers_are_checked():
    writer = replace(clearhead.load(make_decoder("gpt2"), make_tokenizer()), name="writer")
    prompt = "the capital of france is long. the river in paris is"
    with TestClient(build_app({"writer": writer}), base_url=HOME) as own_client:
        body = ask(own_client, text=prompt, answer="paris and long", focus=[6, 9], check=True).json()
        expected = clearhead.explain(writer, prompt, answer="paris and long", focus="and")
        hidden = ask(own_client, "hide", text=prompt, answer="paris", hidden=[[1], [1, 2]], controls=True).json()
    assert body["check"]["verdict"] == expected.check.verdict
    assert body["check"]["hidden"] == pytest.approx(expected.check.hidden)
    assert [controls["sets"] for controls in hidden["controls"]] == [CONTROLS] * 2


def test_controls_hide_as_many_at_random(client):
    body = ask(client, "hide", text=TEXT, model="text", hidden=[[1], [1, 2, 3]], controls=True).json()
    curve = ask(client, "curve", text=TEXT, model="text").json()
    assert curve["order"].index([2, 3]) >= 0, "the second and third token are a word"
    for controls, count in zip(body["controls"], (1, 2), strict=True):
        assert controls["low"] <= controls["mean"] <= controls["high"]
        assert count in curve["measured"]
        assert controls["mean"] == pytest.approx(curve["random"][curve["counts"].index(count)])


def test_controls_are_limited(models):
    limits = Limits(max_control_tokens=CONTROLS * 9)
    with TestClient(build_app(models, limits=limits), base_url=HOME) as client:
        assert ask(client, "hide", text=TEXT, model="text", hidden=[[1]], controls=True).json()["controls"]
        longer = ask(client, "hide", text=LONG_TEXT, model="text", hidden=[[1]], controls=True).json()
        assert longer["controls"] is None and len(longer["values"]) == 1
        many = ask(client, "hide", text=TEXT, hidden=[[1]] * 21, controls=True)
        assert many.status_code == 422 and "at most 20 lists" in many.json()["error"]


def test_the_curve_of_a_block_follows_its_relevance(client):
    explanation = ask(client, text=LONG_TEXT, model="text", method="att-cat").json()
    for block in (1, 2):
        curve = ask(client, "curve", text=LONG_TEXT, model="text", method="att-cat", unit="token", block=block).json()
        relevance = np.array(explanation["layers"][block - 1])
        ranked = [relevance[tokens].sum() for tokens in curve["order"]]
        assert ranked == sorted(ranked, reverse=True)
    for method, block in (("att-cat", 99), ("occlusion", 1)):
        refusal = ask(client, "curve", text=LONG_TEXT, model="text", method=method, block=block)
        assert refusal.status_code == 422 and f"Invalid block={block}" in refusal.json()["error"]


def count_verdicts(client, text, seed):
    """Return what is said of a random explanation at every position of the slider."""
    method = {"method": "random", "options": {"seed": seed}}
    curve = ask(client, "curve", text=text, **method).json()
    hidden = [list(chain.from_iterable(curve["order"][:count])) for count in curve["counts"][1:]]
    body = ask(client, "hide", text=text, hidden=hidden, controls=True).json()
    return [controls["verdict"] for controls in body["controls"]]


def test_random_explanations_seldom_matter_more_than_chance():
    verdicts = []
    with TestClient(build_app({"sst2": clearhead.load("clearhead/sst2-minilm")}), base_url=HOME) as client:
        for subject, opinion, seed in product(SUBJECTS, OPINIONS, SEEDS):
            verdicts += count_verdicts(client, f"{subject} {opinion}", seed)
    assert len(verdicts) > 200
    assert verdicts.count("more") <= 0.05 * len(verdicts)
    assert verdicts.count("less") <= 0.05 * len(verdicts)


def test_a_contrast_has_the_probabilities_of_both_classes(client):
    plain = ask(client, text=TEXT).json()
    contrast = ask(client, text=TEXT, target=1, versus=0).json()
    assert plain["contrast"] is None
    assert contrast["contrast"] == [contrast["classes"][1], contrast["classes"][0]]


def test_a_truth_value_is_no_class(client):
    assert ask(client, text=TEXT, target=True).status_code == 422
