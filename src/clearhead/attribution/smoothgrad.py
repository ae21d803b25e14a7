"""TODO."""

from functools import partial

import torch
from torch import Tensor

from clearhead.attribution.baselines import zeros_for_sum
from clearhead.attribution.gradient import norm_scores
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_numbered_generator
from clearhead.engine.embeddings import Point, gradients_at
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.validation import require_integer


@method(paper="Smilkov et al. 2017; decoded paper's SmoothGrad", signed=False, class_specific=True)
def smooth_gradient(
    trace: Trace, *, samples: int = 10, noise: float = 0.1, seed: int = 0, batch: int | None = None
) -> Attribution:
    """The `gradient` scores averaged over inputs with Gaussian noise, `noise` × the range of their values."""
    require_integer("samples", samples)
    pixels = zeros_for_sum(trace.leaf[:, 0]) if trace.is_image else None
    sum_BT = torch.zeros_like(trace.mask_BT, dtype=zeros_for_sum(trace.leaf).dtype)
    points = noisy_points(trace, samples, noise, seed)

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        scores = norm_scores(trace, gradient[None])
        sum_BT[points[number].sample] += scores.relevance_BT[0] / samples
        if pixels is not None and scores.pixels_BPQ is not None:
            pixels[points[number].sample] += scores.pixels_BPQ[0] / samples

    gradients_at(trace, points, receive, batch=batch)
    return Attribution(sum_BT, pixels_BPQ=pixels, diagnostics=[{"samples": samples, "seed": seed}] * len(sum_BT))


def noisy_points(trace: Trace, samples: int, noise: float, seed: int) -> list[Point]:
    """Each input `samples` times with noise of its own: the same in any batch and any order."""
    if not noise >= 0:
        raise BadOption(f"noise={noise!r} must be a number, and not negative.")
    places = range(len(trace.leaf))
    return [Point(one, partial(_add_noise, trace, one, noise, seed, n)) for one in places for n in range(samples)]


def _add_noise(trace: Trace, sample: int, noise: float, seed: int, number: int) -> Tensor:
    leaf = trace.leaf[sample]
    real = leaf if trace.is_image else leaf[trace.mask_BT[sample]]
    if noise == 0:
        return leaf
    drawn = torch.randn(real.shape, dtype=torch.float64, generator=make_numbered_generator(trace, sample, seed, number))
    noisy = real + (noise * (real.max() - real.min())) * drawn.to(real)
    if trace.is_image:
        return noisy
    whole = leaf.clone()
    whole[trace.mask_BT[sample]] = noisy
    return whole
