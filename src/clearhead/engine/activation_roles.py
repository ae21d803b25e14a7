"""What an activation is to the products that it is a factor of: a gate, a weight of a softmax, or a constant.

Roles are known by the nodes of a tape, and follow an activation through operations that only move, convert or scale its
elements. What is computed of constants alone is constant, and what is computed of weights and constants is a weight.
"""

from collections.abc import Sequence


def split_names(names: str) -> frozenset[str]:
    """Return the set of names in a text."""
    return frozenset(names.split())


GATES = split_names("gelu silu relu tanh sigmoid mish elu selu celu leaky_relu relu6 hardswish softplus")
"""Functions whose output may gate another activation."""
DEVIATIONS = split_names("rsqrt sqrt std var norm linalg_norm linalg_vector_norm vector_norm")
CONSTANTS = DEVIATIONS | {"topk"}
"""Operations whose result is held constant: deviations and norms, and the weights of the chosen experts."""
CHOICES = split_names("gather take_along_dim max amax")
"""Operations that choose experts where their operand is a probability."""
MOVES = split_names(
    """
    view reshape flatten unflatten squeeze unsqueeze view_as reshape_as transpose swapaxes swapdims permute movedim
    moveaxis t T mT contiguous clone to type float double half bfloat16 type_as expand expand_as repeat
    repeat_interleave broadcast_to tile dropout getitem select narrow index_select split chunk unbind tensor_split
    """
)
SCALINGS = split_names("mul multiply div truediv divide neg")
"""Operations that scale their operand if it is their only activation."""
SOFTMAXES = split_names("softmax attention_weights")
ROLES = GATES | CONSTANTS | CHOICES | MOVES | SCALINGS | SOFTMAXES
"""Operations whose results may have a role of their own, or that of their operand."""


class ActivationRoles:
    """The roles of the activations of one forward pass, by their nodes.

    `softmaxes` depend on the input through softmaxes alone.
    """

    def __init__(self) -> None:
        self.gates: set[int] = set()
        self.held: set[int] = set()
        self.softmaxes: set[int] = set()
        self._probabilities: set[int] = set()

    def note(self, name: str, node: int, parents: Sequence[int]) -> None:
        """Note the roles of an operation's result."""
        # Most operations give no role.
        if name not in ROLES and not self._can_inherit(parents):
            return
        self._note_constant(name, node, parents)
        if name in SOFTMAXES or self._is_weight(parents):
            self.softmaxes.add(node)
        if name in GATES:
            self.gates.add(node)
        if name in ("softmax", "sigmoid"):
            self._probabilities.add(node)
        if (name in MOVES or name in SCALINGS) and len(parents) == 1:
            self._copy(parents[0], node)

    def _can_inherit(self, parents: Sequence[int]) -> bool:
        """Return whether an activation has a role that others inherit by any operation."""
        return not (self.held.isdisjoint(parents) and self.softmaxes.isdisjoint(parents))

    def chooses_experts(self, name: str, node: int | None) -> bool:
        """Return whether an operation on an activation picks the weights of the chosen experts."""
        return name in CHOICES and node in self._probabilities

    def _note_constant(self, name: str, node: int, parents: Sequence[int]) -> None:
        if name in CONSTANTS or self._is_constant(name, parents):
            self.held.add(node)

    def _is_constant(self, name: str, parents: Sequence[int]) -> bool:
        # Parents are unknown after a write through a view: all of none would be constants.
        return bool(parents) and self._keeps_constant(name, parents)

    def _keeps_constant(self, name: str, parents: Sequence[int]) -> bool:
        return self.held.issuperset(parents) or self.chooses_experts(name, parents[0])

    def _is_weight(self, parents: Sequence[int]) -> bool:
        """Return whether all of these activations are weights or constants, and one is a weight."""
        if self.softmaxes.isdisjoint(parents):
            return False
        return all(parent in self.softmaxes or parent in self.held for parent in parents)

    def _copy(self, node: int, moved: int) -> None:
        for role in (self.gates, self._probabilities):
            if node in role:
                role.add(moved)
