"""Attention maps of two sequences, in the order in which they are computed, and how relevance passes through them.

A layer of a trace holds the maps of a block of the encoder and of one of the decoder side by side. But the decoder
reads what the last block of the encoder wrote, so the layers are unfolded into one map after the other. Where two
sequences attend to each other, both are updated from the state before the block.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.attribution.method import Attribution
from clearhead.attribution.roll_out import attribute_roll_out, make_identity, report_identity_share
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption


class LayerMaps(NamedTuple):
    """The kinds of attention in a map between all tokens: of the source, of the decoder's input, and across."""

    source: Tensor
    target: Tensor
    cross: Tensor


def split_map(map_BTS: Tensor, source: int) -> LayerMaps:
    """Return the kinds of attention of a layer; `source` counts the tokens of the source."""
    of_source = map_BTS[..., :source, :]
    of_target = map_BTS[..., source:, :]
    return LayerMaps(of_source[..., :source], of_target[..., source:], of_target[..., :source])


def unfold_layers(trace: Trace, maps: Sequence[Tensor]) -> list[Tensor]:
    """Return the maps of a trace in the order of computation, each with one kind of attention."""
    if not trace.forward.has_co_attention:
        return unfold_maps(maps, trace.source_tokens)
    unfolded = []
    for map_BTS in maps:
        # A block looks at the other sequence first.
        own_BTS = keep_own(map_BTS, trace.source_tokens)
        unfolded += [map_BTS - own_BTS, own_BTS]
    return unfolded


def unfold_maps(maps: Sequence[Tensor], source: int) -> list[Tensor]:
    """Return maps between all tokens in the order of computation, each with one kind of attention and zero elsewhere.

    First the encoder's, then for each block of the decoder self-attention and cross-attention. With one sequence, a
    `source` of no tokens, the maps are as they were.
    """
    if source == 0:
        return list(maps)
    of_encoder = []
    of_decoder = []
    for map_BTS in maps:
        layer = _spread_kinds(split_map(map_BTS, source))
        of_encoder.append(layer.source)
        of_decoder += [layer.target, layer.cross]
    return of_encoder + of_decoder


def _spread_kinds(layer: LayerMaps) -> LayerMaps:
    """Return each kind of attention as a map between all tokens, with zeros elsewhere."""
    # Cross-attention is from the decoder's input to the source.
    target, source = layer.cross.shape[-2:]
    return LayerMaps(
        F.pad(layer.source, (0, target, 0, target)),
        F.pad(layer.target, (source, 0, source, 0)),
        F.pad(layer.cross, (0, target, source, 0)),
    )


def attribute_maps(
    trace: Trace,
    maps: Sequence[Tensor],
    *,
    normalise_rows: bool = False,
    diagnostics: Sequence[Mapping[str, Any]] = (),
) -> Attribution:
    """Pass relevance through weighted maps: a roll-out for one sequence, the rules of Chefer et al. 2021 for two."""
    if trace.source_tokens == 0:
        return attribute_roll_out(trace, maps, normalise_rows=normalise_rows, diagnostics=diagnostics)
    if normalise_rows:
        raise BadOption("normalise_rows is for models with one sequence: the rules for two normalise by themselves.")
    return _attribute_two(trace, maps, diagnostics)


def _attribute_two(trace: Trace, maps: Sequence[Tensor], diagnostics: Sequence[Mapping[str, Any]]) -> Attribution:
    source = trace.source_tokens
    if trace.forward.has_co_attention:
        reading_B1T = trace.reading_BT[:, None].to(maps[0].dtype)
        relevance_BT = torch.bmm(reading_B1T, relate_both(maps, source))[:, 0]
    else:
        reading_B1T = trace.reading_BT[:, None, source:].to(maps[0].dtype)
        relevance_BT = torch.bmm(reading_B1T, relate_sequences(maps, source))[:, 0]
    # The identity of the decoder's own relevance is left out, as for one sequence.
    return Attribution(relevance_BT, diagnostics=report_identity_share(relevance_BT, reading_B1T[:, 0], diagnostics))


def relate_sequences(maps: Sequence[Tensor], source: int) -> Tensor:
    """Return the relevance of all tokens for each token of the decoder's input, without the identity (B,T,S).

    Chefer et al., ICCV 2021, Eq. 6–10, with i for the source and q for the decoder's input. R̂ = R − I is carried
    instead of R, whose identity would cost the digits of small relevance.
    """
    layers = [split_map(map_BTS, source) for map_BTS in maps]
    context_ii = normalise(_relate_source(layers))
    # The decoder reads what the encoder's last block wrote, so the source comes first.
    extra_qq = torch.zeros_like(layers[0].target)
    relevance_qi = torch.zeros_like(layers[0].cross)
    for layer in layers:
        extra_qq = attend(layer.target, extra_qq)
        relevance_qi = torch.baddbmm(relevance_qi, layer.target, relevance_qi)
        # Eq. 10.
        relevance_qi = relevance_qi + normalise(extra_qq).mT @ layer.cross @ context_ii
    return torch.cat([relevance_qi, extra_qq], 2)


def _relate_source(layers: Sequence[LayerMaps]) -> Tensor:
    """Return R̂ of the source after the last block of the encoder."""
    extra_ii = torch.zeros_like(layers[0].source)
    for layer in layers:
        extra_ii = attend(layer.source, extra_ii)
    return extra_ii


def relate_both(maps: Sequence[Tensor], source: int) -> Tensor:
    """Return the relevance of all tokens for each token of sequences that attend to each other (B,T,S), as R̂ = R − I.

    In a map between all tokens self-attention is on the diagonal, and co-attention beside it: one product updates both
    sequences.
    """
    extra_BTS = torch.zeros_like(maps[0])
    for map_BTS in maps:
        own_BTS = keep_own(map_BTS, source)
        extra_BTS = _attend_across(map_BTS - own_BTS, extra_BTS, source)
        extra_BTS = attend(own_BTS, extra_BTS)
    return extra_BTS


def _attend_across(across_BTS: Tensor, extra_BTS: Tensor, source: int) -> Tensor:
    """Return R̂ after co-attention: R^sq += (R̄^ss)ᵀ Ā R̄^qq, Eq. 10, and R^ss += Ā R^qs, Eq. 11."""
    own_BTS = keep_own(extra_BTS, source)
    context_BTS = normalise(own_BTS)
    return extra_BTS + context_BTS.mT @ across_BTS @ context_BTS + across_BTS @ (extra_BTS - own_BTS)


def keep_own(map_BTS: Tensor, source: int) -> Tensor:
    """Return a map between all tokens with zeros between the two sequences; the first has `source` tokens."""
    own_BTS = map_BTS.clone()
    own_BTS[..., :source, source:] = 0
    own_BTS[..., source:, :source] = 0
    return own_BTS


def attend(map_BTS: Tensor, extra_BTS: Tensor) -> Tensor:
    """Return R̂ + A (I + R̂): self-attention, Eq. 6."""
    return torch.baddbmm(extra_BTS + map_BTS, map_BTS, extra_BTS)


def normalise(extra_BTS: Tensor) -> Tensor:
    """Return R̂ with rows that sum to one, plus the identity, Eq. 8–9; rows without relevance keep the identity only."""
    return _normalise_rows(extra_BTS) + make_identity(extra_BTS)


def _normalise_rows(extra_BTS: Tensor) -> Tensor:
    total_BT1 = extra_BTS.sum(-1, keepdim=True)
    # Rows that sum to zero are zero, since no relevance here is negative.
    return extra_BTS / total_BT1.masked_fill(total_BT1 == 0, 1)
