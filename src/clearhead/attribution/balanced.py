"""Methods over balanced backward passes: relevance as activation × coefficient."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.attribution.activation import gradient_x_hidden
from clearhead.attribution.gradient import attribute_sum
from clearhead.attribution.method import Attribution, always, method
from clearhead.engine.backward import ATTN_LRP, BALANCED
from clearhead.engine.gradients import Gradients
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.lazy import LazySequence


@method(
    paper="AttnLRP (Achtibat et al. 2024)",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=always,
)
def attn_lrp(trace: Trace) -> Attribution:
    """Relevance at the embedding output (images: at the pixels), with products shared half and half.

    One backward pass in which norms are held, activation functions pass φ(x)/x, and the factors of a product, attention
    included, get half of its relevance each. `layers` has the relevance at the output of every block.
    """
    return _attribute_input(trace, ATTN_LRP)


@method(
    paper="CP-LRP (Ali et al. 2022); LibraGrad (Mehri et al. 2025)",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=always,
)
def cp_lrp(trace: Trace) -> Attribution:
    """Relevance at the embedding output (images: at the pixels), with attention maps and gates held constant.

    On a network without biases it adds up to the explained logit exactly. `layers` has the relevance at the output of
    every block.
    """
    return _attribute_input(trace, BALANCED)


def _attribute_input(trace: Trace, backward: str) -> Attribution:
    coefficients = trace.coefficients(backward)
    product = _input_product(trace, coefficients)
    attribution = attribute_sum(trace, product)
    return Attribution(
        attribution.relevance_BT,
        _block_relevances(trace, coefficients.hidden_states),
        attribution.pixels_BPQ,
        report_completeness(trace, product.double().flatten(1).sum(1)),
    )


def _input_product(trace: Trace, coefficients: Gradients) -> Tensor:
    """Return activation × coefficient at the pixels of images, and at the embedding output of texts."""
    if trace.is_image:
        return coefficients.leaf * trace.leaf
    return coefficients.hidden_states[0] * trace.hidden_states[0]


def _block_relevances(trace: Trace, coefficients: Sequence[Tensor]) -> Tensor:
    """Return the relevance of each token at the output of every block (B,L,T)."""
    layers = []
    for coefficient_BTD, hidden_BTD in zip(coefficients[1:], trace.hidden_states[1:], strict=True):
        layers.append(trace.as_patches(gradient_x_hidden(coefficient_BTD, hidden_BTD)))
    return torch.stack(layers, 1)


def report_completeness(trace: Trace, total_B: Tensor) -> Sequence[dict[str, float]]:
    """Return per sample how far the relevance is from adding up to the explained score, without waiting for the device.

    Biases, and in AttnLRP the softmax, keep a part of the score.
    """
    score_B = trace.score_B.double()
    copy = HostCopy(torch.stack([(total_B - score_B).abs(), score_B], 1))

    def make() -> list[dict[str, float]]:
        return [{"completeness_gap": gap, "effect": effect} for gap, effect in copy.wait().tolist()]

    return LazySequence(len(trace.targets), make)
