"""Long work is announced, once."""

import logging

import pytest

from clearhead.engine.forecast import Forecast


@pytest.fixture
def clock(monkeypatch):
    times = iter([0.0, 1.0, 3.0, 4.0])
    monkeypatch.setattr("clearhead.engine.forecast.time.monotonic", lambda: next(times))


def test_long_work_is_announced_once(clock, caplog):
    forecast = Forecast([10] * 400)
    with caplog.at_level(logging.WARNING, "clearhead"):
        forecast.report(1)
        assert not caplog.messages
        forecast.report(4)
        forecast.report(5)
    (message,) = caplog.messages
    assert message.startswith("400 passes of the model will take about 5 min more.")


def test_short_work_is_not_announced(clock, caplog):
    forecast = Forecast([10] * 8)
    with caplog.at_level(logging.WARNING, "clearhead"):
        forecast.report(1)
        forecast.report(4)
    assert not caplog.messages
