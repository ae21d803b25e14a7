"""Full batches: how many rows fit into one pass, halved when memory runs out, with a bar for what takes longer."""

from collections.abc import Callable, Sequence

import torch

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
) -> None:
    """Calls compute(start, stop) over all rows, as many at a time as `tokens` allows for the longest of them.

    `size` fixes the number of rows instead; `alike` keeps rows of different lengths apart. Without a size, `tokens`
    is halved whenever memory runs out; compute must leave nothing behind when it fails.
    """
    if size is not None:
        require_integer("batch", size)
    start = 0
    with progress(len(lengths), label) as advance:
        while start < len(lengths):
            rows = lengths[start : start + (size or max(1, tokens // max(1, lengths[start])))]
            stop = start + (rows.count(rows[0]) if alike else len(rows))
            if _fits(compute, start, stop):
                advance(stop - start)
                start = stop
            else:
                _make_room(stop - start, size)
                tokens = (stop - start) // 2 * lengths[start]


def _fits(compute: Callable[[int, int], None], start: int, stop: int) -> bool:
    try:
        compute(start, stop)
    except (torch.OutOfMemoryError, MemoryError):
        return False
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return False
    return True


def _make_room(rows: int, size: int | None) -> None:
    """Frees what the failed batch held, or says why a smaller one cannot be tried."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if size is not None:
        raise BadOption(f"A batch of {rows} rows does not fit into memory: give a smaller one, or none to find it.")
    if rows == 1:
        raise BadOption("Even a single input does not fit into memory: use a shorter input or another device.")
