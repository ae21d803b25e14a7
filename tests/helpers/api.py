"""Requests to the page's HTTP API."""

import pytest

pytest.importorskip("fastapi", reason="the API needs clearhead[web]")
httpx = pytest.importorskip("httpx", reason="the test client needs httpx")

from starlette.testclient import TestClient  # noqa: E402

__all__ = ["HOME", "JSON", "TEXT", "TestClient", "ask", "httpx", "read_refusal"]

HOME = "http://127.0.0.1:8420"
TEXT = "a joyless film is not good"
JSON = {"content-type": "application/json"}


def ask(client, path="explain", **body):
    """Post a request to the API."""
    return client.post(f"/api/{path}", json=body)


def read_refusal(capsys, *arguments):
    """Return the error with which `clearhead serve` ends at once."""
    from clearhead.cli import main

    with pytest.raises(SystemExit) as exit_info:
        main(["serve", "--no-open", "--port", "0", *arguments])
    output = capsys.readouterr()
    assert (exit_info.value.code, output.out) == (2, "")
    assert output.err.count("\n") == 1
    return output.err
