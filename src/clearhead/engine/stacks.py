"""The two stacks of blocks of an encoder–decoder, and their activations joined along the tokens.

The tokens of the source come first, then those of the decoder's input. Layer b holds block b of the encoder and block b
of the decoder, with zeros where one of them has fewer blocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.tape import AttentionMap


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
        return [*_inputs(self.encoder), *_inputs(self.decoder)]

    @property
    def hidden_states(self) -> list[Tensor]:
        return [*_states(self.encoder), *_states(self.decoder)]

    @property
    def embeddings(self) -> list[Tensor]:
        return [_inputs(self.encoder)[0], _inputs(self.decoder)[0]]

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the hidden states of encoder and decoder, layer by layer."""
        return _join_sequences(states, len(self.encoder) + 1)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the inputs of the blocks, layer by layer."""
        return _join_sequences(inputs, len(self.encoder))

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the attention maps into maps between all tokens, layer by layer."""
        count = len(self.encoder)
        groups = (maps[:count], maps[count::2], maps[count + 1 :: 2])
        layers = max(map(len, groups))
        stacks = [_extend(list(group), layers) for group in groups]
        return [join_layer(*layer) for layer in zip(*stacks, strict=True)]

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`: return the attention of each kind in the order of computation."""
        source = _inputs(self.encoder)[0].shape[1]
        maps = [layer[..., :source, :source] for layer in layers[: len(self.encoder)]]
        for layer in layers[: len(self.decoder)]:
            maps.append(layer[..., source:, source:])
            maps.append(layer[..., source:, :source])
        return maps


def _inputs(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    return [block.before for block in blocks if block.before is not None]


def _states(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    outputs = [block.after for block in blocks if block.after is not None]
    return [_inputs(blocks)[0], *outputs]


def find_stacks(blocks: Sequence[AttentionMap]) -> Stacks | None:
    """Return the stacks that attention maps in their order belong to; None if they are not those of two stacks."""
    cross = [block for block in blocks if block.is_cross]
    encoder = list(blocks[: len(blocks) - 2 * len(cross)])
    decoder = list(blocks[len(encoder) :: 2])
    stacks = Stacks(encoder, decoder, cross)
    if not _alternate(stacks, blocks) or not _have_equal_heads(blocks):
        return None
    return stacks


def _alternate(stacks: Stacks, blocks: Sequence[AttentionMap]) -> bool:
    """Return whether the encoder's maps are followed by pairs of the decoder's, each pair in one block."""
    if not stacks.encoder or not stacks.cross:
        return False
    pairs = zip(stacks.decoder, blocks[len(stacks.encoder) + 1 :: 2], strict=True)
    return all(other.is_cross and own.after is other.after for own, other in pairs)


def _have_equal_heads(blocks: Sequence[AttentionMap]) -> bool:
    # Without maps, in a trace for gradients only, heads need not match.
    shapes = [block.map.shape for block in blocks if block.map is not None]
    if not shapes:
        return True
    return {len(shape) for shape in shapes} == {4} and len({shape[1] for shape in shapes}) == 1


def _join_sequences(states: Sequence[Tensor], source_count: int) -> list[Tensor]:
    """Join the states of encoder and decoder layer by layer; the first `source_count` are the encoder's."""
    source = list(states[:source_count])
    target = list(states[source_count:])
    layers = max(len(source), len(target))
    pairs = zip(_extend(source, layers), _extend(target, layers), strict=True)
    return [torch.cat(pair, 1) for pair in pairs]


def _extend(tensors: list[Tensor], count: int) -> list[Tensor]:
    """Append zeros for the layers that the shorter stack does not have."""
    missing = count - len(tensors)
    return tensors + [torch.zeros_like(tensors[-1])] * missing


def join_layer(encoder: Tensor | None, decoder: Tensor, cross: Tensor) -> Tensor:
    """Return a map between all tokens: the source attends to itself, the decoder's input to the source and itself."""
    source = cross.shape[-1]
    if encoder is None:
        encoder = cross.new_zeros(*cross.shape[:-2], source, source)
    of_source = F.pad(encoder, (0, decoder.shape[-1]))
    of_target = torch.cat([cross, decoder], -1)
    return torch.cat([of_source, of_target], -2)
