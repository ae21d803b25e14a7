"""Two stacks whose last blocks attend to each other (LXMERT), and their activations joined along the tokens.

The tokens of the picture come first, then the words. A layer of the joined stacks holds a block of each: first those of
both encoders, then both sides of each block with co-attention. Where an encoder has fewer blocks, its last output
stands for the missing ones, so that every layer still is all that the next one reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.engine.tape import AttentionMap

BLOCK_MAPS = 4
"""Maps of a block with co-attention: words to picture, picture to words, then each to itself."""


@dataclass(frozen=True)
class Side:
    """The blocks of one stack by their index: of the encoder, then across and to itself in each later block."""

    encoder: list[int]
    across: list[int]
    own: list[int]

    @property
    def first(self) -> list[int]:
        """The blocks that read what the layer before wrote."""
        return [*self.encoder, *self.across]

    @property
    def last(self) -> list[int]:
        """The blocks that write what the next layer reads."""
        return [*self.encoder, *self.own]

    def spread(self, layers: int) -> list[int | None]:
        """Return for each layer the index into the blocks of this side; None where the encoder has none any more."""
        missing = layers - len(self.last)
        numbers: list[int | None] = list(range(len(self.last)))
        return numbers[: len(self.encoder)] + [None] * missing + numbers[len(self.encoder) :]


@dataclass(frozen=True)
class CoAttentionStacks:
    """The blocks of two stacks in the order of their maps."""

    blocks: Sequence[AttentionMap]
    picture: Side
    words: Side

    @property
    def depth(self) -> int:
        """The number of layers."""
        encoder = max(len(self.picture.encoder), len(self.words.encoder))
        return encoder + len(self.words.across)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.picture, self.words

    @property
    def embeddings(self) -> list[Tensor]:
        return [self._input(side.first[0]) for side in self.sides]

    @property
    def block_inputs(self) -> list[Tensor]:
        return [self._input(index) for side in self.sides for index in side.first]

    @property
    def hidden_states(self) -> list[Tensor]:
        """The embedding output of the picture and the outputs of its blocks, then those of the words."""
        states = []
        for side in self.sides:
            states += [self._input(side.first[0]), *map(self._output, side.last)]
        return states

    def _input(self, index: int) -> Tensor:
        before = self.blocks[index].before
        assert before is not None
        return before

    def _output(self, index: int) -> Tensor:
        after = self.blocks[index].after
        assert after is not None
        return after

    def select_last(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the words in the last block, which the head reads: to themselves, then to the picture."""
        return [maps[self.words.own[-1]], maps[self.words.across[-1]]]

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the hidden states, layer by layer."""
        count = len(self.picture.last) + 1
        columns = []
        for side, own in zip(self.sides, (states[:count], states[count:]), strict=True):
            columns.append([own[0], *_repeat(own[1:], side.spread(self.depth), own[0])])
        return [torch.cat(layer, 1) for layer in zip(*columns, strict=True)]

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the inputs of the blocks, layer by layer."""
        count = len(self.picture.first)
        columns = []
        for side, own in zip(self.sides, (inputs[:count], inputs[count:]), strict=True):
            columns.append(_repeat(own, side.spread(self.depth), own[0]))
        return [torch.cat(layer, 1) for layer in zip(*columns, strict=True)]

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the attention maps into maps between all tokens, layer by layer."""
        joined = []
        spread = zip(self.picture.spread(self.depth), self.words.spread(self.depth), strict=True)
        for picture, words in spread:
            joined.append(self._join_layer(maps, picture, words))
        return joined

    def _join_layer(self, maps: Sequence[Tensor], picture: int | None, words: int | None) -> Tensor:
        sizes = [embedding.shape[1] for embedding in self.embeddings]
        tokens = sum(sizes)
        # Heads may have been averaged already.
        layer = maps[0].new_zeros(*maps[0].shape[:-2], tokens, tokens)
        spans = (slice(0, sizes[0]), slice(sizes[0], tokens))
        for number, (side, block) in enumerate(zip(self.sides, (picture, words), strict=True)):
            own, other = spans[number], spans[1 - number]
            if block is None:
                continue
            layer[..., own, own] = maps[side.last[block]]
            crossing = block - len(side.encoder)
            if crossing >= 0:
                layer[..., own, other] = maps[side.across[crossing]]
        return layer

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`."""
        separated: dict[int, Tensor] = {}
        source = self.embeddings[0].shape[1]
        for side, own in zip(self.sides, (slice(0, source), slice(source, None)), strict=True):
            other = slice(source, None) if own.start == 0 else slice(0, source)
            for layer, block in zip(layers, side.spread(self.depth), strict=True):
                if block is None:
                    continue
                separated[side.last[block]] = layer[..., own, own]
                if block >= len(side.encoder):
                    separated[side.across[block - len(side.encoder)]] = layer[..., own, other]
        return [separated[index] for index in range(len(self.blocks))]


def _repeat(values: Sequence[Tensor], numbers: Sequence[int | None], start: Tensor) -> list[Tensor]:
    """Return the value of every layer, the one before it where a layer has none."""
    repeated = [start]
    for number in numbers:
        repeated.append(repeated[-1] if number is None else values[number])
    return repeated[1:]


def find_co_attention(blocks: Sequence[AttentionMap], counts: tuple[int, int, int]) -> CoAttentionStacks | None:
    """Return the stacks of blocks in their order: words, picture, then both; None if there are not as many.

    `counts` are the blocks of the encoder of words, of that of the picture, and those with co-attention.
    """
    of_words, of_picture, of_both = counts
    start = of_words + of_picture
    if len(blocks) != start + BLOCK_MAPS * of_both:
        return None
    first = range(start, len(blocks), BLOCK_MAPS)
    words = Side(list(range(of_words)), list(first), [index + 2 for index in first])
    picture = Side(list(range(of_words, start)), [index + 1 for index in first], [index + 3 for index in first])
    return CoAttentionStacks(blocks, picture, words)
