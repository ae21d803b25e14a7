"""Random generators that depend on a seed and one input, not on the batch."""

from weakref import WeakKeyDictionary
from zlib import crc32

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.engine.streams import copy_to_host
from clearhead.engine.trace import Trace

# Draws are many and inputs are few, so the contents of a trace's inputs are fetched once.
_CONTENTS: WeakKeyDictionary[Trace, list[bytes]] = WeakKeyDictionary()


def make_generator(trace: Trace, row: int, seed: int) -> torch.Generator:
    """Return a generator for one input, the same whatever shares its batch."""
    # A checksum instead of Python's hash, which differs from process to process.
    return _seed_generator(crc32(str(seed).encode(), crc32(_find_contents(trace)[row])))


def _seed_generator(seed: int) -> torch.Generator:
    # On the CPU: generators of different devices give different numbers.
    return torch.Generator().manual_seed(seed)


def _find_contents(trace: Trace) -> list[bytes]:
    if trace not in _CONTENTS:
        _CONTENTS[trace] = _read_contents(trace)
    return _CONTENTS[trace]


def make_numbered_generator(trace: Trace, row: int, seed: int, number: int) -> torch.Generator:
    """Return a generator for one draw of one input, so that draws can be made in any order."""
    # Steps of 2³² / φ keep the seeds of neighbouring draws far apart.
    return _seed_generator((_draw_seed(trace, row, seed) + number * 0x9E3779B9) % 2**32)


def _draw_seed(trace: Trace, row: int, seed: int) -> int:
    return int(torch.randint(2**32, (1,), generator=make_generator(trace, row, seed)))


def _read_contents(trace: Trace) -> list[bytes]:
    """Return the ids of each input without padding, or its pixels or embeddings."""
    tensors = trace.inputs.tensors
    # Ids where there are some: random numbers must not depend on device or precision.
    if "input_ids" in tensors:
        return _read_ids(tensors["input_ids"], trace.real_BT)
    name = "pixel_values" if trace.is_image else "inputs_embeds"
    return [row.tobytes() for row in _fetch_float32(tensors[name])]


def _read_ids(ids_BT: Tensor, mask_BT: Tensor) -> list[bytes]:
    """Return the ids of each input without padding."""
    # Padding depends on the longest input of the batch.
    pairs = zip(_fetch_float32(ids_BT), mask_BT.numpy(), strict=True)
    return [ids_T[mask_T].tobytes() for ids_T, mask_T in pairs]


def _fetch_float32(tensor: Tensor) -> Array:
    array: Array = copy_to_host(tensor.detach()).to(torch.float32).numpy()
    return array
