"""The control that every table needs."""

import zlib

import numpy as np
import torch

from clearhead.attribution.method import Scores, method
from clearhead.engine.trace import Trace


@method(paper="decoded paper's Random", signed=False, class_specific=False)
def random(trace: Trace, *, seed: int = 0) -> Scores:
    """Uniform noise that depends on the seed and the input alone, not on the batch."""
    mask_BT = trace.real_BT.numpy()
    noise_BT = np.zeros(mask_BT.shape)
    for place, length in enumerate(mask_BT.sum(1).tolist()):
        drawn = generator(trace, place, seed)
        noise_T = torch.rand(length, dtype=torch.float64, device="cpu", generator=drawn)
        noise_BT[place, mask_BT[place]] = noise_T.numpy()
    return Scores(torch.from_numpy(noise_BT), diagnostics=[{"seed": seed, "samples": 1}] * len(noise_BT))


def generator(trace: Trace, place: int, seed: int) -> torch.Generator:
    """Random numbers that depend on the seed and on this one input, whatever shares its batch."""
    return torch.Generator().manual_seed(zlib.crc32(str(seed).encode(), zlib.crc32(trace.contents[place])))
