"""The two stacks of blocks of an encoder–decoder, and their activations joined along the tokens.

The tokens of the source come first, then those of the decoder's input. Layer b holds block b of the encoder and block b
of the decoder, with zeros where one of them has fewer blocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.tape import AttentionMap, list_inputs, list_maps, list_outputs


class Stacks(NamedTuple):
    """The attention maps of the encoder's blocks, and those of the decoder's blocks to their own sequence and across.

    Lists of activations have the encoder's first; lists of maps are in the order of computation, so that in each block
    of the decoder self-attention is followed by cross-attention.
    """

    encoder: list[AttentionMap]
    decoder: list[AttentionMap]
    cross: list[AttentionMap]

    @property
    def block_inputs(self) -> list[Tensor]:
        return [*list_inputs(self.encoder), *list_inputs(self.decoder)]

    @property
    def hidden_states(self) -> list[Tensor]:
        return [*_list_states(self.encoder), *_list_states(self.decoder)]

    @property
    def embeddings(self) -> list[Tensor]:
        return [list_inputs(self.encoder)[0], list_inputs(self.decoder)[0]]

    @property
    def depth(self) -> int:
        """The blocks of the shorter stack."""
        return min(len(self.encoder), len(self.decoder))

    def select_last(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the decoder's last block: to its own sequence, then to the source."""
        return list(maps[-2:])

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the hidden states of encoder and decoder, layer by layer."""
        return _join_sequences(states, len(self.encoder) + 1)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the inputs of the blocks, layer by layer."""
        return _join_sequences(inputs, len(self.encoder))

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the attention maps into maps between all tokens, layer by layer."""
        count = len(self.encoder)
        layers = _align_layers(maps[:count], maps[count::2], maps[count + 1 :: 2])
        return [join_layer(*layer) for layer in layers]

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`: return the attention of each kind in the order of computation."""
        source = list_inputs(self.encoder)[0].shape[1]
        maps = [layer[..., :source, :source] for layer in layers[: len(self.encoder)]]
        # A block of the decoder looks at its own sequence first.
        for layer in layers[: len(self.decoder)]:
            maps.append(layer[..., source:, source:])
            maps.append(layer[..., source:, :source])
        return maps


def _list_states(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    return [list_inputs(blocks)[0], *list_outputs(blocks)]


def find_stacks(blocks: Sequence[AttentionMap], words_BTD: Tensor) -> Stacks | None:
    """Return the stacks that attention maps in their order belong to; None if they are not those of two stacks.

    `words_BTD` are the embeddings of both sequences.
    """
    stacks = _split_stacks(blocks)
    if not _alternate(stacks, blocks) or not _have_equal_heads(blocks):
        return None
    if not _keep_tokens(stacks.embeddings, words_BTD):
        return None
    return stacks


def _keep_tokens(embeddings: Sequence[Tensor], words_BTD: Tensor) -> bool:
    """Return whether what enters both stacks has the tokens of the words, not transposed as in FSMT."""
    if any(_is_transposed(state, len(words_BTD)) for state in embeddings):
        return False
    return _count_tokens(embeddings) == words_BTD.shape[1]


def _count_tokens(embeddings: Sequence[Tensor]) -> int:
    return sum(state.shape[1] for state in embeddings)


def _is_transposed(state: Tensor, samples: int) -> bool:
    """Return whether the tokens of a hidden state come before the samples."""
    # With as many tokens as samples, the order in memory tells.
    if state.shape[0] == state.shape[1]:
        return state.stride(0) < state.stride(1)
    return state.shape[0] != samples


def _split_stacks(blocks: Sequence[AttentionMap]) -> Stacks:
    """Split attention maps as if each cross-attention followed the self-attention of its block."""
    cross = [block for block in blocks if block.is_cross]
    encoder = list(blocks[: len(blocks) - 2 * len(cross)])
    return Stacks(encoder, list(blocks[len(encoder) :: 2]), cross)


def _alternate(stacks: Stacks, blocks: Sequence[AttentionMap]) -> bool:
    """Return whether the encoder's maps are followed by pairs of the decoder's, each pair in one block."""
    # An encoder or a decoder alone is one stack.
    if not stacks.encoder or not stacks.cross:
        return False
    pairs = zip(stacks.decoder, blocks[len(stacks.encoder) + 1 :: 2], strict=True)
    return all(_share_block(*pair) for pair in pairs)


def _share_block(own: AttentionMap, cross: AttentionMap) -> bool:
    return cross.is_cross and own.after is cross.after


def _have_equal_heads(blocks: Sequence[AttentionMap]) -> bool:
    # Without maps, in a trace for gradients only, heads need not match.
    head_counts = set(map(_count_heads, list_maps(blocks)))
    return len(head_counts) <= 1 and None not in head_counts


def _count_heads(attention: Tensor) -> int | None:
    """Return the number of heads of a map (B,H,T,S); None if it has other axes."""
    if attention.dim() != 4:
        return None
    return attention.shape[1]


def _join_sequences(states: Sequence[Tensor], source_count: int) -> list[Tensor]:
    """Join the states of encoder and decoder layer by layer; the first `source_count` are the encoder's."""
    return [torch.cat(layer, 1) for layer in _align_layers(states[:source_count], states[source_count:])]


def _align_layers(*stacks: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return the tensors of all stacks layer by layer."""
    count = max(map(len, stacks))
    extended = [_extend(list(stack), count) for stack in stacks]
    return list(zip(*extended, strict=True))


def _extend(tensors: list[Tensor], count: int) -> list[Tensor]:
    """Append zeros for the layers that the shorter stack does not have."""
    # One tensor for all of them: joining copies it.
    return tensors + [torch.zeros_like(tensors[-1])] * (count - len(tensors))


def join_layer(encoder: Tensor | None, decoder: Tensor, cross: Tensor) -> Tensor:
    """Return a map between all tokens: the source attends to itself, the decoder's input to the source and itself."""
    if encoder is None:
        encoder = _zeros_of_source(cross)
    # Zeros, because the source does not see the decoder's input.
    of_source = F.pad(encoder, (0, decoder.shape[-1]))
    of_target = torch.cat([cross, decoder], -1)
    return torch.cat([of_source, of_target], -2)


def _zeros_of_source(cross: Tensor) -> Tensor:
    """Return a map of zeros between the tokens of the source, which are the keys of cross-attention."""
    *outer, _, source = cross.shape
    return cross.new_zeros(*outer, source, source)
