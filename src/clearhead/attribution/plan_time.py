"""Time of a request, extrapolated from runs that are much shorter than the request."""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clearhead.attribution.windows import shorten
from clearhead.model.inputs import Encoded

Batch = Sequence[Encoded]
Work = Callable[[Batch], None]
Load = Callable[[int], float]
"""The work per token of an input of some length, relative to that of a short one."""
# Seconds that measuring may take before the rest is extrapolated; the first run may take longer.
BUDGET = 2.0
# Tokens of the first run.
FIRST_TOKENS = 8
# Power of the length by which time grows, until two lengths have been run.
ASSUMED_EXPONENT = 2
# Time grows at least like the length beyond the measured ones: what does not depend on it counts less and less.
MIN_FAR_EXPONENT = 1.0
# Time grows at most like this power of the length: as many passes as tokens, each over all pairs of tokens.
MAX_EXPONENT = 3.0


def constant_load(length: int) -> float:
    """Return 1: every token takes the same work."""
    return 1.0


def estimate_seconds(work: Work, batches: Sequence[Batch], load: Load = constant_load) -> float:
    """Return the seconds of some work on all batches.

    One input of the largest batch is run at lengths that double from 8 tokens, then with more and more inputs, as long
    as that is expected to stay within BUDGET seconds. The rest is extrapolated: by the power law through the last
    length and the one before the one before it, and linearly in the number of inputs. `load` tells what short runs do
    not show, such as attention to many tokens.
    """
    measurement = _measure_largest(_Measurement(work, load), batches)
    return sum(map(measurement.predict_batch, batches))


def _measure_largest(measurement: "_Measurement", batches: Sequence[Batch]) -> "_Measurement":
    largest = max(batches, key=count_tokens)
    measurement.run_lengths(largest)
    measurement.run_rows(largest)
    return measurement


def count_tokens(batch: Batch) -> int:
    """Return the tokens of a batch with its padding; an image, which has no length, counts as one."""
    return len(batch) * _length(batch)


def _length(batch: Batch) -> int:
    return max(1, *(row.length for row in batch))


def _find_longest(batch: Batch) -> Encoded:
    return max(batch, key=lambda row: row.length)


@dataclass
class _Timing:
    """Seconds of a run by its number of tokens or inputs."""

    size: int
    seconds: float


class _Measurement:
    """Runs of increasing length, and of increasing numbers of inputs."""

    def __init__(self, work: Work, load: Load = constant_load) -> None:
        self.work = work
        self.load = load
        self.spent = 0.0
        self.lengths: list[_Timing] = []
        # Seconds of another input in a batch, relative to the first.
        self.share_of_further_rows = 1.0

    def run_lengths(self, batch: Batch) -> None:
        """Run one input, shortened to more and more tokens."""
        row = _find_longest(batch)
        for tokens in _double(FIRST_TOKENS, max(1, row.length)):
            if not self._affords_length(tokens):
                return
            self._run_length(shorten(row, tokens))
            # Images cannot be shortened.
            if self.lengths[-1].size >= row.length:
                return

    def _affords_length(self, tokens: int) -> bool:
        """Return whether a run of this length is expected to stay within the budget; the first always is run."""
        return not self.lengths or self._fits(self._predict_row(tokens))

    def _run_length(self, row: Encoded) -> None:
        # Prompts are no shorter than their answers.
        if self.lengths and row.length <= self.lengths[-1].size:
            return
        seconds = self._measure_row(row)
        self.lengths.append(_Timing(max(1, row.length), seconds))

    def _measure_row(self, row: Encoded) -> float:
        seconds = self._measure([row])
        # The first run also pays for setup: compiled kernels, caches.
        if not self.lengths and self._fits(seconds):
            return min(seconds, self._measure([row]))
        return seconds

    def run_rows(self, batch: Batch) -> None:
        """Run more and more inputs of the full length, if one of them was run."""
        row = _find_longest(batch)
        if len(batch) < 2 or self.lengths[-1].size < row.length:
            return
        alone = self.lengths[-1].seconds
        for count in _double(2, len(batch)):
            if not self._fits(count * alone):
                return
            further = self._measure([row] * count) - alone
            self.share_of_further_rows = max(0.0, further / ((count - 1) * alone))

    def _fits(self, seconds: float) -> bool:
        return self.spent + seconds <= BUDGET

    def _measure(self, batch: Batch) -> float:
        start = time.perf_counter()
        self.work(batch)
        seconds = time.perf_counter() - start
        self.spent += seconds
        return seconds

    def predict_batch(self, batch: Batch) -> float:
        return self.predict(len(batch), _length(batch))

    def predict(self, rows: int, length: int) -> float:
        """Return the seconds of so many inputs of a length."""
        return self._predict_row(length) * (1 + (rows - 1) * self.share_of_further_rows)

    def _predict_row(self, length: int) -> float:
        """Return the seconds of one input, by the power law through two measured lengths, if possible around it."""
        if len(self.lengths) == 1:
            return self._predict_from_first(length)
        if length > self.lengths[-1].size:
            return self._predict_far(length)
        index = self._find_length(length)
        return _extrapolate(self.lengths[index - 1], self.lengths[index], length)

    def _predict_far(self, length: int) -> float:
        """Return the seconds of one input that is longer than all measured ones."""
        last = self.lengths[-1]
        # Not by neighbours, which would make much of their noise: it grows with every doubling beyond them.
        exponent = max(MIN_FAR_EXPONENT, _find_exponent(self.lengths[-3:][0], last))
        growth: float = (length / last.size) ** exponent
        return last.seconds * growth * self.load(length) / self.load(last.size)

    def _predict_from_first(self, length: int) -> float:
        first = self.lengths[0]
        return first.seconds * max(1.0, length / first.size) ** ASSUMED_EXPONENT

    def _find_length(self, length: int) -> int:
        """Return the index of the first measured length that is not shorter, at least 1."""
        sizes = [timing.size for timing in self.lengths[1:]]
        return 1 + bisect_left(sizes, length)


def _extrapolate(first: _Timing, second: _Timing, size: int) -> float:
    if first.size == second.size:
        return second.seconds
    return float(second.seconds * (size / second.size) ** _find_exponent(first, second))


def _find_exponent(first: _Timing, second: _Timing) -> float:
    return _limit_exponent(_log_ratio(second.seconds, first.seconds) / _log_ratio(second.size, first.size))


def _log_ratio(second: float, first: float) -> float:
    return math.log(second / first)


def _limit_exponent(exponent: float) -> float:
    # Noise of short runs must not make longer ones cheaper, or grow without bounds.
    return min(max(exponent, 0.0), MAX_EXPONENT)


def _double(first: int, last: int) -> list[int]:
    """Return first, twice first … and last."""
    sizes = []
    size = first
    while size < last:
        sizes.append(size)
        size *= 2
    return [*sizes, last]
