"""Methods over balanced backward passes: relevance as activation × coefficient."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from clearhead.attribution.activation import list_impacts, relevance_of_heads
from clearhead.attribution.gradient import attribute_sum
from clearhead.attribution.method import Attribution, method, without_heads
from clearhead.attribution.reading import correct_read_words
from clearhead.engine.backward import ATTN_LRP, BALANCED, check_backward
from clearhead.engine.gradients import Gradients
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.lazy import LazySequence


@method(
    paper="AttnLRP (Achtibat et al. 2024)",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=without_heads,
    divides_products=True,
)
def attn_lrp(trace: Trace, *, heads: bool = False) -> Attribution:
    """Relevance at the embedding output (images: at the pixels), with products shared half and half.

    One backward pass in which norms are held, activation functions pass φ(x)/x, and the factors of a product, attention
    included, get half of its relevance each. `layers` has the relevance at the output of every block; `heads` adds that
    of every attention head.
    """
    return _attribute_input(trace, ATTN_LRP, heads)


@method(
    paper="CP-LRP (Ali et al. 2022); LibraGrad (Mehri et al. 2025)",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=without_heads,
    divides_products=True,
)
def cp_lrp(trace: Trace, *, heads: bool = False) -> Attribution:
    """Relevance at the embedding output (images: at the pixels), with attention maps and gates held constant.

    On a network without biases it adds up to the explained logit exactly. `layers` has the relevance at the output of
    every block; `heads` adds that of every attention head.
    """
    return _attribute_input(trace, BALANCED, heads)


@method(
    paper="AttCAT, Eq. 10, with the backward pass of LibraGrad (Mehri et al. 2025)",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=without_heads,
    divides_products=True,
)
def balanced_cat(trace: Trace, *, backward: str = BALANCED, heads: bool = False) -> Attribution:
    """Relevance at the output of every block, by a balanced backward pass, summed over blocks.

    `backward="attn-lrp"` takes the pass of attn-lrp instead of that of cp-lrp; `heads` adds the relevance of every
    attention head. Words of decoders and the ends of answer spans get their relevance at the embedding output instead.
    """
    check_backward(backward, (ATTN_LRP, BALANCED))
    coefficients = trace.hidden_coefficients(backward)
    layers = _list_block_relevances(trace, coefficients)
    # `layers` stay what they are at the blocks: there each adds up to the score.
    corrected_BLT = _stack_patches(trace, correct_read_words(trace, layers, coefficients))
    return Attribution(
        corrected_BLT.sum(1),
        _stack_patches(trace, layers),
        diagnostics=report_completeness(trace, _sum_tokens(trace, layers)),
        heads_BLH=relevance_of_heads(trace, backward, heads),
    )


def _sum_tokens(trace: Trace, layers: Sequence[Tensor]) -> Tensor:
    """Return the total relevance at every block (B,L)."""
    # In float64: relevances of both signs cancel in the sum.
    return torch.stack([_hide_padding(trace, layer_BT.double()).sum(1) for layer_BT in layers], 1)


def _hide_padding(trace: Trace, relevance_BT: Tensor) -> Tensor:
    """Set the relevance of padding to zero: no explanation shows it, and convolutions over words may read it."""
    if not _has_input_tokens(trace, relevance_BT):
        return relevance_BT
    return relevance_BT.masked_fill(~trace.mask_BT, 0)


def _has_input_tokens(trace: Trace, relevance_BT: Tensor) -> bool:
    # Blocks of images, which have no padding, may merge their patches.
    return not trace.is_image and trace.mask_BT.shape == relevance_BT.shape


def _attribute_input(trace: Trace, backward: str, heads: bool) -> Attribution:
    coefficients = trace.coefficients(backward)
    product = _input_product(trace, coefficients)
    attribution = attribute_sum(trace, product)
    return Attribution(
        attribution.relevance_BT,
        _block_relevances(trace, coefficients.hidden_states),
        attribution.pixels_BPQ,
        report_completeness(trace, _sum_input(trace, product.double())),
        relevance_of_heads(trace, backward, heads),
    )


def _input_product(trace: Trace, coefficients: Gradients) -> Tensor:
    """Return activation × coefficient at the pixels of images, and at the embedding output of texts."""
    # Where the embedding output is not known, the words' embeddings are next to it.
    if trace.is_image or not trace.forward.has_embedding:
        return coefficients.leaf * trace.leaf
    return coefficients.hidden_states[0] * trace.forward.joint_states[0]


def _sum_input(trace: Trace, product: Tensor) -> Tensor:
    """Return the total relevance of the pixels or tokens (B,1)."""
    if trace.is_image:
        return product.flatten(1).sum(1, keepdim=True)
    return _hide_padding(trace, product.sum(-1)).sum(1, keepdim=True)


def _block_relevances(trace: Trace, coefficients: Sequence[Tensor]) -> Tensor | None:
    """Return the relevance of each token at the output of every block (B,L,T); None if they are not known."""
    if not trace.forward.has_states:
        return None
    return _stack_patches(trace, _list_block_relevances(trace, coefficients))


def _list_block_relevances(trace: Trace, coefficients: Sequence[Tensor]) -> list[Tensor]:
    """Return the relevance of each token at the output of every block, merged patches as they are (B,T)."""
    # Hidden state 0 is the embedding output, which no block has made.
    return list_impacts(coefficients[1:], trace.hidden_states[1:])


def _stack_patches(trace: Trace, layers: Sequence[Tensor]) -> Tensor:
    return torch.stack([trace.as_patches(layer_BT) for layer_BT in layers], 1)


def report_completeness(trace: Trace, totals_BL: Tensor) -> Sequence[dict[str, float]]:
    """Return per sample how far the relevance is from adding up to the explained score, without waiting for the device.

    Of the sums at several layers the furthest counts. Biases, and in AttnLRP the softmax, keep a part of the score.
    """
    score_B = trace.score_B.double()
    gap_B = (totals_BL - score_B[:, None]).abs().amax(1)
    copy = HostCopy(gap_B)
    return LazySequence(len(trace.targets), partial(_read_completeness, copy))


def _read_completeness(copy: HostCopy) -> list[dict[str, float]]:
    return [{"completeness_gap": gap} for gap in copy.wait().tolist()]
