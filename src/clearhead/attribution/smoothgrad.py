"""SmoothGrad, and the noisy inputs that other methods share with it."""

from functools import partial

import torch
from torch import Tensor

from clearhead.attribution.baselines import with_diagnostics, zeros_for_sum
from clearhead.attribution.gradient import attribute_norm
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.sampling_error import TokenSamples
from clearhead.attribution.seeding import make_numbered_generator
from clearhead.engine.embeddings import Point, gradients_at
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.validation import require_integer


@method(paper="Smilkov et al. 2017; decoded paper's SmoothGrad", signed=False, class_specific=True, needs=())
def smooth_gradient(
    trace: Trace, *, samples: int = 100, noise: float = 0.1, seed: int = 0, batch: int | None = None
) -> Attribution:
    """The `gradient` scores averaged over inputs with Gaussian noise, `noise` × the range of their values."""
    require_integer("samples", samples)
    mean = _zero_attribution(trace)
    drawn = TokenSamples(trace, samples)
    points = noisy_points(trace, samples, noise, seed)

    # Norms are averaged, not gradients: those of opposite signs would cancel.
    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        row = points[number].sample
        sample = attribute_norm(trace, gradient[None])
        drawn.add(row, sample.relevance_BT[0])
        _add_share(mean, row, sample, samples)

    gradients_at(trace, points, receive, batch=batch)
    settings = {"samples": samples, "seed": seed}
    return with_diagnostics(mean, [{**settings, "sampling_error": error} for error in drawn.errors()])


def _zero_attribution(trace: Trace) -> Attribution:
    """Return an attribution of zeros, with a pixel map for images."""
    relevance_BT = torch.zeros_like(trace.mask_BT, dtype=zeros_for_sum(trace.leaf).dtype)
    return Attribution(relevance_BT, pixels_BPQ=_zero_pixels(trace))


def _zero_pixels(trace: Trace) -> Tensor | None:
    if not trace.is_image:
        return None
    # One map for all channels.
    return zeros_for_sum(trace.leaf[:, 0])


def _add_share(mean: Attribution, row: int, sample: Attribution, samples: int) -> None:
    """Add one of several samples of an input to the mean, in place."""
    mean.relevance_BT[row] += sample.relevance_BT[0] / samples
    if mean.pixels_BPQ is not None and sample.pixels_BPQ is not None:
        mean.pixels_BPQ[row] += sample.pixels_BPQ[0] / samples


def noisy_points(trace: Trace, samples: int, noise: float, seed: int) -> list[Point]:
    """Return each input `samples` times with noise of its own: the same in any batch and any order."""
    _check_noise(noise)
    points = []
    for row in range(len(trace.leaf)):
        for number in range(samples):
            # A partial: the embeddings of a point are made only when its batch is run.
            points.append(Point(row, partial(_add_noise, trace, row, noise, seed, number)))
    return points


def _check_noise(noise: float) -> None:
    # Written this way round to catch NaN too.
    if not noise >= 0:
        raise BadOption(f"Invalid noise={noise!r}: it must be a number, and not negative.")


def _add_noise(trace: Trace, row: int, noise: float, seed: int, number: int) -> Tensor:
    leaf = trace.leaf[row]
    if noise == 0:
        return leaf
    generator = make_numbered_generator(trace, row, seed, number)
    if trace.is_image:
        return _perturb(leaf, noise, generator)
    return _perturb_tokens(leaf, trace.mask_BT[row], noise, generator)


def _perturb_tokens(leaf: Tensor, mask_T: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    # Padding stays as it is and does not widen the range of values.
    return leaf.masked_scatter(mask_T[:, None], _perturb(leaf[mask_T], noise, generator))


def _perturb(values: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise whose standard deviation is `noise` × the range of the values."""
    return values + noise * _measure_range(values) * _draw_normal(values, generator)


def _measure_range(values: Tensor) -> Tensor:
    return values.max() - values.min()


def _draw_normal(values: Tensor, generator: torch.Generator) -> Tensor:
    # In float64 on the CPU, so that every device and precision gets the same noise.
    return torch.randn(values.shape, dtype=torch.float64, generator=generator).to(values)
