"""Methods over attention maps and their gradients."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution, method
from clearhead.attribution.roll_out import attribute_roll_out, reads_first_token
from clearhead.attribution.two_sequences import attribute_maps, unfold_maps
from clearhead.engine.backward import GRADIENT
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption


def classification_row(trace: Trace, map_BTS: Tensor) -> Tensor:
    """Return the classification token's row, or the mean of the rows that the head reads."""
    return torch.einsum("bt,bts->bs", trace.reading_BT.to(map_BTS.dtype), map_BTS)


def received_attention(trace: Trace, map_BTS: Tensor) -> Tensor:
    """Return what each token receives on average from the tokens that the explained score can depend on.

    A token of an encoder–decoder's source receives this from its own sequence, and from the decoder's in addition.
    """
    # Padding, and what follows an explained step, have rows of their own in the map, which must not count.
    queries_BT = trace.query_BT.to(map_BTS.dtype)
    return torch.einsum("bt,bts->bs", _share_equally(queries_BT, trace.source_tokens), map_BTS)


def _share_equally(queries_BT: Tensor, source: int) -> Tensor:
    """Return the mask of queries as weights that sum to one over each sequence."""
    sequences = queries_BT.tensor_split([source], 1)
    return torch.cat([sequence / sequence.sum(1, keepdim=True) for sequence in sequences], 1)


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
    maps = [attention.mean(1) for attention in trace.attentions]
    return attribute_roll_out(trace, unfold_maps(maps, trace.source_tokens), normalise_rows=normalise_rows)


@method(paper="AttCAT, Sec. 4", signed=True, class_specific=True, needs=("attention", "gradients"))
def grads(trace: Trace, *, backward: str = GRADIENT) -> Attribution:
    """Gradient of the last attention map, averaged over heads: the classification token's row.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    gradient_BTS = _visible_gradient(trace.attentions[-1], trace.attention_coefficients(backward)[-1]).mean(1)
    return Attribution(classification_row(trace, gradient_BTS))


def _visible_gradient(attention: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of a map, zero at keys that a mask hides: they have a gradient, but cannot be attended to."""
    return gradient.masked_fill(attention == 0, 0)


@method(paper="Grad-SAM; AttCAT, Sec. 4", signed=False, class_specific=True, needs=("attention", "gradients"))
def att_grads(trace: Trace, *, rows: str = "class", backward: str = GRADIENT) -> Attribution:
    """Attention × positive gradient, averaged over blocks and heads; `rows="all"` averages all query rows.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    if rows not in ROW_REDUCTIONS:
        raise BadOption(f"Invalid rows={rows!r} for 'att-grads'. Available: {', '.join(ROW_REDUCTIONS)}.")
    reduce_rows = ROW_REDUCTIONS[rows]
    layers = []
    for attention, gradient in zip(trace.attentions, trace.attention_coefficients(backward), strict=True):
        layers.append(reduce_rows(trace, _positive_product(attention, gradient)))
    layers_BLT = torch.stack(layers, 1)
    return Attribution(layers_BLT.mean(1), layers_BLT)


@method(paper="Chefer et al., ICCV 2021, Eq. 5–10", signed=False, class_specific=True, needs=("attention", "gradients"))
def gae(trace: Trace) -> Attribution:
    """Attention × gradient of every map, rolled out: the classification token's row.

    Generic attention explainability, for one sequence or for the two of an encoder–decoder. Where the head reads words,
    what the identities alone give them is removed (`identity_share` in the diagnostics).
    """
    trace.require_token_maps()
    pairs = zip(trace.attentions, trace.attention_gradients, strict=True)
    maps = [_positive_product(attention, gradient) for attention, gradient in pairs]
    return attribute_maps(trace, maps)


def _positive_product(attention_BHTS: Tensor, gradient_BHTS: Tensor) -> Tensor:
    """Return E_h A ⊙ (∇A)⁺ (B,T,S), which is E_h (∇A ⊙ A)⁺ since no attention is negative."""
    return (attention_BHTS * gradient_BHTS.clamp(min=0)).mean(1)


@method(paper="TransAtt, App. A", signed=False, class_specific=True, needs=("attention", "gradients"))
def attention_gradcam(trace: Trace, *, backward: str = GRADIENT) -> Attribution:
    """Grad-CAM of the last attention map's classification row; a class token itself gets nothing.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    is_class_token_BS = (trace.reading_BT > 0) & reads_first_token(trace)[:, None]
    # Words that the head reads, such as the last token of a decoder, are not left out.
    others_BS = trace.query_BT & ~is_class_token_BS
    gradient_BHTS = trace.attention_coefficients(backward)[-1]
    weight_BH = _mean_over(_head_rows(trace, gradient_BHTS), others_BS)
    weighted_BHS = weight_BH[..., None] * _head_rows(trace, trace.attentions[-1])
    return Attribution(weighted_BHS.mean(1).clamp(min=0) * others_BS)


def _mean_over(values_BHS: Tensor, mask_BS: Tensor) -> Tensor:
    """Return the mean over the tokens of a mask (B,H)."""
    return (values_BHS * mask_BS[:, None]).sum(-1) / mask_BS.sum(-1, keepdim=True)


def _head_rows(trace: Trace, map_BHTS: Tensor) -> Tensor:
    """Return the classification token's row of every head."""
    return torch.einsum("bt,bhts->bhs", trace.reading_BT.to(map_BHTS.dtype), map_BHTS)
