"""Random attribution, the control of every table."""

import numpy as np
import torch

from clearhead.attribution.method import Attribution, always, method
from clearhead.attribution.seeding import make_generator
from clearhead.engine.trace import Trace


@method(
    paper="decoded paper's Random",
    signed=False,
    class_specific=False,
    needs=(),
    blockwise=always,
    is_control=True,
    seeds=20,
)
def random(trace: Trace, *, seed: int = 0) -> Attribution:
    """Uniform noise that depends on the seed and the input alone, not on the batch."""
    # Drawn on the CPU, so that every device gives the same noise.
    mask_BT = trace.real_BT.numpy()
    noise_BT = np.zeros(mask_BT.shape)
    for row, length in enumerate(mask_BT.sum(1).tolist()):
        generator = make_generator(trace, row, seed)
        noise_T = torch.rand(length, dtype=torch.float64, device="cpu", generator=generator)
        noise_BT[row, mask_BT[row]] = noise_T.numpy()
    return Attribution(torch.from_numpy(noise_BT), diagnostics=[{"seed": seed, "samples": 1}] * len(noise_BT))
