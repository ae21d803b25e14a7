"""Generic attention explainability of a box that a decoder finds (Chefer et al., ICCV 2021, Eq. 5–11)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution
from clearhead.attribution.two_sequences import attend, normalise
from clearhead.engine.forward import DetectorForwardPass
from clearhead.engine.gradients import vjp
from clearhead.engine.seeds import Seeds
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.model.focus_networks import FOCUS, select_box
from clearhead.model.target import make_seeds


def attribute_box(trace: Trace, forward: DetectorForwardPass) -> Attribution:
    """Return the relevance of the patches for the class of the box that is explained."""
    _require_boxes(trace, forward)
    relevance_BNT = relate_boxes(*_weigh_maps(trace, forward))
    # Of all boxes that the decoder looks for, the explained one.
    return Attribution(select_box(relevance_BNT, trace.inputs.tensors[FOCUS]))


def _weigh_maps(trace: Trace, forward: DetectorForwardPass) -> tuple[list[Tensor], list[Tensor]]:
    """Return E_h (∇A ⊙ A)⁺ of the maps of encoder and decoder, Eq. 5."""
    maps = [*forward.attentions, *forward.decoder_maps]
    # The maps of the decoder belong to no block, so that the gradients of the trace do not have them.
    gradients = vjp(forward.output, _find_direction(trace), maps)
    weighted = list(map(_multiply, maps, gradients))
    count = len(forward.attentions)
    return weighted[:count], weighted[count:]


def _find_direction(trace: Trace) -> Tensor:
    return Seeds(make_seeds(trace.targets, trace.logits)).direction


def _require_boxes(trace: Trace, forward: DetectorForwardPass) -> None:
    if not forward.decoder_maps or not forward.attentions:
        raise UnsupportedModel(
            f"{trace.model.name} forms no attention maps from boxes to patches: choose a gradient method such as "
            "gradient-x-input, or one that hides patches, such as occlusion."
        )


def _multiply(map_BHTS: Tensor, gradient_BHTS: Tensor) -> Tensor:
    # Only what speaks for the class, averaged over heads.
    return (map_BHTS.detach() * gradient_BHTS).clamp(min=0).mean(1)


def relate_boxes(encoder: Sequence[Tensor], decoder: Sequence[Tensor]) -> Tensor:
    """Return the relevance of patches for boxes (B,N,T), from the weighted maps of encoder and decoder.

    R̂ = R − I is carried for both sequences, as for encoder–decoders.
    """
    context_ii = normalise(_relate_patches(encoder))
    extra_qq, relevance_qi = _start_boxes(decoder[0], context_ii)
    for map_BNS in decoder:
        # A map with as many keys as queries is of boxes to each other, any other to the picture.
        if map_BNS.shape[-1] == extra_qq.shape[-1]:
            extra_qq = attend(map_BNS, extra_qq)
            relevance_qi = torch.baddbmm(relevance_qi, map_BNS, relevance_qi)
        else:
            relevance_qi = relevance_qi + _look_at_patches(extra_qq, map_BNS, context_ii)
    return relevance_qi


def _start_boxes(map_BNS: Tensor, context_ii: Tensor) -> tuple[Tensor, Tensor]:
    """Return the zeros that the relevance for boxes of boxes, and of patches, begins with."""
    samples, boxes, _ = map_BNS.shape
    return map_BNS.new_zeros(samples, boxes, boxes), map_BNS.new_zeros(samples, boxes, context_ii.shape[-1])


def _look_at_patches(extra_qq: Tensor, map_BNS: Tensor, context_ii: Tensor) -> Tensor:
    """Return what a map from boxes to patches adds: Eq. 10, with the rows of both contexts normalised."""
    return normalise(extra_qq).mT @ map_BNS @ context_ii


def _relate_patches(encoder: Sequence[Tensor]) -> Tensor:
    extra_ii = torch.zeros_like(encoder[0])
    for map_BTS in encoder:
        extra_ii = attend(map_BTS, extra_ii)
    return extra_ii
