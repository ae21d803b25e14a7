"""Path methods: gradients between a baseline and the input."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.baselines import BaselinePath, interpolate, make_baseline, with_diagnostics, zeros_for_sum
from clearhead.attribution.gradient import attribute_sum
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.sampling_error import TokenSamples
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
    _check_steps(steps, limit, tolerance)
    path = BaselinePath(trace, make_baseline(trace, baseline), batch)
    integral = _integrate_all(path, steps, limit, tolerance)
    diagnostics = _describe_steps(path.describe(integral.product), integral.steps, baseline)
    return with_diagnostics(attribute_sum(trace, integral.product), diagnostics)


def _describe_steps(entries: list[dict[str, Any]], steps: list[int], baseline: str) -> list[dict[str, Any]]:
    pairs = zip(entries, steps, strict=True)
    return [{**entry, "steps": used_steps, "baseline": baseline} for entry, used_steps in pairs]


def _check_steps(steps: int, limit: int, tolerance: float | None) -> None:
    require_integer("steps", steps)
    require_integer("limit", limit)
    if tolerance is not None:
        require_number("tolerance", tolerance, 0)


@dataclass(frozen=True)
class _Integral:
    """The mean gradient on the path × the path, and how many steps each input took."""

    product: Tensor
    steps: list[int]

    def update(self, rows: list[int], product: Tensor, steps: int) -> None:
        self.product[rows] = product
        for row in rows:
            self.steps[row] = steps


def _integrate_all(path: BaselinePath, steps: int, limit: int, tolerance: float | None) -> _Integral:
    """Integrate every input, and those above the tolerance again with twice the steps."""
    product = zeros_for_sum(path.trace.leaf)
    integral = _Integral(product, [steps] * len(product))
    # All inputs at first, then those that the tolerance sends back.
    rows = list(range(len(product)))
    # A finer grid of Gauss–Legendre shares no node with a coarser one, so refined inputs start over.
    while rows:
        integral.update(rows, _integrate(path, rows, steps), steps)
        steps *= 2
        if steps > limit:
            break
        rows = _select_incomplete(path, product, rows, tolerance)
    return integral


def _select_incomplete(path: BaselinePath, product: Tensor, rows: list[int], tolerance: float | None) -> list[int]:
    """Return the inputs whose completeness gap is still above the tolerance."""
    if tolerance is None:
        return []
    gaps = path.completeness_gap(product).tolist()
    return [row for row in rows if gaps[row] > tolerance]


def _integrate(path: BaselinePath, rows: list[int], steps: int) -> Tensor:
    """Return the mean gradient on the path × the path, for some of the inputs."""
    nodes, weights = gauss_legendre(steps)
    leaf = path.trace.leaf
    mean = zeros_for_sum(leaf[rows])

    # The weights sum to two, the length of (−1, 1); points are placed on (0, 1).
    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        mean[number // steps] += gradient * (weights[number % steps] / 2)

    gradients_at(path.trace, _place_points(path, rows, (nodes + 1) / 2), receive, batch=path.batch)
    return mean * (leaf - path.baseline)[rows]


def _place_points(path: BaselinePath, rows: list[int], shares: Array) -> list[Point]:
    """Return the points at all shares of the first input's path, then of the second's, and so on."""
    return list(itertools.starmap(path.point, itertools.product(rows, shares)))


def gauss_legendre(steps: int) -> tuple[Array, Array]:
    """Return the nodes in (−1, 1) and the weights of Gauss–Legendre quadrature, by Newton's method."""
    # NumPy's leggauss solves an eigenvalue problem: seconds for a thousand steps, and it cannot be interrupted.
    node_N = _estimate_nodes(steps)
    for _ in range(NEWTON_STEPS):
        value_N, slope_N = _evaluate_legendre(node_N, steps)
        node_N = node_N - value_N / slope_N
    return node_N, 2 / ((1 - node_N**2) * slope_N**2)


def _estimate_nodes(steps: int) -> Array:
    node_N: Array = np.cos(np.pi * (np.arange(steps, 0, -1) - 0.25) / (steps + 0.5))
    return node_N


def _evaluate_legendre(node_N: Array, degree: int) -> tuple[Array, Array]:
    """Return the values and slopes of the Legendre polynomial of this degree."""
    previous_N = np.ones(degree)
    current_N = node_N
    # Bonnet's recursion.
    for order in range(2, degree + 1):
        next_N = ((2 * order - 1) * node_N * current_N - (order - 1) * previous_N) / order
        previous_N = current_N
        current_N = next_N
    return current_N, _legendre_slope(node_N, current_N, previous_N, degree)


def _legendre_slope(node_N: Array, current_N: Array, previous_N: Array, degree: int) -> Array:
    slope_N: Array = degree * (node_N * current_N - previous_N) / (node_N**2 - 1)
    return slope_N


@method(paper="Lundberg & Lee 2017; decoded paper's GradientShap", signed=True, class_specific=True, needs=())
def gradient_shap(
    trace: Trace,
    *,
    samples: int = 50,
    baseline: str = "zero",
    noise: float = 0.0,
    seed: int = 0,
    batch: int | None = None,
) -> Attribution:
    """Gradients at random places between a baseline and the (noisy) input, times the way, averaged."""
    require_integer("samples", samples)
    path = BaselinePath(trace, make_baseline(trace, baseline), batch)
    ends = noisy_points(trace, samples, noise, seed)
    drawn = TokenSamples(trace, samples)
    product = _average_over_ends(path, ends, drawn, seed)
    settings = {"samples": samples, "seed": seed, "baseline": baseline}
    diagnostics = []
    for entry, error in zip(path.describe(product), drawn.errors(), strict=True):
        diagnostics.append({**settings, **entry, "sampling_error": error})
    return with_diagnostics(attribute_sum(trace, product), diagnostics)


def _average_over_ends(path: BaselinePath, ends: list[Point], drawn: TokenSamples, seed: int) -> Tensor:
    """Return the mean over the ends of gradient × way from the baseline to the end."""
    trace = path.trace
    product = zeros_for_sum(trace.leaf)
    points = list(_draw_points(path, ends, drawn.samples, seed))

    # Gradients are added up as they come, so that only one batch of them exists at a time.
    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        end = ends[number]
        sample = gradient * (end.make() - path.baseline[end.sample])
        drawn.add(end.sample, attribute_sum(trace, sample[None]).relevance_BT[0])
        product[end.sample] += sample / drawn.samples

    gradients_at(trace, points, receive, batch=path.batch)
    return product


def _draw_points(path: BaselinePath, ends: list[Point], samples: int, seed: int) -> Iterator[Point]:
    """Yield for each end a random point between it and the baseline."""
    for number, end in enumerate(ends):
        yield _draw_point(path, end, seed, number % samples)


def _draw_point(path: BaselinePath, end: Point, seed: int, number: int) -> Point:
    row = end.sample
    share = _draw_share(path.trace, row, seed, number)
    return Point(row, partial(_interpolate_to, path.baseline[row], end, share))


def _draw_share(trace: Trace, row: int, seed: int, number: int) -> float:
    """Draw how far between baseline and input a sample lies."""
    # Negative numbers, because those from zero on belong to the noise of the same input.
    generator = make_numbered_generator(trace, row, seed, -1 - number)
    return float(torch.rand(1, dtype=torch.float64, generator=generator))


def _interpolate_to(start: Tensor, end: Point, share: float) -> Tensor:
    return interpolate(start, end.make(), share)
