"""TODO."""

import zlib

import torch

from clearhead.engine.trace import Trace


def make_generator(trace: Trace, place: int, seed: int) -> torch.Generator:
    """Random numbers that depend on the seed and on this one input, whatever shares its batch."""
    return torch.Generator().manual_seed(zlib.crc32(str(seed).encode(), zlib.crc32(trace.contents[place])))


def make_numbered_generator(trace: Trace, sample: int, seed: int, number: int) -> torch.Generator:
    """A generator for one draw of one input, so that draws can be made in any order."""
    first = torch.randint(2**32, (1,), generator=make_generator(trace, sample, seed))
    return torch.Generator().manual_seed((int(first) + number * 0x9E3779B9) % 2**32)
