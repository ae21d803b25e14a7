"""Forward passes: the activations of one pass that explanations need."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from clearhead.engine.streams import LAUNCHES
from clearhead.engine.tape import GRADIENTS_ONLY, AttentionMap, Tape, list_inputs, list_maps, list_outputs
from clearhead.engine.word_layout import INPUT_LAYOUT
from clearhead.errors import UnsupportedModel

WITHOUT_BLOCKS = "Choose a method that reads gradients at the input, such as attn-lrp or integrated-gradients."


@dataclass(frozen=True, eq=False)
class ForwardPass(ABC):
    """One forward pass of a batch, shared by the traces of several targets.

    `name` is the model's, `tape` the recorded steps, `output` the logits with their autograd graph.
    """

    name: str
    tape: Tape
    output: Tensor
    has_co_attention = False

    @property
    @abstractmethod
    def attentions(self) -> list[Tensor]:
        """Attention maps of all blocks, each (B,H,T,S); raise UnsupportedModel if there are none."""

    @property
    @abstractmethod
    def block_inputs(self) -> list[Tensor]:
        """The hidden state that each block received."""

    @property
    @abstractmethod
    def hidden_states(self) -> list[Tensor]:
        """The embedding output, then the output of each block."""

    @abstractmethod
    def require_attentions(self) -> None:
        """Raise UnsupportedModel if there are no attention maps."""

    @abstractmethod
    def require_blocks(self) -> None:
        """Raise UnsupportedModel if no blocks were found, or their tokens are not those of the input."""

    @property
    def has_states(self) -> bool:
        """Whether the outputs of the blocks are hidden states."""
        return self.has_blocks

    @property
    def has_embedding(self) -> bool:
        """Whether hidden state 0 is all that the output depends on."""
        return self.has_blocks

    def require_states(self) -> None:
        """Raise UnsupportedModel unless the outputs of the blocks are hidden states."""
        self.require_blocks()
        if not self.has_states:
            raise UnsupportedModel(
                f"The blocks of {self.name} are no modules of their own (as in XLM), or have several streams, so the "
                "hidden states between them are not known. Choose a method over attention maps, or one that reads "
                "gradients at the input."
            )

    @property
    def embeddings(self) -> list[Tensor]:
        """The embedding output of every input sequence."""
        return [self.hidden_states[0]]

    @property
    def token_shape(self) -> tuple[int, int]:
        """The inputs of the batch, and the tokens of each."""
        inputs, tokens = self.hidden_states[0].shape[:2]
        return inputs, tokens

    @property
    def cell_shape(self) -> tuple[int, int]:
        """The images of the batch, and the cells that each is divided into where there are no patches."""
        rows, columns = self.tape.patches or (0, 0)
        return len(self.output), rows * columns

    @property
    def last_maps(self) -> list[Tensor]:
        """The attention maps of the last block."""
        return self.attentions[-1:]

    @property
    def depth(self) -> int:
        """The number of blocks; of an encoder and a decoder, of the one that has fewer."""
        # Without the embedding output.
        return len(self.hidden_states) - 1

    # An encoder–decoder joins the activations of both sequences along the tokens, as methods see them.
    def join_states(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Return values at `hidden_states` for all tokens of the input, layer by layer."""
        return list(states)

    def join_inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return values at `block_inputs` for all tokens of the input, layer by layer."""
        return list(inputs)

    def join_maps(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return values at `attentions` between all tokens of the input, layer by layer."""
        return list(maps)

    def separate_maps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Undo `join_maps`."""
        return list(layers)

    def join_last_maps(self, maps: Sequence[Tensor]) -> Tensor:
        """Return values at `last_maps` between all tokens of the input."""
        return maps[0]

    @cached_property
    def joint_states(self) -> list[Tensor]:
        """The hidden states without their graph, for all tokens of the input."""
        return self.join_states(detach_all(self.hidden_states))

    @cached_property
    def joint_inputs(self) -> list[Tensor]:
        """The blocks' inputs without their graph, for all tokens of the input."""
        return self.join_inputs(detach_all(self.block_inputs))

    @cached_property
    def joint_maps(self) -> list[Tensor]:
        """The attention maps without their graph, between all tokens of the input."""
        return self.join_maps(detach_all(self.attentions))

    @property
    def has_blocks(self) -> bool:
        """Whether blocks were found on the tape."""
        return bool(self.tape.blocks)

    @property
    def map_bytes(self) -> int:
        """The bytes that something of the size of all attention maps takes."""
        return sum(attention.nbytes for attention in self.attentions)

    @cached_property
    def has_cut_head(self) -> bool:
        """Whether the output depends on the input through the last hidden state alone."""
        return self.has_blocks and self.tape.are_cuts(self.hidden_states[-1:])

    @property
    def leaf(self) -> Tensor:
        """The activation where the tape begins."""
        assert self.tape.leaf is not None
        return self.tape.leaf

    @cached_property
    def host_output(self) -> Tensor:
        """The logits on the CPU, copied once."""
        # This waits for the device, so that targets, checks and explanations should share one copy.
        with LAUNCHES.paused():
            return self.output.detach().cpu()

    @cached_property
    def chain(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Attention map, input and output of every block; empty unless each block depends on the one before alone."""
        if not self._is_chain:
            return []
        return list(zip(self.attentions, self.block_inputs, self.hidden_states[1:], strict=True))

    @property
    def _is_chain(self) -> bool:
        # Only then do the gradients of one block follow from those at its output.
        return self.tape.are_cuts([*self.block_inputs, *self.hidden_states])


def detach_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return activations without their graph, so that what callers keep of them does not keep all others alive."""
    return [tensor.detach() for tensor in tensors]


@dataclass(frozen=True, eq=False)
class FullForwardPass(ForwardPass):
    """A forward pass that is recorded from the input on and keeps every attention map."""

    @property
    def attentions(self) -> list[Tensor]:
        self.require_attentions()
        return list_maps(self.tape.blocks)

    @property
    def block_inputs(self) -> list[Tensor]:
        return list_inputs(self._blocks)

    @property
    def hidden_states(self) -> list[Tensor]:
        return [self.block_inputs[0], *list_outputs(self._blocks)]

    @property
    def has_blocks(self) -> bool:
        # Where tokens were moved, the blocks' tokens are not those of the input.
        return bool(self.tape.blocks) and self._keeps_order and not self.tape.has_gaps

    @cached_property
    def has_states(self) -> bool:
        # Residuals around all of them: these are parts of blocks, such as the attention alone.
        return self.has_blocks and self.tape.is_stream(list_outputs(self._blocks))

    @cached_property
    def has_embedding(self) -> bool:
        return self.has_blocks and self.tape.are_cuts(self.hidden_states[:1])

    @property
    def _keeps_order(self) -> bool:
        return all(layout is INPUT_LAYOUT for layout in self.tape.layouts)

    @property
    def leaf(self) -> Tensor:
        """Word embeddings (B,T,D), or pixel values (B,C,P,Q)."""
        # Methods place what they find at the leaf on the tokens of the input.
        if None in self.tape.layouts:
            raise UnsupportedModel(
                f"{self.name} looks up other tokens than those of its input, so its gradients cannot be placed on "
                "tokens. Choose a method that only needs outputs, such as occlusion."
            )
        return super().leaf

    def require_attentions(self) -> None:
        self.require_blocks()
        if self.tape.gradients_only:
            raise UnsupportedModel(GRADIENTS_ONLY)

    def require_blocks(self) -> None:
        self._require_order()
        if self.tape.has_gaps:
            raise UnsupportedModel(
                f"Some blocks of {self.name} have no attention maps (linear attention, state spaces, convolutions) or "
                f"merge tokens, so that maps and hidden states would leave them out. {WITHOUT_BLOCKS}"
            )
        if not self.has_blocks:
            raise UnsupportedModel(
                f"No attention maps were found in {self.name}: it is not a Transformer, or it never forms them, or its "
                f"attention implementation hides them (load it with sdpa or eager). {WITHOUT_BLOCKS}"
            )

    def _require_order(self) -> None:
        if not self._keeps_order:
            raise UnsupportedModel(
                f"The blocks of {self.name} have other tokens than its input: it pads or reorders them (Longformer, "
                f"XLNet), or a decoder reads them again. {WITHOUT_BLOCKS}"
            )

    @property
    def _blocks(self) -> list[AttentionMap]:
        self.require_blocks()
        return self.tape.blocks


@dataclass(frozen=True, eq=False)
class PixelForwardPass(FullForwardPass):
    """A forward pass of images without blocks, such as that of a convolutional network: of cells instead of patches."""

    @property
    def token_shape(self) -> tuple[int, int]:
        return self.cell_shape

    def require_blocks(self) -> None:
        raise UnsupportedModel(
            f"No attention maps were found in {self.name}, or not of all its blocks: its pictures are read by a "
            "convolutional network or another that is not a Transformer, some blocks merge patches (Hiera, LeViT), or "
            "it hides the maps (load it with sdpa or eager). Choose a method that reads gradients at the pixels, such "
            "as integrated-gradients or gradient-x-input, or one that hides parts of the picture, such as occlusion, "
            "lime or shapley-sampling."
        )


@dataclass(frozen=True, eq=False)
class DetectorForwardPass(FullForwardPass):
    """A forward pass whose blocks are those of the encoder; the decoder's maps have boxes as queries.

    The first block of the decoder looks at learned queries before it sees the picture: that map is the same for all
    pictures, and not among these.
    """

    @property
    def attentions(self) -> list[Tensor]:
        return list_maps(self._blocks)

    @cached_property
    def joint_maps(self) -> list[Tensor]:
        self.require_attentions()
        return []

    def require_attentions(self) -> None:
        raise UnsupportedModel(
            f"{self.name} finds boxes by a decoder, whose maps do not relate patches to patches: choose gae, a "
            "gradient method such as gradient-x-input, or one that hides patches, such as occlusion."
        )

    @property
    def _blocks(self) -> list[AttentionMap]:
        # Modules of the decoder may look like blocks, but their tokens are boxes.
        blocks = super()._blocks
        cells = list_inputs(blocks)[0].shape[1]
        return [block for block in blocks if block.before is not None and block.before.shape[1] == cells]

    @cached_property
    def decoder_maps(self) -> list[Tensor]:
        """Maps from boxes to boxes or to patches, in the order of computation."""
        of_encoder = set(map(id, self._blocks))
        return list_maps([attention for attention in self.tape.maps if id(attention) not in of_encoder])


def float_input(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the input that is differentiable itself; None for token ids."""
    for name in ("pixel_values", "inputs_embeds"):
        if name in tensors:
            return name
    return None


def not_differentiable(name: str) -> UnsupportedModel:
    """Return the error for a model whose logits have no gradient at its input."""
    return UnsupportedModel(
        f"The logits of {name} do not depend differentiably on its input: it is quantised, or its word embeddings were "
        "not found. Load it unquantised, or choose a method that only needs outputs, such as occlusion."
    )
