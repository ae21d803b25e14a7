"""Methods over gradients at other places than the input: noisy neighbours, and the way from a baseline."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.baselines import (
    completeness_gap,
    interpolate,
    make_baseline,
    score_effects,
    with_diagnostics,
    zeros_for_sum,
)
from clearhead.attribution.gradient import product_scores
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_numbered_generator
from clearhead.attribution.smoothgrad import noisy_points
from clearhead.engine.embeddings import Point, gradients_at
from clearhead.engine.trace import Trace
from clearhead.validation import require_integer, require_number

STEPS_LIMIT = 1600


@method(paper="Sundararajan et al. 2017", signed=True, class_specific=True)
def integrated_gradients(
    trace: Trace,
    *,
    steps: int = 25,
    baseline: str = "zero",
    tolerance: float | None = None,
    limit: int = STEPS_LIMIT,
    batch: int | None = None,
) -> Attribution:
    """Gradients along the straight way from a baseline to the input (Gauss–Legendre), times the way.

    `baseline` is "zero", or the "pad" or "mask" embedding at every token that is not special; for images "zero" or
    "black". With a `tolerance` the steps are doubled, input by input, until `completeness_gap` is no larger, but
    not beyond `limit`.
    """
    require_integer("steps", steps)
    require_integer("limit", limit)
    if tolerance is not None:
        require_number("tolerance", tolerance, 0)
    base = make_baseline(trace, baseline)
    effect_B = score_effects(trace, base, batch)
    product = zeros_for_sum(trace.leaf)
    used = [0] * len(product)
    open_samples, count = list(range(len(product))), steps
    while open_samples:
        product[open_samples] = _integral(trace, base, open_samples, count, batch)
        for sample in open_samples:
            used[sample] = count
        gap_B = completeness_gap(trace, product, effect_B)
        open_samples = [one for one in open_samples if tolerance is not None and gap_B[one] > tolerance]
        count *= 2
        open_samples = open_samples if count <= limit else []
    diagnostics = [
        {"completeness_gap": float(gap), "effect": float(effect), "steps": number, "baseline": baseline}
        for gap, effect, number in zip(gap_B, effect_B, used, strict=True)
    ]
    return with_diagnostics(product_scores(trace, product), diagnostics)


def _integral(trace: Trace, base: Tensor, samples: list[int], steps: int, batch: int | None) -> Tensor:
    """Mean gradient on the way × the way, for some of the samples."""
    nodes, weights = gauss_legendre(steps)
    shares = [(node + 1) / 2 for node in nodes]
    points = [Point(one, partial(interpolate, trace, base, one, share)) for one in samples for share in shares]
    mean = zeros_for_sum(trace.leaf[samples])

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        mean[number // steps] += gradient * (weights[number % steps] / 2)

    gradients_at(trace, points, receive, batch=batch)
    return mean * (trace.leaf - base)[samples]


def gauss_legendre(steps: int) -> tuple[Array, Array]:
    """Nodes in (−1, 1) and weights, by Newton's method.

    NumPy's own solves an eigenvalue problem, which takes seconds for a thousand steps and cannot be interrupted.
    """
    node_N = np.cos(np.pi * (np.arange(steps, 0, -1) - 0.25) / (steps + 0.5))
    for _ in range(6):
        before_N, here_N = np.ones(steps), node_N
        for degree in range(2, steps + 1):
            before_N, here_N = here_N, ((2 * degree - 1) * node_N * here_N - (degree - 1) * before_N) / degree
        slope_N = steps * (node_N * here_N - before_N) / (node_N**2 - 1)
        node_N = node_N - here_N / slope_N
    return node_N, 2 / ((1 - node_N**2) * slope_N**2)


@method(paper="Lundberg & Lee 2017; decoded paper's GradientShap", signed=True, class_specific=True)
def gradient_shap(
    trace: Trace,
    *,
    samples: int = 5,
    baseline: str = "zero",
    noise: float = 0.0,
    seed: int = 0,
    batch: int | None = None,
) -> Attribution:
    """Gradients at random places between a baseline and the (noisy) input, times the way, averaged."""
    require_integer("samples", samples)
    base = make_baseline(trace, baseline)
    product = zeros_for_sum(trace.leaf)
    ends = noisy_points(trace, samples, noise, seed)
    shares = [_share(trace, end.sample, seed, number % samples) for number, end in enumerate(ends)]
    points = [
        Point(end.sample, partial(_towards, base[end.sample], end, share))
        for end, share in zip(ends, shares, strict=True)
    ]

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        end = ends[number]
        product[end.sample] += gradient * (end.make() - base[end.sample]) / samples

    gradients_at(trace, points, receive, batch=batch)
    effect_B = score_effects(trace, base, batch)
    gap_B = completeness_gap(trace, product, effect_B)
    diagnostics = [
        {
            "samples": samples,
            "seed": seed,
            "baseline": baseline,
            "completeness_gap": float(gap),
            "effect": float(effect),
        }
        for gap, effect in zip(gap_B, effect_B, strict=True)
    ]
    return with_diagnostics(product_scores(trace, product), diagnostics)


def _share(trace: Trace, sample: int, seed: int, number: int) -> float:
    return float(
        torch.rand(1, dtype=torch.float64, generator=make_numbered_generator(trace, sample, seed, -1 - number))
    )


def _towards(base: Tensor, end: Point, share: float) -> Tensor:
    return base + share * (end.make() - base)
