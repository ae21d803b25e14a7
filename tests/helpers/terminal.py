"""A terminal in place of stderr."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

READING_SECONDS = 0.3


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bytes]]:
    """Make stderr a terminal; yield a function that reads what was printed there."""
    pty = pytest.importorskip("pty")
    outer, inner = pty.openpty()
    os.set_blocking(outer, False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with os.fdopen(inner, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)

        def read() -> bytes:
            stderr.flush()
            content = b""
            # The kernel hands a terminal's output over in pieces, and a running bar never stops drawing.
            deadline = time.monotonic() + READING_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                if select.select([outer], [], [], left)[0]:
                    content += os.read(outer, 65536)
            return content

        yield read
    os.close(outer)
