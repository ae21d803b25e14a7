"""A word beforehand about work that will take longer than a minute."""

import logging
import time
from collections.abc import Sequence

# Seconds of work from which the rest is extrapolated: the first passes are slower than the others.
MEASURED_SECONDS = 2.0
LONG_SECONDS = 60.0
LOGGER = logging.getLogger("clearhead")


class Forecast:
    """The time that passes over inputs of these lengths will take, told once if it is long."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._begun = time.monotonic()
        self._is_told = False

    def report(self, done: int) -> None:
        """Log a warning if what is left after `done` inputs takes longer than a minute."""
        elapsed = time.monotonic() - self._begun
        if self._is_told or elapsed < MEASURED_SECONDS:
            return
        self._is_told = True
        left = self._extrapolate(elapsed, done)
        if left > LONG_SECONDS:
            LOGGER.warning(
                "%s passes of the model will take about %d min more. Fewer samples or steps, a coarser unit (word, "
                "sentence, grid) or a shorter input take less.",
                f"{len(self._lengths):,}",
                round(left / 60),
            )

    def _extrapolate(self, elapsed: float, done: int) -> float:
        # Attention grows faster than the number of tokens, but most of the work does not.
        return elapsed * sum(self._lengths[done:]) / max(1, sum(self._lengths[:done]))
