"""Path methods: gradients between a baseline and the input."""

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
from clearhead.attribution.gradient import attribute_sum
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_numbered_generator
from clearhead.attribution.smoothgrad import noisy_points
from clearhead.engine.embeddings import Point, gradients_at
from clearhead.engine.trace import Trace
from clearhead.validation import require_integer, require_number

MAX_STEPS = 1600
NEWTON_STEPS = 6
"""Enough for float64: the cosine estimate is close, and Newton's method converges quadratically."""


@method(paper="Sundararajan et al. 2017", signed=True, class_specific=True, needs=())
def integrated_gradients(
    trace: Trace,
    *,
    steps: int = 25,
    baseline: str = "zero",
    tolerance: float | None = None,
    limit: int = MAX_STEPS,
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
    start = make_baseline(trace, baseline)
    effect_B = score_effects(trace, start, batch)
    product = zeros_for_sum(trace.leaf)
    used_steps = [steps] * len(product)
    rows = list(range(len(product)))
    # A finer grid of Gauss–Legendre shares no node with a coarser one, so refined inputs start over.
    while rows:
        product[rows] = _integrate(trace, start, rows, steps, batch)
        gap_B = completeness_gap(trace, product, effect_B)
        for row in rows:
            used_steps[row] = steps
        steps *= 2
        rows = [] if steps > limit else _select_incomplete(rows, gap_B, tolerance)
    diagnostics = []
    for entry, count in zip(_describe_gaps(gap_B, effect_B), used_steps, strict=True):
        diagnostics.append({**entry, "steps": count, "baseline": baseline})
    return with_diagnostics(attribute_sum(trace, product), diagnostics)


def _select_incomplete(rows: list[int], gap_B: Tensor, tolerance: float | None) -> list[int]:
    """Return the inputs whose completeness gap is still above the tolerance."""
    if tolerance is None:
        return []
    return [row for row in rows if gap_B[row] > tolerance]


def _describe_gaps(gap_B: Tensor, effect_B: Tensor) -> list[dict[str, float]]:
    pairs = zip(gap_B.tolist(), effect_B.tolist(), strict=True)
    return [{"completeness_gap": gap, "effect": effect} for gap, effect in pairs]


def _integrate(trace: Trace, start: Tensor, rows: list[int], steps: int, batch: int | None) -> Tensor:
    """Return the mean gradient on the way × the way, for some of the inputs."""
    nodes, weights = gauss_legendre(steps)
    points = []
    for row in rows:
        for node in nodes:
            points.append(Point(row, partial(interpolate, trace, start, row, (node + 1) / 2)))
    mean = zeros_for_sum(trace.leaf[rows])

    # The weights sum to two, the length of (−1, 1).
    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        mean[number // steps] += gradient * (weights[number % steps] / 2)

    gradients_at(trace, points, receive, batch=batch)
    return mean * (trace.leaf - start)[rows]


def gauss_legendre(steps: int) -> tuple[Array, Array]:
    """Return the nodes in (−1, 1) and the weights of Gauss–Legendre quadrature, by Newton's method."""
    # NumPy's leggauss solves an eigenvalue problem: seconds for a thousand steps, and it cannot be interrupted.
    node_N = np.cos(np.pi * (np.arange(steps, 0, -1) - 0.25) / (steps + 0.5))
    for _ in range(NEWTON_STEPS):
        previous_N = np.ones(steps)
        current_N = node_N
        # Bonnet's recursion for Legendre polynomials.
        for degree in range(2, steps + 1):
            next_N = ((2 * degree - 1) * node_N * current_N - (degree - 1) * previous_N) / degree
            previous_N = current_N
            current_N = next_N
        slope_N = steps * (node_N * current_N - previous_N) / (node_N**2 - 1)
        node_N = node_N - current_N / slope_N
    return node_N, 2 / ((1 - node_N**2) * slope_N**2)


@method(paper="Lundberg & Lee 2017; decoded paper's GradientShap", signed=True, class_specific=True, needs=())
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
    start = make_baseline(trace, baseline)
    product = zeros_for_sum(trace.leaf)
    ends = noisy_points(trace, samples, noise, seed)
    points = []
    for number, end in enumerate(ends):
        share = _draw_share(trace, end.sample, seed, number % samples)
        points.append(Point(end.sample, partial(_interpolate_to, start[end.sample], end, share)))

    # Gradients are added up as they come, so that only one batch of them exists at a time.
    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        end = ends[number]
        product[end.sample] += gradient * (end.make() - start[end.sample]) / samples

    gradients_at(trace, points, receive, batch=batch)
    effect_B = score_effects(trace, start, batch)
    gap_B = completeness_gap(trace, product, effect_B)
    settings = {"samples": samples, "seed": seed, "baseline": baseline}
    diagnostics = [{**settings, **entry} for entry in _describe_gaps(gap_B, effect_B)]
    return with_diagnostics(attribute_sum(trace, product), diagnostics)


def _draw_share(trace: Trace, row: int, seed: int, number: int) -> float:
    """Draw how far between baseline and input a sample lies."""
    # Negative numbers, because those from zero on belong to the noise of the same input.
    generator = make_numbered_generator(trace, row, seed, -1 - number)
    return float(torch.rand(1, dtype=torch.float64, generator=generator))


def _interpolate_to(start: Tensor, end: Point, share: float) -> Tensor:
    return start + share * (end.make() - start)
