"""Files of resumable runs: a lock, and writes that survive a crash whole or are absent after it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from clearhead.errors import BadFile
from clearhead.files import write_atomically

LOCK = "lock"
RESUME_HINT = "Completed shards are kept: the same command resumes the run."


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; the system releases that of a killed process."""
    # Windows has no fcntl: two processes there are not kept apart.
    if find_spec("fcntl") is None:
        yield
        return
    with write_errors(folder):
        file = open(folder / LOCK, "w")  # noqa: SIM115  closed below
    with file:
        _lock_file(file, folder)
        yield


def _lock_file(file: TextIO, folder: Path) -> None:
    import fcntl

    # Some network file systems have no locks: run without one rather than not at all.
    with suppress(OSError):
        try:
            # Without waiting: the other process may run for hours.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _make_lock_error(folder) from error


def _make_lock_error(folder: Path) -> BadFile:
    return BadFile(f"Another process is writing into '{folder}'. Wait for it, or choose another --out.")


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Re-raise OSError as BadFile that says how to resume."""
    try:
        yield
    except OSError as error:
        raise BadFile(f"'{path}' cannot be written: {error.strerror or error}. {RESUME_HINT}") from error


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that survives a crash complete or is absent after it."""
    try:
        write_atomically(path, content, durable=True)
    except BadFile as error:
        raise BadFile(f"{error}. {RESUME_HINT}") from error


def to_json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # A path may hold bytes that are not UTF-8, which Python represents as surrogates.
    return text.encode("utf-8", "surrogatepass")


def read_json(path: Path) -> dict[str, Any]:
    content = _parse_json(path)
    if not isinstance(content, dict):
        raise BadFile(f"'{path}' cannot be read: it holds no JSON object.")
    return content


def _parse_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    # ValueError: broken JSON, or bytes that are not UTF-8.
    except (OSError, ValueError) as error:
        raise BadFile(f"'{path}' cannot be read: {error}") from error
