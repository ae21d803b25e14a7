"""Activation functions that a network writes out as a product with itself: x · Φ(x), x · sigmoid(x).

Rules for products of two activations would share what belongs to x alone, so such a product is treated as the function
of x that it is.
"""

from collections.abc import Sequence

SCALINGS = frozenset({"mul", "multiply", "div", "truediv", "divide", "neg"})
ELEMENTWISE = SCALINGS | {"add", "sub", "rsub", "pow", "square", "erf", "tanh", "sigmoid", "exp"}


class ElementwiseSources:
    """The activation that others were computed from element by element, by the nodes of a tape."""

    def __init__(self) -> None:
        self._sources: dict[int, int] = {}
        self._multiples: set[int] = set()

    def note(self, name: str, node: int, parents: Sequence[int]) -> None:
        """Note the result of an operation; its other operands are constants."""
        if name not in ELEMENTWISE:
            return
        sources = {self._sources.get(parent, parent) for parent in parents}
        # Of several activations the result is a function of one element only if they come from the same one.
        if len(sources) != 1:
            return
        self._sources[node] = sources.pop()
        if name in SCALINGS and len(parents) == 1 and self._is_multiple(parents[0]):
            self._multiples.add(node)

    def _is_multiple(self, node: int) -> bool:
        """Return whether an activation is its source, or that times a constant."""
        return node not in self._sources or node in self._multiples

    def find_gated(self, left: int | None, right: int | None) -> int | None:
        """Return which factor of a product (0 or 1) is x, if the other is a function of the same x; else None."""
        if left is None or right is None or self._source(left) != self._source(right):
            return None
        for index, node in enumerate((left, right)):
            if self._is_multiple(node):
                return index
        return None

    def _source(self, node: int) -> int:
        return self._sources.get(node, node)
