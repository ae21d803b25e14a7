"""TODO."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0


BAR = threading.Lock()
"""Held by whoever shows a bar."""


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Yields a function that counts rows done; a bar appears on a terminal's stderr after a second.

    Work within work is not shown: there is one bar at a time.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    begun = time.monotonic()
    done = 0
    bar: Progress | None = None

    def advance(rows: int) -> None:
        nonlocal bar, done
        done += rows
        late = done < total and time.monotonic() - begun > PATIENCE
        if bar is None and late and console.is_terminal and BAR.acquire(blocking=False):
            bar = Progress(console=console, transient=True)
            bar.add_task(label, total=total)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            try:
                bar.stop()
            finally:
                BAR.release()
