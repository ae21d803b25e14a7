"""Two stacks whose last blocks attend to each other (LXMERT), and their activations joined along the tokens.

The tokens of the picture come first, then the words. A layer of the joined stacks holds a block of each: first those of
both encoders, then both sides of each block with co-attention. Where an encoder has fewer blocks, its last output
stands for the missing ones, so that every layer still is all that the next one reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.tape import AttentionMap, list_inputs, list_outputs

PICTURE, WORDS = 0, 1
SIDES = (PICTURE, WORDS)


@dataclass(frozen=True)
class MapRole:
    """What an attention map is for: its layer, whose tokens ask, and whether they look at the other sequence.

    `reads` tells whether its module gets what the layer before wrote; a layer with co-attention looks across first.
    """

    layer: int
    side: int
    is_cross: bool
    reads: bool


@dataclass(frozen=True)
class CoAttentionStacks:
    """The attention maps of two stacks in the order of computation, and what each is for."""

    blocks: Sequence[AttentionMap]
    roles: Sequence[MapRole]

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.roles[-1].layer + 1

    @property
    def embeddings(self) -> list[Tensor]:
        return [self._list_inputs(side)[0] for side in SIDES]

    @property
    def block_inputs(self) -> list[Tensor]:
        return [*self._list_inputs(PICTURE), *self._list_inputs(WORDS)]

    @property
    def hidden_states(self) -> list[Tensor]:
        """The embedding output of the picture and the outputs of its blocks, then those of the words."""
        picture, words = self.embeddings
        return [picture, *self._list_outputs(PICTURE), words, *self._list_outputs(WORDS)]

    def _list_inputs(self, side: int) -> list[Tensor]:
        return list_inputs([self.blocks[index] for index in self._find_reading(side)])

    def _list_outputs(self, side: int) -> list[Tensor]:
        return list_outputs([self.blocks[index] for index in self._find_writing(side)])

    def _find_reading(self, side: int) -> list[int]:
        return [index for index, role in enumerate(self.roles) if role.side == side and role.reads]

    def _find_writing(self, side: int) -> list[int]:
        return [index for index, role in enumerate(self.roles) if role.side == side and not role.is_cross]

    def _list_layers(self, side: int) -> list[int]:
        """Return the layers in which a stack has a block."""
        return [self.roles[index].layer for index in self._find_writing(side)]

    def select_last(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the words in the last block, which the head reads: to themselves, then to the picture."""
        last = [index for index, role in enumerate(self.roles) if role.layer == self.depth - 1]
        # The order of `_list_roles`.
        to_picture, _, to_words, _ = last
        return [maps[to_words], maps[to_picture]]

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the hidden states, layer by layer."""
        count = len(self._list_layers(PICTURE)) + 1
        # The embedding output is what layer −1 wrote.
        picture = spread(states[:count], [-1, *self._list_layers(PICTURE)], self.depth)
        words = spread(states[count:], [-1, *self._list_layers(WORDS)], self.depth)
        return _join(picture, words)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the inputs of the blocks, layer by layer."""
        count = len(self._list_layers(PICTURE))
        picture = spread(inputs[:count], self._list_layers(PICTURE), self.depth)
        words = spread(inputs[count:], self._list_layers(WORDS), self.depth)
        return _join(picture, words)

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the attention maps into maps between all tokens, layer by layer."""
        layers = [self._make_zeros(maps[0]) for _ in range(self.depth)]
        for role, values in zip(self.roles, maps, strict=True):
            layers[role.layer][self._find_cells(role)] = values
        return layers

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`."""
        return [layers[role.layer][self._find_cells(role)] for role in self.roles]

    def _make_zeros(self, values: Tensor) -> Tensor:
        tokens = sum(embedding.shape[1] for embedding in self.embeddings)
        # Heads may have been averaged already.
        return values.new_zeros(*values.shape[:-2], tokens, tokens)

    def _find_cells(self, role: MapRole) -> Any:
        """Return which queries and keys of a joined map a map holds."""
        count = self.embeddings[PICTURE].shape[1]
        spans = (slice(0, count), slice(count, None))
        # The other side is 1 − side.
        keys = abs(role.side - int(role.is_cross))
        return (..., spans[role.side], spans[keys])


def _join(picture: Sequence[Tensor], words: Sequence[Tensor]) -> list[Tensor]:
    return [torch.cat(layer, 1) for layer in zip(picture, words, strict=True)]


def spread(values: Sequence[Tensor], numbers: Sequence[int], depth: int) -> list[Tensor]:
    """Return the value of each layer from the first of `numbers` on: the one before it where a layer has none."""
    by_layer = dict(zip(numbers, values, strict=True))
    repeated = []
    latest = values[0]
    for layer in range(numbers[0], depth):
        latest = by_layer.get(layer, latest)
        repeated.append(latest)
    return repeated


def find_co_attention(blocks: Sequence[AttentionMap], counts: tuple[int, int, int]) -> CoAttentionStacks | None:
    """Return the stacks that attention maps in their order belong to; None if there are not as many.

    `counts` are the blocks of the encoder of words, of that of the picture, and those with co-attention.
    """
    roles = list(_list_roles(*counts))
    return CoAttentionStacks(blocks, roles) if len(roles) == len(blocks) else None


def _list_roles(of_words: int, of_picture: int, of_both: int) -> Iterator[MapRole]:
    """Yield the roles of all maps in the order of computation: words, picture, then block by block of both."""
    for side, count in ((WORDS, of_words), (PICTURE, of_picture)):
        for layer in range(count):
            yield MapRole(layer, side, is_cross=False, reads=True)
    # Co-attention begins when both encoders are done.
    start = max(of_words, of_picture)
    for layer in range(start, start + of_both):
        for is_cross in (True, False):
            yield MapRole(layer, WORDS, is_cross, reads=is_cross)
            yield MapRole(layer, PICTURE, is_cross, reads=is_cross)
