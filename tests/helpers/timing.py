"""How long something takes, on a machine that may be busy with something else."""

import time
from collections.abc import Callable


def quickest(work: Callable[[], object], enough: float, tries: int = 10) -> float:
    """Return the shortest of some durations; stop once one is at most `enough`."""
    shortest = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
        if shortest <= enough:
            break
    return shortest
