"""The progress bar, on stderr where that is a terminal."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

# Seconds before a bar appears.
PATIENCE = 1.0
# Seconds over which the speed is measured: items of slow work are minutes apart.
SPEED_PERIOD = 1800.0
# Seconds of remaining work that are announced in a sentence.
WORTH_TELLING = 20.0
# Held while a bar is shown: nested work that counts its own progress must not draw a second one.
BAR = threading.Lock()
Observer = Callable[[int, int | None, str], None]
"""Called with the number of finished items, their total and their label."""
Advance = Callable[[int], None]
"""Called with the number of items that have been finished since the last time."""
_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


def ignore_progress(count: int) -> None:
    """Show nothing."""


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call a function whenever work inside this context advances; by raising, it stops the work."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


class ProgressBar:
    """A count of finished items, drawn once it takes longer than PATIENCE; `total` is None while it is unknown."""

    def __init__(self, total: int | None, label: str) -> None:
        self.total = total
        self.label = label
        self.done = 0
        self._begun = time.monotonic()
        self._drawn: Progress | None = None

    def __call__(self, count: int) -> None:
        """Add `count` finished items."""
        self.update(self.done + count, self.total, self.label)

    def skip(self, count: int) -> None:
        """Add items that were finished before, which say nothing about how fast the others will be."""
        self.done += count
        if self._drawn is not None:
            # Samples of the speed are the differences between updates.
            self._drawn.reset(self._drawn.task_ids[0], total=self.total, completed=self.done, description=self.label)

    def update(self, done: int, total: int | None, label: str) -> None:
        """Set the number of finished items, the total and the label."""
        self.done = done
        self.total = total
        self.label = label
        observer = _OBSERVER.get()
        if observer is not None:
            observer(done, total, label)
        if self._drawn is None and self._is_late:
            self.show()
        self._redraw()

    def _redraw(self) -> None:
        if self._drawn is not None:
            task = self._drawn.task_ids[0]
            self._drawn.update(task, completed=self.done, total=self.total, description=self.label)

    @property
    def _is_late(self) -> bool:
        # A bar that would be complete when it appears only flickers.
        return not self._is_complete and time.monotonic() - self._begun > PATIENCE

    @property
    def _is_complete(self) -> bool:
        return self.total is not None and self.done >= self.total

    @cached_property
    def _console(self) -> "Console":
        # Imported late: rich takes longer to import than most work that is counted.
        from rich.console import Console

        return Console(stderr=True)

    def show(self) -> None:
        """Draw the bar, unless stderr is no terminal or another bar is shown."""
        # Without waiting: whoever holds the lock may be the caller of this work.
        if self._console.is_terminal and BAR.acquire(blocking=False):
            self._draw()

    def _draw(self) -> None:
        # Assigned before anything that could fail, because close() releases the lock only if there is a bar.
        self._drawn = _rich_progress(self._console)
        self._drawn.add_task(self.label, total=self.total, completed=self.done)
        # Elapsed time counts from the beginning of the work, not of the drawing.
        self._drawn.tasks[0].start_time = self._begun
        self._drawn.start()

    def close(self) -> None:
        """Remove the bar."""
        if self._drawn is None:
            return
        try:
            self._drawn.stop()
        finally:
            BAR.release()


class Forecast:
    """Says once, after the first finished items, how long the others will take."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._is_told = False

    def update(self, done: int, total: int) -> str | None:
        """Return a sentence about the remaining time when it can first be told, and is worth telling."""
        if self._is_told:
            return None
        if self._first is None:
            self._first = (done, time.monotonic())
            return None
        before, begun = self._first
        if done == before:
            return None
        self._is_told = True
        seconds = (time.monotonic() - begun) / (done - before) * (total - done)
        if seconds < WORTH_TELLING:
            return None
        return f"The other {total - done:,} of {total:,} examples will take about {_format_duration(seconds)}."


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"


def _rich_progress(console: "Console") -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _make_rate_column(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=SPEED_PERIOD,
    )


def _make_rate_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Items per second."""

        def render(self, task: Task) -> Text:
            if not task.speed:
                return Text("")
            return Text(f"{task.speed:.3g}/s")

    return RateColumn()


@contextmanager
def spinner(label: str) -> Iterator[None]:
    """Show that work of unknown length goes on, on a terminal's stderr."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    # As for a bar: nested work must not draw a second one.
    if not console.is_terminal or not BAR.acquire(blocking=False):
        yield
        return
    try:
        with console.status(escape(label)):
            yield
    finally:
        BAR.release()


@contextmanager
def progress(total: int | None, label: str, *, at_once: bool = False) -> Iterator[ProgressBar]:
    """Count items as they finish, with a bar on a terminal's stderr.

    The bar shows label, count, elapsed and remaining time. It appears after PATIENCE seconds, or immediately with
    `at_once`. `total` may be None and be set later by `update`.

    >>> with progress(3, "inputs") as advance:
    ...     for row in range(3):
    ...         advance(1)
    """
    bar = ProgressBar(total, label)
    if at_once:
        bar.show()
    try:
        yield bar
    finally:
        bar.close()
