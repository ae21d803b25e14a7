"""One thread per worker: the suite runs two workers side by side."""

import torch

torch.set_num_threads(1)
