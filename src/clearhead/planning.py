"""What an explanation will need, told before it is made: memory for the whole trace and block by block, and time."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from clearhead.blockwise import PROBE, probe, tokens_in
from clearhead.inputs import Inputs
from clearhead.model import Model

KEPT = 0.9
"""Part of the activations that is still there when the way back begins (the rest was only passing)."""
PASSING_MAPS = 3
"""Maps of one block that exist at a time on the way back, besides those kept."""
ROOM = 0.9
WORTH_ASKING = 16 * 512**2
MEMINFO = Path("/proc/meminfo")
UNKNOWN = 2**62


@dataclass(frozen=True)
class Memory:
    """Bytes that a batch takes besides the model: traced as a whole, and block by block."""

    whole: int
    blockwise: int
    free: int

    @property
    def fits(self) -> bool:
        return self.whole <= ROOM * self.free


def memory(model: Model, batch: Inputs) -> Memory:
    """From a short probe of the same network: every activation, scaled to the batch's rows and tokens."""
    trace, rows = probe(model, batch), len(batch)
    tokens, short = tokens_in(batch), min(PROBE, tokens_in(batch))
    sizes = [
        (_scaled(shape, short, tokens) * rows * item, shape.count(short)) for shape, item in trace.forward.tape.made
    ]
    maps = [_scaled(one.map.shape, short, tokens) * rows * one.map.element_size() for one in trace.forward.tape.blocks]
    rest = int(KEPT * sum(size for size, token_axes in sizes if token_axes < 2))
    blocks = max(1, len(maps))
    hidden = sum(size for size, token_axes in sizes if token_axes == 1) // (8 * blocks)
    passing = PASSING_MAPS * max(maps, default=0)
    whole = rest + 2 * sum(maps) + passing
    return Memory(whole, rest // blocks + hidden + 2 * max(maps, default=0) + passing, free_bytes(model.device))


def _scaled(shape: Sequence[int], short: int, tokens: int) -> int:
    return prod(tokens if short and axis == short else axis for axis in shape)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had; on a GPU torch's own store counts as free."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    found = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text()) if MEMINFO.exists() else None
    return int(found[1]) * 1024 if found else UNKNOWN


def fits(model: Model, batch: Inputs) -> bool:
    """Whether a batch can be traced as a whole. Small ones are not looked at: asking costs a short pass."""
    return len(batch) * tokens_in(batch) ** 2 < WORTH_ASKING or memory(model, batch).fits


def seconds(work: Callable[[int], None], lengths: Sequence[int]) -> float:
    """Time for inputs of these lengths, from three of them: the shortest, a middle one and the longest.

    `work(place)` does the one at that place. Between the lengths that were timed the cost is taken as straight.
    """
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    known: dict[int, float] = {}
    work(order[0])
    for place in dict.fromkeys((order[0], order[len(order) // 2], order[-1])):
        begun = time.perf_counter()
        work(place)
        known[lengths[place]] = time.perf_counter() - begun
    return sum(_between(known, length) for length in lengths)


def _between(known: dict[int, float], length: int) -> float:
    marks = sorted(known)
    above = next((mark for mark in marks if mark >= length), marks[-1])
    below = next((mark for mark in reversed(marks) if mark <= length), marks[0])
    if above == below:
        return known[above]
    share = (length - below) / (above - below)
    return known[below] + share * (known[above] - known[below])
