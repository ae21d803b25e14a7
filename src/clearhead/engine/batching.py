"""Batches within a token budget, halved when memory runs out."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.engine.forecast import Forecast
from clearhead.engine.memory_errors import is_out_of_memory
from clearhead.errors import BadOption
from clearhead.progress import progress
from clearhead.validation import require_integer


def in_batches(
    lengths: Sequence[int],
    compute: Callable[[int, int], None],
    *,
    tokens: int,
    size: int | None = None,
    alike: bool = False,
    label: str = "model",
    overhead: int | None = None,
) -> None:
    """Call compute(start, stop) for consecutive rows, as many at a time as fit into `tokens`.

    The first row of a batch counts as its longest. `size` fixes the number of rows instead; `alike` starts a new batch
    where the length changes, `overhead` where that saves more than so many tokens of padding. Without a size, `tokens`
    is halved whenever memory runs out; compute must leave nothing behind when it fails.
    """
    if size is not None:
        require_integer("batch", size)
    start = 0
    forecast = Forecast(lengths)
    with progress(len(lengths), label) as advance:
        while start < len(lengths):
            rows = lengths[start : start + _count_rows(lengths, start, tokens, size, alike)]
            stop = start + _drop_padding(rows, overhead)
            if _fits(compute, start, stop):
                advance(stop - start)
                start = stop
                forecast.report(start)
            else:
                _free_cached_memory()
                _require_smaller_batch(stop - start, size)
                # Half of the rows that failed.
                tokens = (stop - start) // 2 * lengths[start]


def _count_rows(lengths: Sequence[int], start: int, tokens: int, size: int | None, alike: bool) -> int:
    """Return the number of rows in the batch that starts here."""
    if size is None:
        size = _rows_within(tokens, lengths[start])
    rows = lengths[start : start + size]
    if alike:
        # Rows come sorted by length, so those of the first length are consecutive.
        return rows.count(rows[0])
    return len(rows)


def _drop_padding(lengths: Sequence[int], overhead: int | None) -> int:
    """Return how many of the rows, the longest first, share a batch if the others get a narrower one of their own."""
    if overhead is None:
        return len(lengths)
    saved_N = _count_saved(np.asarray(lengths))
    return int(saved_N.argmax()) if saved_N.max() > overhead else len(lengths)


def _count_saved(lengths_N: Array) -> Array:
    """Return the tokens of padding that a second batch saves if it begins with each of the rows."""
    saved_N: Array = np.arange(len(lengths_N), 0, -1) * (lengths_N[0] - lengths_N)
    return saved_N


def _rows_within(tokens: int, length: int) -> int:
    # At least one row: a single input may be longer than the budget, and an empty one has no length.
    return max(1, tokens // max(1, length))


def _fits(compute: Callable[[int, int], None], start: int, stop: int) -> bool:
    """Compute a batch and return whether memory sufficed."""
    try:
        compute(start, stop)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def _free_cached_memory() -> None:
    # Torch keeps the blocks of a failed batch, which may not fit the sizes of the next.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _require_smaller_batch(rows: int, size: int | None) -> None:
    """Raise BadOption if no smaller batch than the one that failed can be tried."""
    if size is not None:
        raise BadOption(
            f"A batch of {rows} rows does not fit into memory: use a smaller batch size, or none to find it "
            "automatically."
        )
    if rows == 1:
        raise BadOption("Even a single input does not fit into memory: use a shorter input or another device.")
