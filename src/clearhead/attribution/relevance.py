"""Methods over layer-wise relevance."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

from torch import Tensor

from clearhead.attribution.attention import classification_row
from clearhead.attribution.baselines import with_diagnostics
from clearhead.attribution.gradient import attribute_pixels
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.two_sequences import attribute_maps
from clearhead.engine.backward import GRADIENT, check_backward
from clearhead.engine.lrp.linear import Z_PLUS
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.validation import require_choice


def _weighs_by_gradient(options: Mapping[str, Any]) -> bool:
    # Block by block, trans-att carries the gradient alone.
    return bool(options["weight"] == "gradient" and options["backward"] == GRADIENT)


@method(
    paper="TransAtt, Eq. 13–14",
    signed=False,
    class_specific=True,
    needs=("attention", "gradients", "relevance"),
    blockwise=_weighs_by_gradient,
    loses_digits=True,
)
def trans_att(
    trace: Trace,
    *,
    first_block: int = 0,
    normalise_rows: bool = False,
    weight: str = "gradient",
    only_block: int | None = None,
    backward: str = GRADIENT,
) -> Attribution:
    """Relevance × gradient of every attention map, rolled out: the classification token's row.

    Where the head reads words, what the identities alone give them is removed (`identity_share` in the diagnostics).
    `weight="attention"` replaces the gradient by the map itself and `only_block` uses a single block (the paper's
    ablations); `first_block` and `normalise_rows` reproduce the authors' code. `backward` replaces the gradient by the
    coefficients of a balanced backward pass.
    """
    trace.require_token_maps()
    check_backward(backward)
    require_choice("weight", weight, ("gradient", "attention"), " for 'trans-att'")
    maps = _select_blocks(_weighted_maps(trace, weight, backward), first_block, only_block)
    return attribute_maps(trace, maps, normalise_rows=normalise_rows, diagnostics=trace.balance())


def _weighted_maps(trace: Trace, weight: str, backward: str) -> list[Tensor]:
    """Return E_h (∇A ⊙ R)⁺ of every block (B,T,S), TransAtt Eq. 13, or the same with A instead of ∇A."""
    if weight == "gradient":
        return trace.relevances_weighted_by(backward)
    return _relevances_by_attention(trace)


def _relevances_by_attention(trace: Trace) -> list[Tensor]:
    pairs = zip(trace.attentions, trace.attention_relevances, strict=True)
    return list(starmap(_weigh_by_attention, pairs))


def _weigh_by_attention(attention_BHTS: Tensor, relevance_BHTS: Tensor) -> Tensor:
    # In place on the product, which is as large as all heads' maps of a block.
    return (attention_BHTS * relevance_BHTS).clamp_(min=0).mean(1)


def _select_blocks(maps: list[Tensor], first_block: int, only_block: int | None) -> list[Tensor]:
    blocks = len(maps)
    _check_block("first_block", first_block, 0, blocks)
    if only_block is None:
        return maps[first_block:]
    # Negative numbers count from the last block, as in a list.
    _check_block("only_block", only_block, -blocks, blocks)
    return [maps[only_block]]


def _check_block(option: str, block: int, first: int, blocks: int) -> None:
    if not first <= block < blocks:
        raise BadOption(f"Invalid {option}={block}: this model has blocks {first} … {blocks - 1}.")


@method(
    paper="TransAtt, Eq. 4 (LRP baseline)",
    signed=True,
    class_specific=True,
    needs=("relevance",),
    loses_digits=True,
)
def lrp(trace: Trace) -> Attribution:
    """Layer-wise relevance (z-plus) at the embedding output; for images carried on to the pixels."""
    tokens_BT = trace.embedding_relevance(Z_PLUS)
    # Before the pixels: conservation is measured at the embedding output.
    diagnostics = trace.balance(Z_PLUS)
    if not trace.is_image:
        return Attribution(tokens_BT, diagnostics=diagnostics)
    pixels_BPQ = trace.pixel_relevance().sum(1)
    return with_diagnostics(attribute_pixels(trace, pixels_BPQ), _add_left_behind(diagnostics, pixels_BPQ))


def _add_left_behind(diagnostics: Sequence[Mapping[str, float]], pixels_BPQ: Tensor) -> list[dict[str, float]]:
    """Add to the diagnostics of each image which share of the relevance its pixels did not get."""
    # What position embeddings and the class token keep never reaches a pixel.
    left_behind_B = 1 - pixels_BPQ.double().flatten(1).sum(1)
    return list(map(_add_share, diagnostics, left_behind_B.tolist()))


def _add_share(entry: Mapping[str, float], left_behind: float) -> dict[str, float]:
    return {**entry, "left_behind": left_behind}


@method(
    paper="Voita et al. 2019; TransAtt, App. A",
    signed=False,
    class_specific=True,
    needs=("relevance",),
    loses_digits=True,
)
def partial_lrp(trace: Trace) -> Attribution:
    """Positive relevance (z-plus) of the last attention map, averaged over heads: the classification row."""
    trace.require_token_maps()
    row_BT = classification_row(trace, _last_positive_map(trace))
    return Attribution(row_BT, diagnostics=trace.balance_at_the_last_map(Z_PLUS))


def _last_positive_map(trace: Trace) -> Tensor:
    """Return the positive relevance of the last attention map, averaged over heads (B,T,S)."""
    return trace.last_map_relevance(Z_PLUS).clamp(min=0).mean(1)
