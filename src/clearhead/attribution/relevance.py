"""Methods over layer-wise relevance."""

from torch import Tensor

from clearhead.attribution.attention import fold, normalised, row
from clearhead.attribution.method import Attribution, method
from clearhead.engine.lrp.linear import Z_PLUS
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption


@method(paper="TransAtt, Eq. 13–14", signed=False, class_specific=True)
def trans_att(
    trace: Trace,
    *,
    first_block: int = 0,
    normalise_rows: bool = False,
    weight: str = "gradient",
    only_block: int | None = None,
) -> Attribution:
    """Relevance × gradient of every attention map, rolled out: the classification token's row.

    `weight="attention"` replaces the gradient by the map itself and `only_block` uses a single block (the paper's
    ablations); `first_block` and `normalise_rows` reproduce the authors' code.
    """
    trace.require_token_maps()
    maps = _weighted(trace, weight)
    chosen = _chosen(maps, first_block, only_block)
    relevance_BT = fold(trace.reading_BT.to(maps[0].dtype), normalised(chosen) if normalise_rows else chosen)
    return Attribution(relevance_BT, diagnostics=trace.balance())


def _weighted(trace: Trace, weight: str) -> list[Tensor]:
    if weight == "gradient":
        return trace.weighted_relevances
    if weight != "attention":
        raise BadOption(f"weight={weight!r} is not a choice of 'trans-att'. Use 'gradient' or 'attention'.")
    pairs = zip(trace.attentions, trace.attention_relevances, strict=True)
    return [(attention * relevance).clamp_(min=0).mean(1) for attention, relevance in pairs]


def _chosen(maps: list[Tensor], first_block: int, only_block: int | None) -> list[Tensor]:
    blocks = len(maps)
    if not 0 <= first_block < blocks:
        raise BadOption(f"first_block={first_block} is not a block: this model has blocks 0 … {blocks - 1}.")
    if only_block is None:
        return maps[first_block:]
    if not -blocks <= only_block < blocks:
        raise BadOption(f"only_block={only_block} is not a block: this model has blocks {-blocks} … {blocks - 1}.")
    return [maps[only_block]]


@method(paper="TransAtt, Eq. 4 (LRP baseline)", signed=True, class_specific=True)
def lrp(trace: Trace) -> Attribution:
    """Layer-wise relevance (z-plus) at the embedding output; for images carried on to the pixels."""
    tokens_BT = trace.embedding_relevance(Z_PLUS)
    diagnostics = trace.balance(Z_PLUS)
    if not trace.is_image:
        return Attribution(tokens_BT, diagnostics=diagnostics)
    pixels_BPQ = trace.pixel_relevance().sum(1)
    left = (1 - pixels_BPQ.double().flatten(1).sum(1)).tolist()
    reported = [{**one, "left_behind": share} for one, share in zip(diagnostics, left, strict=True)]
    return Attribution(trace.patches(pixels_BPQ), pixels_BPQ=pixels_BPQ, diagnostics=reported)


@method(paper="Voita et al. 2019; TransAtt, App. A", signed=False, class_specific=True)
def partial_lrp(trace: Trace) -> Attribution:
    """Positive relevance (z-plus) of the last attention map, averaged over heads: the classification row."""
    trace.require_token_maps()
    last = trace.relevance_at(trace.forward.attentions[-1], Z_PLUS)
    return Attribution(row(trace, last.clamp(min=0).mean(1)), diagnostics=trace.balance_at_the_last_map(Z_PLUS))
