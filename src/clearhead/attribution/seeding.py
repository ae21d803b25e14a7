"""Random generators that depend on a seed and one input, not on the batch."""

import zlib

import torch

from clearhead.engine.trace import Trace


def make_generator(trace: Trace, row: int, seed: int) -> torch.Generator:
    """Return a generator for one input, the same whatever shares its batch."""
    checksum = zlib.crc32(str(seed).encode(), zlib.crc32(trace.contents[row]))
    return torch.Generator().manual_seed(checksum)


def make_numbered_generator(trace: Trace, row: int, seed: int, number: int) -> torch.Generator:
    """Return a generator for one draw of one input, so that draws can be made in any order."""
    first = torch.randint(2**32, (1,), generator=make_generator(trace, row, seed))
    # Steps of 2³² / φ keep the seeds of neighbouring draws far apart.
    return torch.Generator().manual_seed((int(first) + number * 0x9E3779B9) % 2**32)
