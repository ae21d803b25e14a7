"""The tape: one forward pass of an unmodified network, written down as the steps relevance walks back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from clearhead.engine.lrp.context import Back, RelevanceContext, Shares
from clearhead.errors import UnsupportedOperation

NODE = "_clearhead_node"
UNSEEN = (
    "An activation was made where it cannot be followed: by compiled or quantised code, or written in place "
    "through a view. Choose a method without relevance."
)


class Step(NamedTuple):
    """One call on the tape: which node it made, from which nodes, and how relevance goes back."""

    node: int
    parents: tuple[int, ...]
    back: Back


@dataclass
class AttentionMap:
    """A softmax that weights values: its result, and the hidden state before and after the block around it."""

    map: Tensor
    used: bool = False
    before: Tensor | None = None
    after: Tensor | None = None
    block: nn.Module | None = None
    argument: int | str | None = None


@dataclass
class Tape:
    """Steps in the order of the forward pass, the input leaf, and the attention maps met on the way."""

    steps: list[Step] = field(default_factory=list)
    maps: list[AttentionMap] = field(default_factory=list)
    leaf: Tensor | None = None
    patches: tuple[int, int] | None = None
    count: int = 0

    @property
    def blocks(self) -> list[AttentionMap]:
        """The maps around which a block of the network was seen."""
        return [found for found in self.maps if found.before is not None]

    def are_cuts(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all that is made after each of these activations depends on the input through it alone."""
        lowest, cuts = self.count, set()
        for step in reversed(self.steps):
            if lowest >= step.node:
                cuts.add(step.node)
            lowest = min((lowest, *step.parents)) if step.parents else 0
        return all(self.node(tensor) in cuts for tensor in tensors if tensor is not self.leaf)

    def node(self, tensor: Tensor) -> int | None:
        """The number of an activation; a tensor written in place gets a new one at each write."""
        known: dict[int, int] | None = tensor.__dict__.get(NODE)
        return None if known is None else known.get(tensor._version)

    def enter(self, tensor: Tensor) -> int:
        self.count += 1
        tensor.__dict__.setdefault(NODE, {})[tensor._version] = self.count
        return self.count

    def write(self, out: Tensor, activations: Sequence[Tensor], back: Back) -> Step:
        parents = tuple(map(self.node, activations))
        if None in parents:
            parents, back = tuple(parent for parent in parents if parent is not None), refuse(UNSEEN)
        step = Step(self.enter(out), parents, back)  # type: ignore[arg-type]
        self.steps.append(step)
        return step


def refuse(message: str) -> Back:
    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        raise UnsupportedOperation(message)

    return back
