"""SmoothGrad, and the noisy inputs that other methods share with it."""

from functools import partial

import torch
from torch import Tensor

from clearhead.attribution.baselines import zeros_for_sum
from clearhead.attribution.gradient import attribute_norm
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_numbered_generator
from clearhead.engine.embeddings import Point, gradients_at
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.validation import require_integer


@method(paper="Smilkov et al. 2017; decoded paper's SmoothGrad", signed=False, class_specific=True, needs=())
def smooth_gradient(
    trace: Trace, *, samples: int = 10, noise: float = 0.1, seed: int = 0, batch: int | None = None
) -> Attribution:
    """The `gradient` scores averaged over inputs with Gaussian noise, `noise` × the range of their values."""
    require_integer("samples", samples)
    sum_BPQ = zeros_for_sum(trace.leaf[:, 0]) if trace.is_image else None
    sum_BT = torch.zeros_like(trace.mask_BT, dtype=zeros_for_sum(trace.leaf).dtype)
    points = noisy_points(trace, samples, noise, seed)

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        row = points[number].sample
        attribution = attribute_norm(trace, gradient[None])
        sum_BT[row] += attribution.relevance_BT[0] / samples
        if sum_BPQ is not None and attribution.pixels_BPQ is not None:
            sum_BPQ[row] += attribution.pixels_BPQ[0] / samples

    gradients_at(trace, points, receive, batch=batch)
    return Attribution(sum_BT, pixels_BPQ=sum_BPQ, diagnostics=[{"samples": samples, "seed": seed}] * len(sum_BT))


def noisy_points(trace: Trace, samples: int, noise: float, seed: int) -> list[Point]:
    """Return each input `samples` times with noise of its own: the same in any batch and any order."""
    if not noise >= 0:
        raise BadOption(f"Invalid noise={noise!r}: it must be a number, and not negative.")
    points = []
    for row in range(len(trace.leaf)):
        for number in range(samples):
            points.append(Point(row, partial(_add_noise, trace, row, noise, seed, number)))
    return points


def _add_noise(trace: Trace, row: int, noise: float, seed: int, number: int) -> Tensor:
    leaf = trace.leaf[row]
    if noise == 0:
        return leaf
    # Padding stays as it is and does not widen the range of values.
    mask_T = None if trace.is_image else trace.mask_BT[row]
    real = leaf if mask_T is None else leaf[mask_T]
    generator = make_numbered_generator(trace, row, seed, number)
    # In float64 on the CPU, so that every device and precision gets the same noise.
    drawn = torch.randn(real.shape, dtype=torch.float64, generator=generator)
    noisy = real + (noise * (real.max() - real.min())) * drawn.to(real)
    if mask_T is None:
        return noisy
    padded = leaf.clone()
    padded[mask_T] = noisy
    return padded
