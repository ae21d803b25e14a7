"""Atomic file writes."""

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from clearhead.errors import Argument, BadFile, BadOption


def write_atomically(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part of it.

    `durable` also waits until file and folder are on the disk, so that the file survives a power failure.
    """
    try:
        _write_and_move(path, content, durable=durable)
    except OSError as error:
        raise BadFile(f"'{path}' cannot be written: {_reason(error)}") from error
    if durable:
        _sync_folder(path.parent)


def refuse_overwriting(out: Path, inputs: Iterable[str | Path]) -> None:
    """Raise BadOption if an output file is one of the inputs, also under another path or through a link."""
    for path in inputs:
        if _is_same_file(out, path):
            raise BadOption(
                f"'{path}' is an input, which the output would replace: choose another ", Argument("out"), "."
            )


def _is_same_file(out: Path, path: str | Path) -> bool:
    try:
        return os.path.samefile(out, path)
    except (OSError, ValueError):
        # One of them does not exist, or the input is a text that no path can be.
        return False


def unreadable_file(path: Path, error: Exception) -> BadFile:
    """Return the error for a file that cannot be read because of `error`."""
    return BadFile(f"'{path}' cannot be read: {_reason(error)}")


def _reason(error: Exception) -> object:
    # The message of the operating system alone: str(error) would repeat the path.
    return getattr(error, "strerror", None) or error


def _write_and_move(path: Path, content: bytes, *, durable: bool) -> None:
    # In the same folder, because a file can only be moved atomically within a file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        _write(handle, content, durable=durable)
        _publish(temporary, path)
    finally:
        # Fails after a successful move, when nothing is left to remove.
        with suppress(OSError):
            os.unlink(temporary)


def _publish(temporary: str, path: Path) -> None:
    # Results are meant to be shared: mkstemp makes files only their owner can read.
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def _write(handle: int, content: bytes, *, durable: bool) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        if durable:
            _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; ignored where folders cannot be opened (Windows)."""
    with suppress(OSError):
        sync_path(folder)


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    _sync_and_close(os.open(path, os.O_RDONLY))


def _sync_and_close(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
