"""The time of a request is predicted at a fraction of its cost."""

import time

import pytest
from helpers.saved_models import save_text_model

import clearhead
from clearhead.attribution import plan_time
from clearhead.attribution.plan_time import estimate_seconds
from clearhead.model.inputs import encode


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
