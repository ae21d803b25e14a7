"""A sequence that is computed when it is first read."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence of known length whose items are computed when one of them is first read.

    Reading results from a GPU waits for it; a lazy sequence puts that off until all kernels are queued.
    """

    def __init__(self, size: int, compute: Callable[[], Sequence[T]]) -> None:
        self._size = size
        self._compute = compute

    @cached_property
    def _items(self) -> Sequence[T]:
        return self._compute()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __reduce__(self) -> Any:
        # The closure that computes the items cannot be pickled, so the items are.
        return tuple, (tuple(self),)
