"""The HTTP API explains the answers of language models as the library does."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.api import HOME, TestClient, ask
from helpers.language_models import make_decoder, make_encoder_decoder, make_tokenizer

import clearhead
from clearhead.web.app import build_app
from clearhead.web.job_queue import Interrupted
from clearhead.web.limits import Limits
from clearhead.web.schemas import ExplainRequest
from clearhead.web.service import ExplainService

PROMPT = "the capital of france is long. the river in paris is"
CHAT = [{"role": "system", "content": "the river is grey"}, {"role": "user", "content": "the capital of france"}]


@pytest.fixture(scope="module")
def writer():
    return replace(clearhead.load(make_decoder("gpt2"), make_tokenizer()), name="writer")


@pytest.fixture(scope="module")
def client(models, writer):
    with TestClient(build_app({**models, "writer": writer}), base_url=HOME) as test_client:
        yield test_client


def ask_writer(client, path="explain", **body):
    source = {} if "chat" in body else {"text": PROMPT}
    return ask(client, path, **{**source, "model": "writer", "max_new_tokens": 6, **body})


def read_relevance(body):
    return [token["relevance"] for token in body["tokens"]]


def read_error(response):
    assert response.status_code == 422
    error = response.json()["error"]
    assert "\n" not in error
    return error


@pytest.mark.parametrize("prompt", [{"text": PROMPT}, {"chat": CHAT}])
def test_an_answer_is_written_and_explained_as_by_the_library(client, writer, prompt):
    body = ask_writer(client, **prompt).json()
    (source,) = prompt.values()
    expected = clearhead.explain(writer, source, "attn-lrp", generation={"max_new_tokens": 6})
    assert body["answer"]["text"] == expected.answer
    assert read_relevance(body) == pytest.approx(expected.relevance.tolist())
    assert [step["probability"] for step in body["answer"]["steps"]] == pytest.approx(
        [step.probability for step in expected.steps]
    )
    assert sum(group["size"] for group in body["answer"]["groups"]) == pytest.approx(1)
    assert body["classes"] == []


def test_a_word_a_given_answer_and_a_foil(client, writer):
    word = ask_writer(client, answer="paris and long", focus=[6, 9]).json()
    expected = clearhead.explain(writer, PROMPT, "attn-lrp", answer="paris and long", focus="and")
    assert word["label"] == "and"
    assert read_relevance(word) == pytest.approx(expected.relevance.tolist())
    contrast = ask_writer(client, answer="paris", versus="london").json()
    assert contrast["label"] == contrast["answer"]["start"] == "paris rather than london"


def test_a_short_foil_is_compared_with_the_beginning_of_the_answer(client):
    body = ask_writer(client, answer="paris and long", versus="london").json()
    assert body["label"] == "paris rather than london"
    assert [step["explained"] for step in body["answer"]["steps"]] == [True, False, False]


def test_a_matrix_has_a_row_for_each_step(client, writer):
    body = ask_writer(client, answer="paris and long", matrix=True).json()
    expected = clearhead.explain(writer, PROMPT, "attn-lrp", answer="paris and long", matrix=True)
    np.testing.assert_allclose(body["answer"]["matrix"], expected.matrix)
    page = ask_writer(client, "file/html", answer="paris and long", matrix=True)
    assert "Prompt × answer" in page.text


def test_further_questions_on_an_answer_need_no_new_forward_pass(client, writer):
    passes = []
    hook = writer.network.language_model.register_forward_hook(lambda *_: passes.append(1))
    try:
        written = ask_writer(client, text="the river in london is", max_new_tokens=3).json()
        count = len(passes)
        first = written["answer"]["words"][0]
        focus = [first["start"], first["end"]]
        for changes in ({"method": "gradient-x-input"}, {"focus": focus}, {"matrix": True}):
            response = ask_writer(client, text="the river in london is", **{"max_new_tokens": 3, **changes})
            assert response.status_code == 200
    finally:
        hook.remove()
    # A pass for each token, one to explain them.
    assert count == len(written["answer"]["steps"]) + 1
    assert len(passes) == count


def test_hiding_words_changes_the_log_probability(client, writer):
    explanation = ask_writer(client, answer="long").json()
    hideable = [index for index, token in enumerate(explanation["tokens"]) if token["segment"] == 0]
    body = ask_writer(client, "hide", answer="long", hidden=[[], hideable[:1], hideable]).json()
    assert body["values"][0] == pytest.approx(np.log(explanation["probability"]))
    shorter = clearhead.explain(writer, PROMPT.removeprefix("the"), answer="long")
    assert body["values"][1] == pytest.approx(np.log(shorter.probability))
    assert len(set(body["values"])) == 3


def test_the_curve_of_an_answer_hides_its_prompt_only(client):
    body = ask_writer(client, "curve", answer="paris and long").json()
    assert body["counts"][-1] == len(body["order"]) == len(PROMPT.split())
    assert body["values"][0] == pytest.approx(body["random"][0])


def test_sources_are_the_sentences_of_the_prompt(client):
    sources = ask_writer(client, answer="long").json()["answer"]["sources"]
    assert [source["text"] for source in sources] == ["the capital of france is long.", "the river in paris is"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "text", "answer": "paris"}, "no language model"),
        ({"model": "text", "chat": CHAT}, "no language model"),
        ({"target": 1}, "no classes"),
        ({"versus": 1}, "the words that the answer is compared with"),
        ({"answer": " "}, "answer is empty"),
        ({"answer": "paris", "versus": "paris"}, "is the answer itself"),
        ({"answer": "paris", "focus": [3, 900]}, "not in the answer"),
        ({"max_new_tokens": 10_000}, "max_new_tokens"),
        ({"text": "paris " * 1100}, "at most 1024. Shorten the prompt or the answer."),
    ],
)
def test_bad_requests_get_one_line(client, changes, message):
    assert message in read_error(ask_writer(client, **changes))


def test_other_models_refuse_the_fields_of_language_models(client):
    assert "needs a language model" in read_error(ask(client, text="a film", model="text", matrix=True))
    assert "takes one text or a chat" in read_error(ask(client, pair=["a", "b"], model="writer"))


def test_limits_of_the_server_hold_for_prompts_and_answers(writer):
    limits = Limits(max_prompt_tokens=20, max_answer_tokens=2)
    with TestClient(build_app({"writer": writer}, limits=limits), base_url=HOME) as client:
        assert "The answer has 3 tokens" in read_error(ask_writer(client, answer="paris and long"))
        assert "The prompt has" in read_error(ask_writer(client, text=PROMPT * 3))


def test_an_answer_ends_where_the_model_has_no_more_positions(client):
    body = ask_writer(client, text="paris " * 1020, method="gradient", max_new_tokens=100).json()
    assert 0 < len(body["answer"]["steps"]) <= 5


def test_an_encoder_decoder_is_explained_and_tested_too():
    translator = replace(clearhead.load(make_encoder_decoder("t5"), make_tokenizer()), name="translator")
    with TestClient(build_app({"translator": translator}), base_url=HOME) as client:
        body = ask(client, text=PROMPT, answer="paris and long", focus=[6, 9]).json()
        expected = clearhead.explain(translator, PROMPT, answer="paris and long", focus="and")
        assert read_relevance(body) == pytest.approx(expected.relevance.tolist())
        values = ask(client, "hide", text=PROMPT, answer="paris and long", hidden=[[], [1]]).json()["values"]
        assert values[0] != values[1]


def test_writing_stops_between_two_tokens_and_leaves_nothing(writer):
    passes = []

    def check_interrupted():
        passes.append(1)
        if len(passes) == 3:
            raise Interrupted

    service = ExplainService({"writer": writer}, Limits(), check_interrupted)
    request = ExplainRequest(text=PROMPT, max_new_tokens=6)
    (stopped,) = service.explain([request])
    assert isinstance(stopped, Interrupted)
    assert len(passes) == 3
    assert not service.cache.inputs
    (answer,) = service.explain([request])
    assert answer.explanation.answer


def test_a_long_prompt_keeps_fewer_traces(writer):
    limits = Limits(cached_token_pairs=300)
    service = ExplainService({"writer": writer}, limits)
    requests = [
        ExplainRequest(text=PROMPT, answer="paris and long", focus=focus) for focus in ((0, 5), (6, 9), (10, 14))
    ]
    # The last, whose answer is cached, needs no trace.
    for request in [*requests, requests[0]]:
        service.explain([request])
    (cached,) = service.cache.inputs.values()
    assert len(cached.traces) == 1


def test_models_say_whether_they_write_and_chat(client):
    models = {model["name"]: model for model in client.get("/api/models").json()}
    assert (models["writer"]["problem"], models["writer"]["chat"], models["writer"]["labels"]) == ("answer", True, [])
    assert models["text"]["chat"] is False
