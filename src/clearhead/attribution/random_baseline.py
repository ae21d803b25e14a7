"""The control that every table needs."""

import numpy as np
import torch

from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_generator
from clearhead.engine.trace import Trace


@method(paper="decoded paper's Random", signed=False, class_specific=False)
def random(trace: Trace, *, seed: int = 0) -> Attribution:
    """Uniform noise that depends on the seed and the input alone, not on the batch."""
    mask_BT = trace.real_BT.numpy()
    noise_BT = np.zeros(mask_BT.shape)
    for place, length in enumerate(mask_BT.sum(1).tolist()):
        drawn = make_generator(trace, place, seed)
        noise_T = torch.rand(length, dtype=torch.float64, device="cpu", generator=drawn)
        noise_BT[place, mask_BT[place]] = noise_T.numpy()
    return Attribution(torch.from_numpy(noise_BT), diagnostics=[{"seed": seed, "samples": 1}] * len(noise_BT))
