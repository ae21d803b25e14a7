"""Forward passes of networks with several stacks, whose activations are joined along the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from clearhead.engine.co_attention import CoAttentionStacks, find_co_attention
from clearhead.engine.forward import FullForwardPass
from clearhead.engine.merged_stacks import MergedStacks, find_merged_stacks
from clearhead.engine.stacks import Stacks, find_stacks, join_layer
from clearhead.errors import UnsupportedModel


@dataclass(frozen=True, eq=False)
class PairForwardPass(FullForwardPass):
    """A forward pass of an encoder–decoder, whose activations are listed for the encoder first (see `Stacks`)."""

    @property
    def block_inputs(self) -> list[Tensor]:
        return self._stacks.block_inputs

    @property
    def hidden_states(self) -> list[Tensor]:
        return self._stacks.hidden_states

    @property
    def embeddings(self) -> list[Tensor]:
        return self._stacks.embeddings

    @property
    def last_maps(self) -> list[Tensor]:
        return self._stacks.select_last(self.attentions)

    @property
    def depth(self) -> int:
        return self._stacks.depth

    @cached_property
    def chain(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Empty: a block of the decoder depends on the encoder besides the block before it."""
        return []

    @property
    def has_blocks(self) -> bool:
        return self._find_stacks() is not None

    @cached_property
    def has_states(self) -> bool:
        # A block of one stack never is all that the output depends on.
        return self.has_blocks

    @cached_property
    def has_embedding(self) -> bool:
        return self.has_blocks

    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        return self._stacks.join_states(states)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return self._stacks.join_inputs(inputs)

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        return self._stacks.join_maps(maps)

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        return self._stacks.separate_maps(layers)

    def join_last_maps(self, maps: Sequence[Tensor]) -> Tensor:
        return join_layer(None, *maps)

    def require_blocks(self) -> None:
        if not self.has_blocks:
            raise UnsupportedModel(
                f"{self.name} has no encoder followed by a decoder with self- and cross-attention of as many heads, or "
                "hides its attention maps. Choose a method that only looks at the input, such as integrated-gradients."
            )

    @cached_property
    def _stacks(self) -> Stacks | CoAttentionStacks | MergedStacks:
        self.require_blocks()
        stacks = self._find_stacks()
        assert stacks is not None
        return stacks

    def _find_stacks(self) -> Stacks | CoAttentionStacks | MergedStacks | None:
        return find_stacks(self.tape.blocks, self.leaf)


@dataclass(frozen=True, eq=False)
class CoAttentionForwardPass(PairForwardPass):
    """A forward pass of two stacks that attend to each other; `counts` are their blocks (see `find_co_attention`)."""

    counts: tuple[int, int, int] = (0, 0, 0)
    has_co_attention = True

    def _find_stacks(self) -> CoAttentionStacks | None:
        return find_co_attention(self.tape.blocks, self.counts)


@dataclass(frozen=True, eq=False)
class BridgedForwardPass(FullForwardPass):
    """A forward pass of stacks that are added to each other block by block: relevance is read at the embeddings alone.

    The rules of Chefer et al. (ICCV 2021) do not tell how the relevance of two stacks of one input is to be added.
    """

    @property
    def has_blocks(self) -> bool:
        return False

    @property
    def hidden_states(self) -> list[Tensor]:
        return [self.leaf]

    @property
    def last_maps(self) -> list[Tensor]:
        return []

    def require_blocks(self) -> None:
        raise UnsupportedModel(
            f"{self.name} adds stacks of the picture and of the words to those that read both, block by block, so that "
            "its attention maps and blocks are no single path. Choose a method that reads the embeddings, such as "
            "attn-lrp, lrp or gradient-x-input, or one that hides patches and words, such as occlusion."
        )


@dataclass(frozen=True, eq=False)
class MergedForwardPass(PairForwardPass):
    """A forward pass of two stacks and a third that reads both; `counts` are their blocks (see `MergedStacks`)."""

    counts: tuple[int, int, int] = (0, 0, 0)

    def join_last_maps(self, maps: Sequence[Tensor]) -> Tensor:
        # The last block reads all tokens.
        return maps[0]

    def _find_stacks(self) -> MergedStacks | None:
        return find_merged_stacks(self.leaf, self.tape.blocks, self.counts)
