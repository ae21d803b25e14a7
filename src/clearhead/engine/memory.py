"""What an explanation will need, told before it is made: memory for the whole trace and block by block, and time."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.engine.lrp.kernels.dispatch import DEVICES
from clearhead.model.inputs import Inputs, longest_text
from clearhead.model.model import Model

VECTORS = 18
"""Hidden states' worth of activations that a block keeps for the way back, besides its wide layer."""
PASSING = 5
"""Maps of one block that exist at a time on the way back."""
ROOM = 0.9
MEMINFO = Path("/proc/meminfo")
UNKNOWN = 2**62
LONG = 2.0
"""Seconds of work beside which what comes once does not count."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a batch takes besides the model: traced as a whole, and block by block."""

    whole: int
    blockwise: int
    free: int

    @property
    def fits(self) -> bool:
        return self.whole <= ROOM * self.free


def estimate_memory(model: Model, batch: Inputs) -> MemoryEstimate:
    """From the model's description and the size of the batch; nothing is run, and nothing told is nothing needed."""
    config, rows = getattr(model.network, "config", None), len(batch)
    blocks, heads, width = (_told(config, name) for name in SIZES)
    wide = _told(config, "intermediate_size") or 4 * width
    tokens = longest_text(batch) or image_tokens(config)
    item = model.dtype.itemsize
    kept = VECTORS * width + wide * (1 if model.device.type in DEVICES else 2)
    block, attention = rows * tokens * kept * item, rows * heads * tokens**2 * item
    whole = blocks * (block + 2 * attention) + (PASSING - 2) * attention
    blockwise = block + PASSING * attention + blocks * rows * (tokens * width + tokens**2) * item
    return MemoryEstimate(whole, blockwise, free_bytes(model.device))


UNUSED = {"all": {"current": 0}}
SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size")


def image_tokens(config: Any) -> int:
    """Patches of a picture, and a class token."""
    size, patch = _told(config, "image_size"), _told(config, "patch_size")
    return (size // patch) ** 2 + 1 if patch else 0


def _told(config: Any, name: str) -> int:
    """A number of the description; 0 where it says nothing, or something for every stage apart."""
    found = getattr(config, name, 0)
    return found if isinstance(found, int) else 0


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had; on a GPU torch's own store counts as free."""
    if device.type == "cuda":
        (free, _), store = torch.cuda.mem_get_info(device), torch.cuda.memory_stats_as_nested_dict(device)
        reserved, used = (store.get(f"{name}_bytes", UNUSED)["all"]["current"] for name in ("reserved", "allocated"))
        return int(free + reserved - used)
    found = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text()) if MEMINFO.exists() else None
    return int(found[1]) * 1024 if found else UNKNOWN


def fits_in_memory(model: Model, batch: Inputs) -> bool:
    """Whether a batch can be traced as a whole."""
    return estimate_memory(model, batch).fits


def estimate_seconds(work: Callable[[int], None], sizes: Sequence[int]) -> float:
    """Time for batches of these sizes, from three of them: the smallest, a middle one and the largest.

    `work(place)` does the one at that place. Between the sizes that were timed the cost is taken as straight. What
    comes once, at the beginning, is left out by doing the smallest twice, unless that takes long.
    """
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    known = {sizes[order[0]]: _timed(work, order[0])}
    if known[sizes[order[0]]] < LONG:
        known.clear()
    for place in (order[0], order[len(order) // 2], order[-1]):
        if sizes[place] not in known:
            known[sizes[place]] = _timed(work, place)
    return sum(_between(known, size) for size in sizes)


def _timed(work: Callable[[int], None], place: int) -> float:
    begun = time.perf_counter()
    work(place)
    return time.perf_counter() - begun


def _between(known: dict[int, float], size: int) -> float:
    marks = sorted(known)
    above = next((mark for mark in marks if mark >= size), marks[-1])
    below = next((mark for mark in reversed(marks) if mark <= size), marks[0])
    if above == below:
        return known[above]
    share = (size - below) / (above - below)
    return known[below] + share * (known[above] - known[below])
