"""Methods over attention maps and their gradients."""

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap

import torch
from torch import Tensor

from clearhead.attribution.boxes import attribute_box
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.roll_out import attribute_roll_out, reads_first_token
from clearhead.attribution.two_sequences import attribute_maps, unfold_layers
from clearhead.engine.backward import GRADIENT
from clearhead.engine.forward import DetectorForwardPass
from clearhead.engine.trace import Trace
from clearhead.validation import require_choice


def classification_row(trace: Trace, map_BTS: Tensor) -> Tensor:
    """Return the classification token's row, or the mean of the rows that the head reads."""
    return _sum_rows(trace.reading_BT.to(map_BTS.dtype), map_BTS)


def _sum_rows(weight_BT: Tensor, map_BTS: Tensor) -> Tensor:
    """Return the weighted sum of the rows of a map (B,S)."""
    return torch.einsum("bt,bts->bs", weight_BT, map_BTS)


def received_attention(trace: Trace, map_BTS: Tensor) -> Tensor:
    """Return what each token receives on average from the tokens that the explained score can depend on.

    A token of an encoder–decoder's source receives this from its own sequence, and from the decoder's in addition.
    """
    # Padding, and what follows an explained step, have rows of their own in the map, which must not count.
    weight_BT = _share_equally(trace.query_BT.to(map_BTS.dtype), trace.source_tokens)
    return _sum_rows(weight_BT, map_BTS)


def _share_equally(queries_BT: Tensor, source: int) -> Tensor:
    """Return the mask of queries as weights that sum to one over each sequence."""
    # With one sequence the source is empty, and so is its part of the weights.
    return torch.cat(list(map(_normalise, queries_BT.tensor_split([source], 1))), 1)


def _normalise(weight_BT: Tensor) -> Tensor:
    return weight_BT / weight_BT.sum(1, keepdim=True)


ROW_REDUCTIONS: dict[str, Callable[[Trace, Tensor], Tensor]] = {
    "class": classification_row,
    "all": received_attention,
}


@method(paper="TransAtt, App. A", signed=False, class_specific=False, needs=("attention",))
def raw_attention(trace: Trace) -> Attribution:
    """Attention of the last block, averaged over heads: the classification token's row."""
    trace.require_token_maps()
    return Attribution(classification_row(trace, trace.attentions[-1].mean(1)))


@method(paper="Abnar & Zuidema 2020; TransAtt Eq. 15–16", signed=False, class_specific=False, needs=("attention",))
def rollout(trace: Trace, *, normalise_rows: bool = False) -> Attribution:
    """Product over blocks of I + mean attention: the classification token's row.

    Where the head reads words, what the identities alone give them is removed (`identity_share` in the diagnostics).
    """
    trace.require_token_maps()
    return attribute_roll_out(trace, _unfold_mean_maps(trace), normalise_rows=normalise_rows)


def _unfold_mean_maps(trace: Trace) -> list[Tensor]:
    """Return the attention of every block, averaged over heads, in the order of computation."""
    maps = [attention.mean(1) for attention in trace.attentions]
    return unfold_layers(trace, maps)


@method(paper="AttCAT, Sec. 4", signed=True, class_specific=True, needs=("attention", "gradients"))
def grads(trace: Trace, *, backward: str = GRADIENT) -> Attribution:
    """Gradient of the last attention map, averaged over heads: the classification token's row.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    return Attribution(classification_row(trace, _last_visible_gradient(trace, backward).mean(1)))


def _last_visible_gradient(trace: Trace, backward: str) -> Tensor:
    """Return the gradient of the last map, zero at keys that a mask hides."""
    # Hidden keys have a gradient, but cannot be attended to.
    is_hidden_BHTS = trace.attentions[-1] == 0
    return trace.attention_coefficients(backward)[-1].masked_fill(is_hidden_BHTS, 0)


@method(paper="Grad-SAM; AttCAT, Sec. 4", signed=False, class_specific=True, needs=("attention", "gradients"))
def att_grads(trace: Trace, *, rows: str = "class", backward: str = GRADIENT) -> Attribution:
    """Attention × positive gradient, averaged over blocks and heads; `rows="all"` averages all query rows.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    require_choice("rows", rows, tuple(ROW_REDUCTIONS), " for 'att-grads'")
    reduce_rows = ROW_REDUCTIONS[rows]
    layers = []
    for map_BTS in _positive_products(trace.attentions, trace.attention_coefficients(backward)):
        layers.append(reduce_rows(trace, map_BTS))
    layers_BLT = torch.stack(layers, 1)
    return Attribution(layers_BLT.mean(1), layers_BLT)


def _positive_products(attentions: Sequence[Tensor], gradients: Sequence[Tensor]) -> Iterator[Tensor]:
    return starmap(_positive_product, zip(attentions, gradients, strict=True))


@method(paper="Chefer et al., ICCV 2021, Eq. 5–10", signed=False, class_specific=True, needs=("attention", "gradients"))
def gae(trace: Trace) -> Attribution:
    """Attention × gradient of every map, rolled out: the classification token's row.

    Generic attention explainability, for one sequence or for the two of an encoder–decoder; for a box that a detector
    finds, the patches. Where the head reads words,
    what the identities alone give them is removed (`identity_share` in the diagnostics).
    """
    if isinstance(trace.forward, DetectorForwardPass):
        return attribute_box(trace, trace.forward)
    trace.require_token_maps()
    return attribute_maps(trace, list(_positive_products(trace.attentions, trace.attention_gradients)))


def _positive_product(attention_BHTS: Tensor, gradient_BHTS: Tensor) -> Tensor:
    """Return E_h A ⊙ (∇A)⁺ (B,T,S), which is E_h (∇A ⊙ A)⁺ since no attention is negative."""
    return (attention_BHTS * gradient_BHTS.clamp(min=0)).mean(1)


@method(paper="TransAtt, App. A", signed=False, class_specific=True, needs=("attention", "gradients"))
def attention_gradcam(trace: Trace, *, backward: str = GRADIENT) -> Attribution:
    """Grad-CAM of the last attention map's classification row; a class token itself gets nothing.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    others_BS = trace.query_BT & ~_is_class_token(trace)
    gradient_BHTS = trace.attention_coefficients(backward)[-1]
    weight_BH = _mean_over(_head_rows(trace, gradient_BHTS), others_BS)
    weighted_BHS = weight_BH[..., None] * _head_rows(trace, trace.attentions[-1])
    return Attribution(weighted_BHS.mean(1).clamp(min=0) * others_BS)


def _is_class_token(trace: Trace) -> Tensor:
    # Words that the head reads, such as the last token of a decoder, are no class tokens.
    return (trace.reading_BT > 0) & reads_first_token(trace)[:, None]


def _mean_over(values_BHS: Tensor, mask_BS: Tensor) -> Tensor:
    """Return the mean over the tokens of a mask (B,H)."""
    return (values_BHS * mask_BS[:, None]).sum(-1) / mask_BS.sum(-1, keepdim=True)


def _head_rows(trace: Trace, map_BHTS: Tensor) -> Tensor:
    """Return the classification token's row of every head."""
    return torch.einsum("bt,bhts->bhs", trace.reading_BT.to(map_BHTS.dtype), map_BHTS)
