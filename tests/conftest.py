"""One thread per worker: the suite runs two workers side by side. Interpreted kernels run on the CPU."""

import os

import torch

from clearhead.engine.lrp.kernels import dispatch as fused

torch.set_num_threads(1)
if os.environ.get("TRITON_INTERPRET") == "1":
    fused.DEVICES.add("cpu")
