"""The progress bar: when it appears, and what it shows."""

import time

import pytest
from helpers.terminal import terminal

from clearhead.progress import BAR, progress


def test_a_bar_appears_late_with_count_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.progress.PATIENCE", 0.05)
    with terminal(monkeypatch) as printed:
        with progress(4, "inputs") as advance:
            advance(1)
            early = printed()
            time.sleep(0.1)
            advance(2)
        shown = printed()
    assert early == b""
    for content in (b"inputs", b"3/4", b"0:00:00", b"left"):
        assert content in shown


def test_a_bar_that_would_be_complete_never_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.progress.PATIENCE", 0.0)
    with terminal(monkeypatch) as printed:
        with progress(1, "inputs") as advance:
            advance(1)
        assert printed() == b""


def test_a_bar_asked_for_at_once_learns_its_total_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as printed:
        with progress(None, "Starting", at_once=True) as bar:
            first = printed()
            bar.update(2, 5, "shard 2")
        shown = printed()
    assert b"Starting" in first
    assert b"shard 2" in shown
    assert b"2/5" in shown


def test_the_lock_is_released_when_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch), pytest.raises(ZeroDivisionError), progress(2, "inputs", at_once=True):
        assert BAR.locked()
        raise ZeroDivisionError
    assert not BAR.locked()


def test_nested_work_draws_no_second_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as printed:
        with progress(2, "outer", at_once=True), progress(2, "inner", at_once=True) as advance:
            advance(1)
        shown = printed()
    assert b"outer" in shown
    assert b"inner" not in shown
    assert not BAR.locked()


def test_no_bar_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(2, "inputs", at_once=True) as advance:
        advance(1)
    assert capfd.readouterr() == ("", "")


def test_a_forecast_is_told_once_when_it_is_worth_it(monkeypatch):
    from clearhead import progress as module

    clock = iter([0.0, 10.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    forecast = module.Forecast()
    assert forecast.update(0, 100) is None
    assert forecast.update(0, 100) is None
    assert forecast.update(10, 100) == "The other 90 of 100 examples will take about 90 seconds."
    assert forecast.update(20, 100) is None


@pytest.mark.parametrize(("seconds", "text"), [(30, "30 seconds"), (600, "10 minutes"), (10000, "3 hours")])
def test_durations_in_words(seconds, text):
    from clearhead.progress import _format_duration

    assert _format_duration(seconds) == text
