"""Models by hub id where the hub answers, and where it does not."""

import shutil
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import torch
import transformers
from helpers.tiny_models import network
from helpers.tiny_tokenizers import word_piece_tokenizer
from huggingface_hub import constants

import clearhead
from clearhead.errors import BadFile
from clearhead.model.hub import can_reach_hub

NOBODY = "http://127.0.0.1:9"
"""The port of a service that is run nowhere."""
COMMIT = "0" * 40


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "ENDPOINT", NOBODY)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    # Between two attempts the libraries sleep.
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("asked again"))
    return tmp_path / "cache"


class NotFound(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_error(404)

    def log_message(self, *args):
        """Print nothing."""


def test_a_hub_that_answers_anything_can_be_reached(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), NotFound)
    Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    assert can_reach_hub()
    server.server_close()


def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(no_network):
    assert not can_reach_hub()
    with pytest.raises(BadFile, match="not in the cache, and the hub cannot be reached"):
        clearhead.load("no/such-model")


def test_a_model_in_the_cache_is_loaded_without_the_hub(no_network):
    cached = no_network / "models--somebody--bert"
    snapshot = cached / "snapshots" / COMMIT
    network("bert", dtype=torch.float32).save_pretrained(snapshot)
    word_piece_tokenizer().save_pretrained(snapshot)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    model = clearhead.load("somebody/bert")
    assert model.name == "somebody/bert"
    assert isinstance(model.processor, transformers.PreTrainedTokenizerBase)
    shutil.rmtree(cached)
    with pytest.raises(BadFile, match="not in the cache"):
        clearhead.load("somebody/bert")
