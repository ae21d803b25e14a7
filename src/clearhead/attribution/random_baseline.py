"""Random attribution, the control of every table."""

import numpy as np
import torch
from torch import Tensor

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
    # In NumPy, whose small calls are faster: a table draws many seeds for every input.
    mask_BT = trace.real_BT.numpy()
    noise_BT = np.zeros(mask_BT.shape)
    for row, tokens in enumerate(mask_BT.sum(1).tolist()):
        noise_BT[row, mask_BT[row]] = _draw_noise(trace, row, tokens, seed).numpy()
    # What follows an explained step has no part in it, as for every method.
    if trace.model.writes:
        noise_BT *= trace.query_BT.cpu().numpy()
    diagnostics = [{"seed": seed, "samples": 1}] * len(noise_BT)
    return Attribution(torch.from_numpy(noise_BT), diagnostics=diagnostics)


def _draw_noise(trace: Trace, row: int, tokens: int, seed: int) -> Tensor:
    # On the CPU, so that every device gives the same noise.
    return torch.rand(tokens, dtype=torch.float64, device="cpu", generator=make_generator(trace, row, seed))
