"""What one forward pass leaves behind."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from clearhead.engine.tape import AttentionMap, Tape
from clearhead.errors import UnsupportedModel


@dataclass(frozen=True)
class ForwardPass:
    """What one forward pass left behind; traces for several targets share it."""

    name: str
    tape: Tape
    output: Tensor
    in_order: bool = True

    @property
    def leaf(self) -> Tensor:
        assert self.tape.leaf is not None
        self._require_order()
        return self.tape.leaf

    @cached_property
    def said(self) -> Tensor:
        """The output on the CPU, fetched once."""
        return self.output.detach().cpu()

    @property
    def has_blocks(self) -> bool:
        return bool(self.tape.blocks)

    @property
    def attentions(self) -> list[Tensor]:
        return [block.map for block in self._blocks]

    @property
    def block_inputs(self) -> list[Tensor]:
        return [block.before for block in self._blocks if block.before is not None]

    @property
    def hidden_states(self) -> list[Tensor]:
        return [self.block_inputs[0], *(block.after for block in self._blocks if block.after is not None)]

    @cached_property
    def chain(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Map, input and output of every block, if each depends on the input through the one before it alone."""
        blocks = list(zip(self.attentions, self.block_inputs, self.hidden_states[1:], strict=True))
        return blocks if self.tape.are_cuts([*self.block_inputs, *self.hidden_states]) else []

    @property
    def _blocks(self) -> list[AttentionMap]:
        if not self.has_blocks:
            raise UnsupportedModel(
                f"No attention maps were found in {self.name}: it is not a Transformer, or it never forms them "
                "(Longformer, XLNet), or its attention implementation hides them (load it with sdpa or eager). "
                "Choose a method that only asks for outputs, such as occlusion."
            )
        self._require_order()
        return self.tape.blocks

    def _require_order(self) -> None:
        if not self.in_order:
            raise UnsupportedModel(
                f"{self.name} pads its tokens or lays them out in another order (Longformer, XLNet), so its gradients "
                "cannot be placed. Choose a method that only asks for outputs, such as occlusion."
            )
