"""DeepLIFT through Captum: the only file that imports it."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.attribution.baselines import make_baseline, with_diagnostics, zeros_for_sum
from clearhead.attribution.effects import describe_effect, differentiated_output
from clearhead.attribution.gradient import attribute_sum
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.sampling_error import TokenSamples
from clearhead.attribution.smoothgrad import noisy_points
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.embeddings import Point, run_batches, score_from
from clearhead.engine.trace import Trace
from clearhead.errors import ClearheadError, UnsupportedModel
from clearhead.model.model import Model
from clearhead.progress import progress
from clearhead.validation import require_integer

NOTE = (
    "Captum's DeepLIFT has rules for a few activation modules only; attention products, norms and GELU pass plain "
    "gradients, so the relevances need not sum to the effect: see completeness_gap."
)
# Captum has no error of its own for modules that it cannot handle.
CAPTUM_ERRORS = (AssertionError, AttributeError, RuntimeError, ValueError)


@method(paper="Lundberg & Lee 2017; Shrikumar et al. 2017", signed=True, class_specific=True, needs=())
def deeplift_shap(
    trace: Trace, *, samples: int = 50, baseline: str = "zero", noise: float = 0.1, seed: int = 0
) -> Attribution:
    """DeepLIFT (Captum) averaged over references: the baseline with noise, `noise` × the range of the input.

    Completeness does not hold on Transformers: `completeness_gap` beside `effect` says by how much.
    """
    require_integer("samples", samples)
    # Before anything is computed: Captum may not be installed.
    deep_lift = _import_captum()
    start = make_baseline(trace, baseline)
    points = noisy_points(trace, samples, noise, seed)
    settings = {"samples": samples, "seed": seed, "baseline": baseline, "note": NOTE}
    return _collect_rows(trace, _attribute_rows(trace, deep_lift, start, points), settings)


def _collect_rows(trace: Trace, rows: Iterable[tuple[Tensor, float, float]], settings: dict[str, Any]) -> Attribution:
    """Return the attribution of a batch from the samples and the ends of every input."""
    product = zeros_for_sum(trace.leaf)
    output = differentiated_output(trace.targets[0], trace.model.problem)
    diagnostics = []
    drawn = TokenSamples(trace, settings["samples"])
    for row, (sample_N, base, prediction) in enumerate(rows):
        product[row] = sample_N.mean(0)
        for relevance_T in attribute_sum(trace, sample_N).relevance_BT:
            drawn.add(row, relevance_T)
        gap = _gap(trace, product, row, prediction - base)
        diagnostics.append({"completeness_gap": gap, "effect": describe_effect(output, base, prediction), **settings})
    for entry, error in zip(diagnostics, drawn.errors(), strict=True):
        entry["sampling_error"] = error
    return with_diagnostics(attribute_sum(trace, product), diagnostics)


def _attribute_rows(
    trace: Trace, deep_lift: Any, start: Tensor, points: Sequence[Point]
) -> Iterator[tuple[Tensor, float, float]]:
    """Yield the relevance of every input for each of its references, their mean score, and the input's score."""
    with progress(len(start), "inputs") as advance:
        # One by one, because Captum pairs every input of a batch with every reference.
        for row in range(len(start)):
            own_points = [point for point in points if point.sample == row]
            yield _attribute_row(trace, deep_lift, start[row], own_points)
            advance(1)


def _draw_noise(trace: Trace, points: Sequence[Point]) -> Tensor:
    """Return the noise of some noisy points of one input."""
    return torch.stack([point.make() - trace.leaf[point.sample] for point in points])


def _gap(trace: Trace, product: Tensor, row: int, effect: float) -> float:
    """Return how far the relevance of one input is from summing to the effect."""
    # In float64: the gap is the difference of numbers that are nearly equal.
    return abs(float(_real_values(trace, product, row).double().sum()) - effect)


def _real_values(trace: Trace, product: Tensor, row: int) -> Tensor:
    if trace.is_image:
        return product[row]
    return product[row][trace.mask_BT[row]]


class _ScoreFromLeaf(nn.Module):
    """The explained score of one input as a module of its embeddings or pixels, which Captum repeats as it likes."""

    def __init__(self, trace: Trace, row: int) -> None:
        super().__init__()
        # A submodule, so that Captum finds the activations it has rules for.
        self.network = trace.model.network
        self.trace = trace
        self.row = row

    def forward(self, leaf: Tensor) -> Tensor:
        return score_from(self.trace, [self.row] * len(leaf), leaf)


def _attribute_row(trace: Trace, deep_lift: Any, start: Tensor, points: Sequence[Point]) -> tuple[Tensor, float, float]:
    """Return one input's relevance for each reference, the mean score of these, and the input's score."""
    row = points[0].sample
    module = _ScoreFromLeaf(trace, row)
    # With a batch axis of one.
    leaf = trace.leaf[row : row + 1]
    samples: list[Tensor] = []
    scores: list[Tensor] = []

    def compute(first: int, last: int) -> None:
        references = start + _draw_noise(trace, points[first:last])
        # DeepLiftShap does the same and keeps only the mean.
        with _captum_call(trace.model):
            sample_N: Tensor = deep_lift(module).attribute(leaf.expand_as(references).contiguous(), references)
        samples.append(sample_N.detach())
        scores.append(_score(module, references))

    with _frozen_network(trace.model):
        # In batches: every reference takes the memory of a pass with gradients.
        run_batches(trace, len(points), compute, None)
        return torch.cat(samples), float(torch.cat(scores).mean()), float(_score(module, leaf))


@contextmanager
def _frozen_network(model: Model) -> Iterator[None]:
    """Run a network eagerly and without gradients of its parameters, which nobody reads."""
    with eager_execution(model.device), frozen(model.network):
        yield


@contextmanager
def _captum_call(model: Model) -> Iterator[None]:
    """Silence Captum's warnings and turn its errors into UnsupportedModel."""
    with warnings.catch_warnings():
        # Captum warns of the hooks that it sets and removes itself.
        warnings.simplefilter("ignore")
        try:
            yield
        except CAPTUM_ERRORS as error:
            raise UnsupportedModel(f"Captum's DeepLift cannot run {model.name}: {error}") from error


def _score(module: _ScoreFromLeaf, leaves: Tensor) -> Tensor:
    with torch.no_grad():
        score_N: Tensor = module(leaves)
        return score_N.double()


def _import_captum() -> Any:
    try:
        from captum.attr import DeepLift
    except ImportError:
        raise ClearheadError("deeplift-shap needs Captum: pip install 'clearhead[captum]'.") from None
    return DeepLift
