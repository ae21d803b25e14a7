"""The time of a request is predicted at a fraction of its cost."""

import time

import pytest
from helpers.saved_models import save_text_model

import clearhead
from clearhead.attribution import plan_time
from clearhead.attribution.plan_time import estimate_seconds
from clearhead.attribution.windows import shorten
from clearhead.model.answer_inputs import answer_prompt, encode_prompt
from clearhead.model.inputs import encode
from tests.helpers.language_models import make_decoder, make_encoder_decoder, make_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return clearhead.load(str(save_text_model(tmp_path_factory.mktemp("model"))))


class Clock:
    """Time that passes only while work is done: `cost(rows, length)` seconds a batch."""

    def __init__(self, monkeypatch, cost):
        self.now, self.cost = 0.0, cost
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def work(self, batch):
        self.now += self.cost(len(batch), max(row.length for row in batch))


def batch_of(model, rows, words):
    return [encode(model, "film " * words)] * rows


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
def test_time_that_grows_with_the_length_is_predicted_within_the_budget(model, monkeypatch, exponent):
    clock = Clock(monkeypatch, lambda rows, length: 1e-4 * rows * length**exponent)
    batches = [batch_of(model, 16, 60) for _ in range(100)]
    predicted = estimate_seconds(clock.work, batches)
    assert predicted == pytest.approx(100 * 16 * 1e-4 * 62**exponent, rel=0.05)
    assert clock.now <= plan_time.BUDGET
    assert clock.now < predicted / 2


def test_a_device_that_takes_many_inputs_at_once(model, monkeypatch):
    clock = Clock(monkeypatch, lambda rows, length: 0.01 + 1e-5 * rows)
    batches = [batch_of(model, 64, 10) for _ in range(50)]
    assert estimate_seconds(clock.work, batches) == pytest.approx(50 * (0.01 + 64e-5), rel=0.05)


@pytest.mark.parametrize("make", [lambda: make_decoder("llama"), lambda: make_encoder_decoder("bart")])
def test_a_long_prompt_is_not_explained_to_know_its_time(make, monkeypatch):
    writer = clearhead.load(make(), make_tokenizer())
    prompt = encode_prompt(writer, "the capital of france is paris and " * 5)
    row = answer_prompt(writer, prompt, "long and grey", {})
    clock = Clock(monkeypatch, lambda rows, length: 4e-3 * rows * length**2)
    assert estimate_seconds(clock.work, [[row]] * 9) == pytest.approx(36e-3 * row.length**2, rel=0.05)
    assert clock.now <= plan_time.BUDGET


@pytest.mark.parametrize("make", [lambda: make_decoder("llama"), lambda: make_encoder_decoder("bart")])
def test_a_shortened_prompt_is_its_end_with_the_same_answer(make):
    writer = clearhead.load(make(), make_tokenizer())
    whole, end = "the river in london is grey, the capital of france is", "in london is grey, the capital of france is"
    expected = answer_prompt(writer, encode_prompt(writer, end), "long and grey", {})
    row = answer_prompt(writer, encode_prompt(writer, whole), "long and grey", {})
    shortened = shorten(row, row.length - 2)
    assert shortened.item.tokens[1:] == expected.item.tokens[1:] and shortened.length == row.length - 2


def test_noise_of_short_runs_is_not_made_much_of():
    measurement = plan_time._Measurement(lambda batch: None)
    # Linear, but for a last run that took 1.3 times as long.
    measurement.lengths = [plan_time._Timing(64, 1.0), plan_time._Timing(128, 2.0), plan_time._Timing(256, 5.2)]
    assert measurement.predict(1, 8192) == pytest.approx(128, rel=1.6)


def test_attention_to_many_tokens_is_added_to_what_short_runs_show():
    measurement = plan_time._Measurement(lambda batch: None, lambda length: 1 + length / 1000)
    measurement.lengths = [plan_time._Timing(250, 1.0), plan_time._Timing(500, 2.0), plan_time._Timing(1000, 4.0)]
    assert measurement.predict(1, 9000) == pytest.approx(36 * 10 / 2)


def test_what_does_not_depend_on_the_length_does_not_make_long_inputs_cheap():
    measurement = plan_time._Measurement(lambda batch: None)
    measurement.lengths = [plan_time._Timing(64, 1.0), plan_time._Timing(128, 1.1), plan_time._Timing(256, 1.2)]
    assert measurement.predict(1, 8192) == pytest.approx(1.2 * 32)
