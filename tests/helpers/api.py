"""Requests to the page's HTTP API."""

import pytest

HOME = "http://127.0.0.1:8420"


TEXT = "a joyless film is not good"


JSON = {"content-type": "application/json"}


def ask(client, path="explain", **body):
    return client.post(f"/api/{path}", json=body)


def refused(capsys, *arguments):
    """What `clearhead serve` says before it gives up."""
    from clearhead.cli import main

    with pytest.raises(SystemExit) as left:
        main(["serve", "--no-open", "--port", "0", *arguments])
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    return said.err
