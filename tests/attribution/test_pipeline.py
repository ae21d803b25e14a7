"""Texts are encoded, and numbers collected, while the passes of another batch run; a fake engine stands for a GPU."""

from threading import Event

import pytest
import torch
from helpers.tiny_models import network
from helpers.tiny_tokenizers import word_piece_tokenizer

from clearhead.attribution import batch as loop
from clearhead.attribution.batch_result import TARGET, BatchResult
from clearhead.attribution.explain_inputs import explain_inputs
from clearhead.attribution.method import parse_method
from clearhead.engine import streams
from clearhead.model import inputs as encoding
from clearhead.model.model import Model

PATIENCE = 60
TEXTS = ["a good film", "a bad film", "not good", "a dull film", "very bad", "joy", "a heart"]


class Tokenizer:
    """Says when it is called for the second time."""

    is_fast = True

    def __init__(self):
        self.tokenizer = word_piece_tokenizer()
        self.calls = 0
        self.is_called_again = Event()

    def __call__(self, *texts, **options):
        result = self.tokenizer(*texts, **options)
        self.calls += 1
        if self.calls > 1:
            self.is_called_again.set()
        return result

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


class FakeBatch:
    """A batch that runs, until its numbers are collected."""

    def __init__(self, batch, log):
        self.batch = batch
        self.log = log

    def collect(self):
        self.log.append(("collected", tuple(self.batch.indices)))
        return BatchResult(self.batch.indices, [{TARGET: list(self.batch.indices)}])


@pytest.fixture
def in_threads(monkeypatch):
    """Work in the background as on a GPU, in chunks of one, two and four texts."""

    def run_in_background(work, device, helper):
        return streams._executor(helper).submit(work).result

    monkeypatch.setattr(streams, "run_in_background", run_in_background)
    monkeypatch.setattr(encoding, "_cut_chunks", lambda model, inputs: encoding.cut_growing([1] * len(inputs), 16))


def explain_all(monkeypatch, start_batch):
    tokenizer = Tokenizer()
    log = []

    def start(request, batch):
        log.append(("started", tuple(batch.indices)))
        start_batch(tokenizer, len(log))
        return [FakeBatch(batch, log)]

    monkeypatch.setattr(loop, "start_batch", start)
    # `StartedBatch.collect` is called on whatever has been started.
    monkeypatch.setattr(loop, "StartedBatch", FakeBatch)
    model = Model(network("bert", vocab_size=400, dtype=torch.float32), tokenizer, name="tiny")
    by_method, _ = explain_inputs(model, TEXTS * 10, [parse_method("random")], None, 2, "error")
    return log, list(by_method[0])


def test_the_next_texts_are_encoded_while_a_batch_runs(monkeypatch, in_threads):
    def wait_for_the_next_chunk(tokenizer, started):
        if started == 1:
            # The pass of the first chunk ends only when the next one has been encoded.
            assert tokenizer.is_called_again.wait(PATIENCE)

    _, explained = explain_all(monkeypatch, wait_for_the_next_chunk)
    assert explained == list(range(len(explained)))


def test_numbers_are_collected_when_the_next_batch_runs(monkeypatch, in_threads):
    log, _ = explain_all(monkeypatch, lambda tokenizer, started: None)
    assert [name for name, _ in log[:5]] == ["started", "started", "collected", "started", "collected"]
    assert log[2][1] == log[0][1]
    started = [indices for name, indices in log if name == "started"]
    assert [indices for name, indices in log if name == "collected"] == started


def test_encoding_pauses_for_launches(monkeypatch, in_threads):
    pauses = []
    monkeypatch.setattr(streams.LAUNCHES, "wait", lambda: pauses.append(1))
    explain_all(monkeypatch, lambda tokenizer, started: None)
    # Chunks of 1, 2, 4, 8, 16, 16, 16 and the last 7 texts.
    assert len(pauses) == 8
