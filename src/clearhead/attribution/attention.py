"""Methods over attention maps and their gradients."""

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution, method
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption


def fold(reading_BT: Tensor, maps: list[Tensor]) -> Tensor:
    """Row of the classification token in the product (I + M_{L−1}) ⋯ (I + M_0), without forming the product."""
    row_B1T = reading_BT[:, None]
    for map_BTS in reversed(maps):
        row_B1T = torch.baddbmm(row_B1T, row_B1T, map_BTS)
    return row_B1T[:, 0]


def normalised(maps: list[Tensor]) -> list[Tensor]:
    """Maps M' such that I + M' is I + M with rows that sum to one."""
    return [_row_normalised(map_BTS) for map_BTS in maps]


def _row_normalised(map_BTS: Tensor) -> Tensor:
    identity = torch.eye(map_BTS.shape[-1], dtype=map_BTS.dtype, device=map_BTS.device)
    whole = map_BTS + identity
    return whole / whole.sum(-1, keepdim=True) - identity


def row(trace: Trace, map_BTS: Tensor) -> Tensor:
    """The classification token's row; averaged as the head averages where it reads several."""
    return torch.einsum("bt,bts->bs", trace.reading_BT.to(map_BTS.dtype), map_BTS)


def received(trace: Trace, map_BTS: Tensor) -> Tensor:
    """What each token receives on average from the real ones."""
    queries_BT = trace.mask_BT.to(map_BTS.dtype)
    return torch.einsum("bt,bts->bs", queries_BT / queries_BT.sum(1, keepdim=True), map_BTS)


@method(paper="TransAtt, App. A", signed=False, class_specific=False)
def raw_attention(trace: Trace) -> Attribution:
    """Attention of the last block, averaged over heads: the classification token's row."""
    trace.require_token_maps()
    return Attribution(row(trace, trace.attentions[-1].mean(1)))


@method(paper="Abnar & Zuidema 2020; TransAtt Eq. 15–16", signed=False, class_specific=False)
def rollout(trace: Trace, *, normalise_rows: bool = False) -> Attribution:
    """Product over blocks of I + mean attention: the classification token's row."""
    trace.require_token_maps()
    maps = [attention.mean(1) for attention in trace.attentions]
    reading_BT = trace.reading_BT.to(maps[0].dtype)
    return Attribution(fold(reading_BT, normalised(maps) if normalise_rows else maps))


@method(paper="AttCAT, Sec. 4", signed=True, class_specific=True)
def grads(trace: Trace) -> Attribution:
    """Gradient of the last attention map, averaged over heads: the classification token's row."""
    trace.require_token_maps()
    return Attribution(row(trace, trace.attention_gradients[-1].mean(1)))


@method(paper="Grad-SAM; AttCAT, Sec. 4", signed=False, class_specific=True)
def att_grads(trace: Trace, *, rows: str = "class") -> Attribution:
    """Attention × positive gradient, averaged over blocks and heads; `rows="all"` averages all query rows."""
    trace.require_token_maps()
    if rows not in ("class", "all"):
        raise BadOption(f"rows={rows!r} is not a choice of 'att-grads'. Use 'class' or 'all'.")
    pairs = zip(trace.attentions, trace.attention_gradients, strict=True)
    blocks = [(attention * gradient.clamp(min=0)).mean(1) for attention, gradient in pairs]
    if rows == "class":
        layers = [row(trace, block) for block in blocks]
    else:
        layers = [received(trace, block) for block in blocks]
    layers_BLT = torch.stack(layers, 1)
    return Attribution(layers_BLT.mean(1), layers_BLT)


@method(paper="TransAtt, App. A", signed=False, class_specific=True)
def attention_gradcam(trace: Trace) -> Attribution:
    """Grad-CAM of the last attention map's classification row; that token itself gets nothing."""
    trace.require_token_maps()
    reading_BT = trace.reading_BT.to(trace.attentions[-1].dtype)
    others_BS = trace.mask_BT & (reading_BT < 1)
    gradient_BHS = torch.einsum("bt,bhts->bhs", reading_BT, trace.attention_gradients[-1])
    attention_BHS = torch.einsum("bt,bhts->bhs", reading_BT, trace.attentions[-1])
    weight_BH = (gradient_BHS * others_BS[:, None]).sum(-1) / others_BS.sum(-1, keepdim=True)
    return Attribution((weight_BH[..., None] * attention_BHS).mean(1).clamp(min=0) * others_BS)
