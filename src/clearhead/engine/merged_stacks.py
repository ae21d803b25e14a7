"""Stacks of a picture and of a text, and a third stack that reads both (FLAVA): activations joined along the tokens.

A layer of the first stacks holds a block of each, whose attention maps stand on the diagonal of one map between all
tokens. Tokens that only the third stack reads stay as they are until then; so does the shorter of the first two stacks
after its last block.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.engine.tape import AttentionMap, list_inputs, list_maps, list_outputs


class MergedStacks(NamedTuple):
    """The embeddings of all tokens, and the blocks of each stack."""

    embedding: Tensor
    picture: Sequence[AttentionMap]
    words: Sequence[AttentionMap]
    both: Sequence[AttentionMap]

    @property
    def embeddings(self) -> list[Tensor]:
        return [self.embedding]

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self._separate_layers + len(self.both)

    @property
    def _separate_layers(self) -> int:
        return max(len(self.picture), len(self.words))

    @property
    def block_inputs(self) -> list[Tensor]:
        # A layer reads what the one before it wrote; the first reads the embeddings.
        count = self._separate_layers - 1
        written = [*list_outputs(self.picture[:count]), *list_outputs(self.words[:count])]
        return [self.embedding, *written, *list_inputs(self.both)]

    @property
    def hidden_states(self) -> list[Tensor]:
        written = [*list_outputs(self.picture), *list_outputs(self.words)]
        return [self.embedding, *written, *list_outputs(self.both)]

    def select_last(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the map of the last block, in a list."""
        return list(maps[-1:])

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the hidden states, layer by layer."""
        return self._join_layers(states, self._separate_layers)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the inputs of the blocks, layer by layer."""
        return self._join_layers(inputs, self._separate_layers - 1)

    def _join_layers(self, values: Sequence[Tensor], count: int) -> list[Tensor]:
        """Join values of which, behind those at the embeddings, `count` layers are those of separate stacks."""
        end = 1 + min(count, len(self.picture))
        behind = end + min(count, len(self.words))
        picture, words = values[1:end], values[end:behind]
        embedding = values[0]
        layers = [self._join_layer(embedding, picture, words, layer) for layer in range(count)]
        return [embedding, *layers, *values[behind:]]

    def _join_layer(self, embedding: Tensor, picture: Sequence[Tensor], words: Sequence[Tensor], layer: int) -> Tensor:
        latest = [stack[min(layer, len(stack) - 1)] for stack in (picture, words)]
        leading = embedding.shape[1] - sum(states.shape[1] for states in latest)
        return torch.cat([embedding[:, :leading], *latest], 1)

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Join values at the attention maps into maps between all tokens, layer by layer."""
        count = len(self.picture)
        behind = count + len(self.words)
        layers = []
        for layer in range(self._separate_layers):
            joined = self._make_zeros(maps[0])
            # Where a stack has no block any more, nothing is attended to.
            for values, tokens in ((maps[:count], self._picture_span), (maps[count:behind], self._word_span)):
                if layer < len(values):
                    joined[..., tokens, tokens] = values[layer]
            layers.append(joined)
        return [*layers, *maps[behind:]]

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`."""
        picture = [layer[..., self._picture_span, self._picture_span] for layer in layers[: len(self.picture)]]
        words = [layer[..., self._word_span, self._word_span] for layer in layers[: len(self.words)]]
        return [*picture, *words, *layers[self._separate_layers :]]

    def _make_zeros(self, values: Tensor) -> Tensor:
        tokens = self.embedding.shape[1]
        # Heads may have been averaged already.
        return values.new_zeros(*values.shape[:-2], tokens, tokens)

    @property
    def _picture_span(self) -> slice:
        return slice(self._word_span.start - list_outputs(self.picture)[0].shape[1], self._word_span.start)

    @property
    def _word_span(self) -> slice:
        tokens = self.embedding.shape[1]
        return slice(tokens - list_outputs(self.words)[0].shape[1], tokens)


def find_merged_stacks(
    embedding: Tensor, blocks: Sequence[AttentionMap], counts: tuple[int, int, int]
) -> MergedStacks | None:
    """Return the stacks that attention maps in their order belong to; None if there are not as many, or other heads.

    `counts` are the blocks of the stack of words, of that of the picture, and of the one that reads both.
    """
    words, picture, both = counts
    end = picture + words
    if len(blocks) != end + both or not _have_equal_heads(blocks[:end]):
        return None
    return MergedStacks(embedding, blocks[:picture], blocks[picture:end], blocks[end:])


def _have_equal_heads(blocks: Sequence[AttentionMap]) -> bool:
    # None on a tape for gradients only.
    return len({attention.shape[1] for attention in list_maps(blocks)}) <= 1
