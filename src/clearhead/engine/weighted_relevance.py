"""Gradient-weighted relevance of the attention maps, the map of each block in TransAtt."""

from collections.abc import Sequence
from types import ModuleType

from torch import Tensor

from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import GradientCache
from clearhead.engine.lrp.kernels.dispatch import kernels_for, on_device_of
from clearhead.engine.relevance_cache import RelevanceCache
from clearhead.engine.streams import prefetch, run_in_background

# Size of a trace's attention maps from which their gradients and relevance are freed as soon as they are used.
# Smaller maps are kept, which saves other methods a second pass.
FREE_MAPS_FROM_BYTES = 2**26


def weight_by_gradient(gradient_BHTS: Tensor, relevance_BHTS: Tensor) -> Tensor:
    """Return E_h (∇A ⊙ R)⁺ of one block (B,T,S), TransAtt Eq. 13."""
    kernels = kernels_for(relevance_BHTS)
    if kernels and relevance_BHTS.dim() == 4:
        return _weight_fused(kernels, gradient_BHTS, relevance_BHTS)
    # In place: the product is this function's own, and as large as the maps.
    return (gradient_BHTS * relevance_BHTS).clamp_(min=0).mean(1)


def _weight_fused(kernels: ModuleType, gradient_BHTS: Tensor, relevance_BHTS: Tensor) -> Tensor:
    with on_device_of(relevance_BHTS):
        return kernels.gated_mean(gradient_BHTS.contiguous(), relevance_BHTS.contiguous())  # type: ignore[no-any-return]


def compute_weighted_relevances(
    forward: ForwardPass, gradients: GradientCache, relevances: RelevanceCache
) -> list[Tensor]:
    """Return E_h (∇A ⊙ R)⁺ of every block (B,T,S); large maps exist for one block at a time."""
    if relevances.has_attention_maps or not _are_large(forward.attentions):
        return _weight_all(forward, gradients, relevances)
    return _weight_each(forward, gradients, relevances)


def _weight_all(forward: ForwardPass, gradients: GradientCache, relevances: RelevanceCache) -> list[Tensor]:
    """Weight the maps with all gradients and relevance in memory, where they stay for other methods."""
    # On a GPU, autograd queues its kernels from another thread while this one propagates relevance.
    wait_for_gradients = run_in_background(lambda: gradients.get().attentions, forward.leaf.device)
    relevance_maps = relevances.attention_maps()
    pairs = zip(wait_for_gradients(), relevance_maps, strict=True)
    return [weight_by_gradient(gradient, relevance) for gradient, relevance in pairs]


def _weight_each(forward: ForwardPass, gradients: GradientCache, relevances: RelevanceCache) -> list[Tensor]:
    """Weight one map after the other, and free its gradient and relevance before the next."""
    gradient_maps = prefetch(gradients.iterate_attentions(), forward.leaf.device)
    # A strict zip runs the gradients' generator to its end, where it may keep them for other methods.
    pairs = zip(relevances.iterate_attention_maps(), gradient_maps, strict=True)
    maps = [weight_by_gradient(gradient, relevance) for relevance, gradient in pairs]
    return maps[::-1]


def _are_large(attentions: Sequence[Tensor]) -> bool:
    return sum(attention.nbytes for attention in attentions) >= FREE_MAPS_FROM_BYTES
