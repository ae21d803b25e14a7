"""How long something takes, on a machine that may be busy with something else."""

import time
from collections.abc import Callable


def quickest(work: Callable[[], object], enough: float, tries: int = 10) -> float:
    """The shortest time of several, tried until one is short enough."""
    took = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        work()
        took = min(took, time.perf_counter() - started)
        if took <= enough:
            break
    return took
