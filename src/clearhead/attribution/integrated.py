"""Methods over gradients at other places than the input: noisy neighbours, and the way from a baseline."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.attribution.gradient import norm_scores, product_scores
from clearhead.attribution.method import Scores, method
from clearhead.attribution.random_baseline import generator
from clearhead.engine.embeddings import Point, scores_at, visit
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.model.model import word_table
from clearhead.perturbation.replacement import black, token_id
from clearhead.validation import require_integer, require_number

Array = np.ndarray[Any, np.dtype[Any]]
STEPS_LIMIT = 1600


@method(paper="Smilkov et al. 2017; decoded paper's SmoothGrad", signed=False, class_specific=True)
def smooth_gradient(
    trace: Trace, *, samples: int = 10, noise: float = 0.1, seed: int = 0, batch: int | None = None
) -> Scores:
    """The `gradient` scores averaged over inputs with Gaussian noise, `noise` × the range of their values."""
    require_integer("samples", samples)
    pixels = wide_zeros(trace.leaf[:, 0]) if trace.is_image else None
    sum_BT = torch.zeros_like(trace.mask_BT, dtype=wide_zeros(trace.leaf).dtype)
    points = noisy_points(trace, samples, noise, seed)

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        scores = norm_scores(trace, gradient[None])
        sum_BT[points[number].sample] += scores.relevance_BT[0] / samples
        if pixels is not None and scores.pixels_BPQ is not None:
            pixels[points[number].sample] += scores.pixels_BPQ[0] / samples

    visit(trace, points, receive, batch=batch)
    return Scores(sum_BT, pixels_BPQ=pixels, diagnostics=[{"samples": samples, "seed": seed}] * len(sum_BT))


@method(paper="Sundararajan et al. 2017", signed=True, class_specific=True)
def integrated_gradients(
    trace: Trace,
    *,
    steps: int = 25,
    baseline: str = "zero",
    tolerance: float | None = None,
    limit: int = STEPS_LIMIT,
    batch: int | None = None,
) -> Scores:
    """Gradients along the straight way from a baseline to the input (Gauss–Legendre), times the way.

    `baseline` is "zero", or the "pad" or "mask" embedding at every token that is not special; for images "zero" or
    "black". With a `tolerance` the steps are doubled, input by input, until `completeness_gap` is no larger, but
    not beyond `limit`.
    """
    require_integer("steps", steps)
    require_integer("limit", limit)
    if tolerance is not None:
        require_number("tolerance", tolerance, 0)
    base = baseline_leaf(trace, baseline)
    effect_B = effects(trace, base, batch)
    product = wide_zeros(trace.leaf)
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
    return told(product_scores(trace, product), diagnostics)


def _integral(trace: Trace, base: Tensor, samples: list[int], steps: int, batch: int | None) -> Tensor:
    """Mean gradient on the way × the way, for some of the samples."""
    nodes, weights = gauss_legendre(steps)
    shares = [(node + 1) / 2 for node in nodes]
    points = [Point(one, partial(between, trace, base, one, share)) for one in samples for share in shares]
    mean = wide_zeros(trace.leaf[samples])

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        mean[number // steps] += gradient * (weights[number % steps] / 2)

    visit(trace, points, receive, batch=batch)
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
) -> Scores:
    """Gradients at random places between a baseline and the (noisy) input, times the way, averaged."""
    require_integer("samples", samples)
    base = baseline_leaf(trace, baseline)
    product = wide_zeros(trace.leaf)
    ends = noisy_points(trace, samples, noise, seed)
    shares = [_share(trace, end.sample, seed, number % samples) for number, end in enumerate(ends)]
    points = [
        Point(end.sample, partial(_towards, base[end.sample], end, share))
        for end, share in zip(ends, shares, strict=True)
    ]

    def receive(number: int, score: Tensor, gradient: Tensor) -> None:
        end = ends[number]
        product[end.sample] += gradient * (end.make() - base[end.sample]) / samples

    visit(trace, points, receive, batch=batch)
    effect_B = effects(trace, base, batch)
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
    return told(product_scores(trace, product), diagnostics)


def _share(trace: Trace, sample: int, seed: int, number: int) -> float:
    return float(torch.rand(1, dtype=torch.float64, generator=numbered(trace, sample, seed, -1 - number)))


def _towards(base: Tensor, end: Point, share: float) -> Tensor:
    return base + share * (end.make() - base)


def between(trace: Trace, base: Tensor, sample: int, share: float) -> Tensor:
    """The point this share of the way from the baseline to the input."""
    return base[sample] + share * (trace.leaf[sample] - base[sample])


def wide_zeros(leaf: Tensor) -> Tensor:
    """Zeros to add up in: of the same shape, in float32 at least."""
    return torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))


def told(scores: Scores, diagnostics: Sequence[dict[str, Any]]) -> Scores:
    """The same scores with diagnostics."""
    return Scores(scores.relevance_BT, scores.layers_BLT, scores.pixels_BPQ, diagnostics)


def effects(trace: Trace, base: Tensor, batch: int | None) -> Tensor:
    """f(input) − f(baseline) of every sample, in float64."""
    ends = [Point(one, partial(between, trace, base, one, 0.0)) for one in range(len(base))]
    return trace.score_B.double() - scores_at(trace, ends, batch=batch).double()


def completeness_gap(trace: Trace, product: Tensor, effect_B: Tensor) -> Tensor:
    """How far the relevance of real tokens is from summing to the effect."""
    total = product.double() if trace.is_image else product.double() * trace.mask_BT[..., None]
    return (total.flatten(1).sum(1) - effect_B).abs()


def baseline_leaf(trace: Trace, baseline: str) -> Tensor:
    """The leaf of an input that says nothing."""
    leaf = trace.leaf
    choices = ("zero", "black") if trace.is_image else ("zero", "pad", "mask")
    if baseline not in choices:
        raise BadOption(f"baseline={baseline!r} is not a choice here. Use one of {', '.join(choices)}.")
    if baseline == "zero":
        return torch.zeros_like(leaf)
    if baseline == "black":
        return black(trace.model, leaf).expand_as(leaf)
    token, words = token_id(trace.model, baseline), word_table(trace.model.network)
    if token is None or words is None or "input_ids" not in trace.inputs.tensors:
        raise BadOption(f"{trace.model.name} has no {baseline} token here: use baseline='zero'.")
    row_D = words[token].detach().to(leaf.dtype)
    return torch.where(replaceable(trace)[..., None], row_D, leaf)


def replaceable(trace: Trace) -> Tensor:
    """True at real tokens that are not special (B,T)."""
    found_BT = trace.mask_BT.clone()
    for place, item in enumerate(trace.inputs.items):
        found_BT[place, trace.mask_BT[place]] = ~torch.tensor(item.special, device=found_BT.device)
    return found_BT


def noisy_points(trace: Trace, samples: int, noise: float, seed: int) -> list[Point]:
    """Each input `samples` times with noise of its own: the same in any batch and any order."""
    if not noise >= 0:
        raise BadOption(f"noise={noise!r} must be a number, and not negative.")
    places = range(len(trace.leaf))
    return [Point(one, partial(_noisy, trace, one, noise, seed, n)) for one in places for n in range(samples)]


def _noisy(trace: Trace, sample: int, noise: float, seed: int, number: int) -> Tensor:
    leaf = trace.leaf[sample]
    real = leaf if trace.is_image else leaf[trace.mask_BT[sample]]
    if noise == 0:
        return leaf
    drawn = torch.randn(real.shape, dtype=torch.float64, generator=numbered(trace, sample, seed, number))
    noisy = real + (noise * (real.max() - real.min())) * drawn.to(real)
    if trace.is_image:
        return noisy
    whole = leaf.clone()
    whole[trace.mask_BT[sample]] = noisy
    return whole


def numbered(trace: Trace, sample: int, seed: int, number: int) -> torch.Generator:
    """A generator for one draw of one input, so that draws can be made in any order."""
    first = torch.randint(2**32, (1,), generator=generator(trace, sample, seed))
    return torch.Generator().manual_seed((int(first) + number * 0x9E3779B9) % 2**32)
