"""DeepLIFT through Captum: the only file that imports it."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.attribution.baselines import make_baseline, with_diagnostics, zeros_for_sum
from clearhead.attribution.gradient import product_scores
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.smoothgrad import noisy_points
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.embeddings import score_from
from clearhead.engine.trace import Trace
from clearhead.errors import ClearheadError, UnsupportedModel
from clearhead.progress import progress
from clearhead.validation import require_integer

NOTE = (
    "Captum's DeepLIFT has rules for a few activation modules only; attention products, norms and GELU pass plain "
    "gradients, so the relevances need not sum to the effect: see completeness_gap."
)


@method(paper="Lundberg & Lee 2017; Shrikumar et al. 2017", signed=True, class_specific=True)
def deeplift_shap(
    trace: Trace, *, samples: int = 5, baseline: str = "zero", noise: float = 0.1, seed: int = 0
) -> Attribution:
    """DeepLIFT (Captum) averaged over references: the baseline with noise, `noise` × the range of the input.

    Completeness does not hold on Transformers: `completeness_gap` beside `effect` says by how much.
    """
    require_integer("samples", samples)
    shap, base = _captum(), make_baseline(trace, baseline)
    product = zeros_for_sum(trace.leaf)
    noisy = noisy_points(trace, samples, noise, seed)
    diagnostics = []
    with progress(len(product), "inputs") as advance:
        for sample in range(len(product)):
            moves = [point.make() - trace.leaf[sample] for point in noisy if point.sample == sample]
            product[sample], effect = _lifted(trace, shap, sample, base[sample] + torch.stack(moves))
            gap = abs(float(_real(trace, product, sample).double().sum()) - effect)
            diagnostics.append({"completeness_gap": gap, "effect": effect, "samples": samples, "seed": seed})
            advance(1)
    told_by = {"baseline": baseline, "note": NOTE}
    return with_diagnostics(product_scores(trace, product), [{**one, **told_by} for one in diagnostics])


def _real(trace: Trace, product: Tensor, sample: int) -> Tensor:
    return product[sample] if trace.is_image else product[sample][trace.mask_BT[sample]]


class _FromLeaf(nn.Module):
    """One sample's score as a module of its leaf, which Captum repeats as it likes."""

    def __init__(self, trace: Trace, sample: int) -> None:
        super().__init__()
        self.network = trace.model.network
        self.trace, self.sample = trace, sample

    def forward(self, leaf: Tensor) -> Tensor:
        return score_from(self.trace, [self.sample] * len(leaf), leaf)


def _lifted(trace: Trace, shap: Any, sample: int, references: Tensor) -> tuple[Tensor, float]:
    """Relevance averaged over the references, and the mean effect."""
    module, leaf = _FromLeaf(trace, sample), trace.leaf[sample : sample + 1]
    doubled = references if len(references) > 1 else references.repeat(2, *[1] * (references.dim() - 1))
    with eager_execution(leaf.device), frozen(trace.model.network), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found: Tensor = shap(module).attribute(leaf, doubled)
        except (AssertionError, AttributeError, RuntimeError, ValueError) as error:
            raise UnsupportedModel(f"Captum's DeepLiftShap cannot run {trace.model.name}: {error}") from error
        with torch.no_grad():
            effect = float(module(leaf).double() - module(references).double().mean())
    return found[0].detach(), effect


def _captum() -> Any:
    try:
        from captum.attr import DeepLiftShap
    except ImportError:
        raise ClearheadError("deeplift-shap needs Captum: pip install 'clearhead[captum]'.") from None
    return DeepLiftShap
