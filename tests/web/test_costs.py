"""What a request may cost, and what becomes of requests that nobody waits for any more."""

import threading
from types import SimpleNamespace

import pytest
from helpers.api import HOME, TEXT, TestClient, ask

from clearhead.engine.memory import count_fitting_rows
from clearhead.errors import BadOption
from clearhead.web.app import build_app
from clearhead.web.costs import check_class_outputs
from clearhead.web.dispatcher import TICKET_HEADER
from clearhead.web.job_queue import Interrupted, Overloaded, Worker
from clearhead.web.limits import LIMITS, Limits

# Of TEXT, with special tokens.
TOKENS = 9


@pytest.fixture
def worker():
    started = Worker(Limits(max_queued_jobs=2))
    yield started
    started.close()


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def block(worker, gate, ticket=""):
    """Keep the worker busy until the gate opens; return once it is."""
    begun = threading.Event()

    def wait(payloads):
        begun.set()
        return [gate.wait(20) for _ in payloads]

    job = worker.submit(wait, None, ticket=ticket)
    assert begun.wait(20)
    return job


def test_a_batch_that_would_take_too_much_memory_is_refused(models):
    limit = 20_000_000
    with TestClient(build_app(models, limits=Limits(max_pass_bytes=limit)), base_url=HOME) as client:
        answer = ask(client, text=TEXT, method="smooth-gradient", options={"samples": 4, "batch": 256})
        fitting = count_fitting_rows(models["text"], TOKENS, limit)
        assert answer.status_code == 422
        assert f"Use at most {fitting}, or none." in answer.json()["error"]
        assert ask(client, text=TEXT, method="smooth-gradient", options={"batch": 1}).status_code == 200


def test_references_of_deeplift_run_in_batches(models, monkeypatch):
    import clearhead
    from clearhead.engine import embeddings

    pytest.importorskip("captum", reason="deeplift-shap needs clearhead[captum]")
    rows = []
    whole = clearhead.explain(models["text"], TEXT, method="deeplift-shap", samples=6, check=False)
    monkeypatch.setitem(embeddings.TOKENS_PER_BATCH, "cpu", 16)
    with models["text"].network.register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(next(iter(inputs.values())))),
        with_kwargs=True,
    ):
        parts = clearhead.explain(models["text"], TEXT, method="deeplift-shap", samples=6, check=False)
    # Captum runs every input together with its reference.
    assert max(rows) <= 4
    assert parts.relevance == pytest.approx(whole.relevance, abs=1e-9)
    assert parts.diagnostics["effect"] == pytest.approx(whole.diagnostics["effect"])


def test_outputs_of_many_classes_are_bounded():
    model = SimpleNamespace(labels=["class"] * 20_000)
    check_class_outputs(model, 10, LIMITS)
    with pytest.raises(BadOption, match="at most 10 lists"):
        check_class_outputs(model, 64, LIMITS)


def test_attention_flow_stops_between_flows(models):
    pytest.importorskip("scipy", reason="attention-flow needs clearhead[flow]")
    app = build_app(models)
    service = app.state.service
    flows = []

    def stop_after_two(done, total, label):
        flows.append((done, total, label))
        if done == 2:
            raise Interrupted

    service.note_progress = stop_after_two
    from clearhead.web.schemas import ExplainRequest

    (answer,) = service.explain([ExplainRequest(text=TEXT, method="attention-flow")])
    app.state.worker.close()
    assert isinstance(answer, Interrupted)
    assert flows == [(1, TOKENS, "flows"), (2, TOKENS, "flows")]


def test_abandoned_requests_leave_the_queue(worker, gate):
    block(worker, gate)
    waiting = [worker.submit(lambda jobs: jobs, None) for _ in range(2)]
    with pytest.raises(Overloaded):
        worker.submit(lambda jobs: jobs, None)
    for job in waiting:
        worker.discard(job)
    assert all(job.future.cancelled() for job in waiting)
    kept = worker.submit(lambda jobs: jobs, "kept")
    gate.set()
    assert kept.future.result(20) == "kept"


def test_progress_of_waiting_and_running_requests(worker, gate):
    block(worker, gate, ticket="first")
    worker.submit(lambda jobs: jobs, None, ticket="second")
    worker.note_progress(3, 8, "passes")
    running = worker.find_progress("first")
    waiting = worker.find_progress("second")
    assert (running.is_running, running.done, running.total, running.label) == (True, 3, 8, "passes")
    assert (waiting.is_running, waiting.ahead) == (False, 1)
    assert worker.find_progress("other") is None


def test_the_progress_of_a_request_can_be_asked_for(models, gate):
    app = build_app(models)
    with TestClient(app, base_url=HOME) as client:
        block(app.state.worker, gate, ticket="mine")
        app.state.worker.note_progress(1, None, "passes")
        running = client.get("/api/progress/mine").json()
        assert running == {"state": "running", "ahead": 0, "done": 1, "total": None, "label": "passes"}
        gate.set()
        answer = client.post("/api/explain", json={"text": TEXT}, headers={TICKET_HEADER: "later"})
        assert answer.status_code == 200
        # The answer is sent a moment before the worker forgets its job.
        states = (client.get("/api/progress/later").json()["state"] for _ in range(1000))
        assert "unknown" in states
