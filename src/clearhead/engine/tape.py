"""The tape: the operations of one forward pass, recorded so that relevance can be propagated back through them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from clearhead.engine.backward import BackwardSwitch
from clearhead.engine.lrp.context import Backward, RelevanceContext, Shares
from clearhead.engine.lrp.saved import SavedTensors
from clearhead.engine.module_outputs import KeptOutput
from clearhead.engine.word_layout import WordLayout
from clearhead.errors import UnsupportedOperation

GRADIENTS_ONLY = (
    "This trace was captured with gradients_only=True, so it has neither attention maps nor relevance. Capture the "
    "input without that option."
)
NOT_RECORDED = (
    "An activation was computed where it cannot be recorded: by compiled or quantised code, or by an in-place write "
    "through a view. Choose a method without relevance."
)


class Step(NamedTuple):
    """One recorded operation: the node of its output, the nodes of its inputs, and its backward function."""

    node: int
    parents: tuple[int, ...]
    backward: Backward


@dataclass
class AttentionMap:
    """A softmax that weights values, and the block around it.

    `map` is None on a tape for gradients only. `before` and `after` are the hidden states at the block's input and
    output; `argument` is the index or keyword of the input among the block's arguments. The decoder's blocks
    of an encoder–decoder have two maps, of which the second looks at the source (`is_cross`).
    """

    map: Tensor | None
    is_used: bool = False
    before: Tensor | None = None
    after: Tensor | None = None
    block: nn.Module | None = None
    argument: int | str | None = None
    is_cross: bool = False


def list_maps(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    """Return the attention maps of blocks; none on a tape for gradients only."""
    return [block.map for block in blocks if block.map is not None]


def list_inputs(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    """Return the hidden state that each block received."""
    return [block.before for block in blocks if block.before is not None]


def list_outputs(blocks: Sequence[AttentionMap]) -> list[Tensor]:
    """Return the hidden state after each block."""
    return [block.after for block in blocks if block.after is not None]


@dataclass
class Tape:
    """The steps of a forward pass in order, its leaf (embeddings or pixels), and its attention maps.

    `patches` are the rows and columns of the patch convolution of an image; `switch` selects the backward pass that
    autograd runs over the same operations; `module_outputs` are the outputs of the modules that are kept. A tape for
    `gradients_only` keeps no attention maps, and its steps have no relevance rules, which would keep activations that
    autograd does not need. `layouts` are those of the look-ups of the input's words; None is unknown. `plain` are
    modules that may be blocks but for attention or their tokens, and `has_gaps` tells that some stand among blocks.
    """

    steps: list[Step] = field(default_factory=list)
    maps: list[AttentionMap] = field(default_factory=list)
    leaf: Tensor | None = None
    patches: tuple[int, int] | None = None
    count: int = 0
    saved: SavedTensors = field(default_factory=SavedTensors)
    switch: BackwardSwitch = field(default_factory=BackwardSwitch)
    gradients_only: bool = False
    module_outputs: dict[str, list[KeptOutput]] = field(default_factory=dict)
    layouts: list[WordLayout | None] = field(default_factory=list)
    plain: set[nn.Module] = field(default_factory=set)
    has_gaps: bool = False

    @property
    def blocks(self) -> list[AttentionMap]:
        """The maps for which the surrounding block was found."""
        return [attention for attention in self.maps if attention.before is not None]

    def are_cuts(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether everything after each of these activations depends on the input only through it."""
        # The leaf is a cut without a step: the tape begins there.
        cuts = set(self._find_cuts())
        return all(self.node_of(tensor) in cuts for tensor in tensors if tensor is not self.leaf)

    def is_stream(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether the last of these activations depends on the input only through one before it."""
        *earlier, last = [self.node_of(tensor) or 0 for tensor in tensors]
        # The first cut behind the last block is nearly always the output of the block before it.
        return not earlier or any(cut in earlier for cut in self._find_cuts(last))

    def _find_cuts(self, end: int | None = None) -> Iterator[int]:
        """Yield the nodes that no later step up to `end` bypasses: no parent of such a step comes before them.

        The last comes first.
        """
        last = lowest = end or self.count
        # From the end, so that `lowest` is the first node that any later step reads.
        for node, parents, _ in reversed(self.steps):
            if node > last:
                continue
            if node <= lowest:
                yield node
            # A step without known parents may depend on anything, so nothing before it is a cut.
            lowest = min(lowest, *parents) if parents else 0

    def node_of(self, tensor: Tensor) -> int | None:
        """Return the number of an activation; each in-place write makes it a new one."""
        return self.saved.node_of(tensor)

    def add_node(self, tensor: Tensor) -> int:
        """Number an activation."""
        self.count += 1
        self.saved.set_node(tensor, self.count)
        return self.count

    def record(self, out: Tensor, activations: Sequence[Tensor], backward: Backward) -> Step:
        """Append the operation that computed `out` from these activations."""
        parents = tuple(map(self.saved.node_of, activations))
        if None in parents:
            # Raised when relevance arrives here, not now: other methods may not need this step.
            backward = raise_unsupported(NOT_RECORDED)
            parents = tuple(parent for parent in parents if parent is not None)
        step = Step(self.add_node(out), parents, backward)  # type: ignore[arg-type]
        self.steps.append(step)
        return step

    def record_write(self, tensor: Tensor, parents: tuple[int, ...]) -> None:
        """Append that a tensor was changed through a view of it, from these nodes."""
        self.steps.append(Step(self.add_node(tensor), parents, raise_unsupported(NOT_RECORDED)))


def raise_unsupported(message: str) -> Backward:
    """Return a backward function that raises: methods without relevance still work on such a network."""

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        raise UnsupportedOperation(message)

    return backward
