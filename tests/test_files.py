"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from clearhead.errors import BadFile
from clearhead.files import write_atomically


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "result.json"
    for content in (b"old", b"new"):
        write_atomically(path, content, durable=durable)
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clearhead.files.os.replace", fail)
    with pytest.raises(BadFile, match=r"result\.json' cannot be written: No space left on device"):
        write_atomically(path, b"new", durable=durable)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_durable_write_waits_for_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("clearhead.files.os.fsync", synced.append)
    write_atomically(tmp_path / "quick", b"content")
    assert synced == []
    write_atomically(tmp_path / "durable", b"content", durable=True)
    assert len(synced) == 2
