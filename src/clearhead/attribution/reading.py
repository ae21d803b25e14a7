"""Block relevance of words, told apart from what their states have gathered from other words.

The state that a head reads ends with all of the relevance, whatever token it stands at. On a class token that does no
harm, and an average spreads it over all tokens. At the end of an answer span, relevance that comes from other words
would be shown as that word's own. In a decoder every word gathers from those before it, so that its states say little
about the word itself. In these cases the relevance at the embedding output takes the place of that at the blocks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.attribution.activation import gradient_x_hidden
from clearhead.attribution.roll_out import find_first_tokens
from clearhead.engine.trace import Trace
from clearhead.model.language import reads_both_ways


def correct_read_words(trace: Trace, layers: Sequence[Tensor], coefficients: Sequence[Tensor]) -> list[Tensor]:
    """Return block relevances (B,T) with that of the embedding output at words whose states belong to others.

    `coefficients` are those at all hidden states.
    """
    # Only images merge their patches between blocks, and no image has words.
    if trace.is_image:
        return list(layers)
    own_BT = gradient_x_hidden(coefficients[0], trace.hidden_states[0])
    gathers_BT = gathers_words(trace, coefficients[-1])
    return [torch.where(gathers_BT, own_BT, layer_BT) for layer_BT in layers]


def gathers_words(trace: Trace, last_BTD: Tensor) -> Tensor:
    """Return which tokens have states that belong to other words, from the coefficients at the last hidden state.

    These are the ends of an answer span, a word whose label is explained, and all words of a decoder, whose head reads
    a single one.
    """
    is_read_BT = (last_BTD != 0).any(-1)
    if trace.model.problem == "span" or _labels_words(trace):
        return is_read_BT
    if trace.model.writes:
        return torch.ones_like(is_read_BT)
    return _is_decoder(trace, is_read_BT)[:, None].expand_as(is_read_BT)


def _labels_words(trace: Trace) -> bool:
    """Return whether an encoder labels words, each from its own state."""
    return trace.model.has_focus and reads_both_ways(trace.model.config)


def _is_decoder(trace: Trace, is_read_BT: Tensor) -> Tensor:
    """Return for which samples the head reads a single word, as that of a decoder does (B)."""
    return (is_read_BT.sum(1) == 1) & ~_reads_first_token(trace, is_read_BT)


def _reads_first_token(trace: Trace, is_read_BT: Tensor) -> Tensor:
    """Return for which samples the head reads the first real token, a class token, alone or among others (B)."""
    return (is_read_BT & find_first_tokens(trace)).any(1)
