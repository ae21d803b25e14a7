"""Background work leaves the interpreter to the thread that launches kernels."""

from threading import Event, Thread

import pytest
import torch

from clearhead.engine import streams
from clearhead.engine.streams import Launches

GPU = torch.device("cuda")
PATIENCE = 60
"""Seconds until a thread that should have ended is given up."""


@pytest.fixture
def launches(monkeypatch):
    monkeypatch.setattr(streams, "LONGEST_PAUSE", PATIENCE)
    return Launches()


@pytest.fixture
def background(launches):
    """Return a function that starts a thread which waits for launches and then notes that it goes on."""
    events = []

    def start():
        is_waiting = Event()

        def work():
            is_waiting.set()
            launches.wait()
            events.append("background")

        thread = Thread(target=work)
        thread.start()
        assert is_waiting.wait(PATIENCE)
        return thread

    return start, events


def test_background_work_waits_for_launches(launches, background):
    start, events = background
    with launches.started(GPU):
        thread = start()
        events.append("launched")
    thread.join(PATIENCE)
    assert events == ["launched", "background"]


def test_background_work_goes_on_while_the_launching_thread_waits(launches, background):
    start, events = background
    with launches.started(GPU):
        with launches.paused():
            start().join(PATIENCE)
        assert events == ["background"]
        thread = start()
        events.append("launched")
    thread.join(PATIENCE)
    assert events == ["background", "launched", "background"]


def test_background_work_goes_on_after_an_error(launches, background):
    start, events = background
    with pytest.raises(MemoryError), launches.started(GPU):
        raise MemoryError
    start().join(PATIENCE)
    assert events == ["background"]


def test_launches_that_take_long_do_not_stop_background_work(monkeypatch, background, launches):
    monkeypatch.setattr(streams, "LONGEST_PAUSE", 0)
    start, events = background
    with launches.started(GPU):
        start().join(PATIENCE)
        assert events == ["background"]


def test_nothing_waits_on_a_cpu_or_outside_of_launches(launches, background):
    start, events = background
    with launches.started(torch.device("cpu")), launches.paused():
        start().join(PATIENCE)
    with launches.paused():
        start().join(PATIENCE)
    assert events == ["background"] * 2
