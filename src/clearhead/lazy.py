"""A sequence that is computed when it is first read."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence that is made when somebody looks: the GPU is better fed first."""

    def __init__(self, size: int, make: Callable[[], Sequence[T]]) -> None:
        self._size, self._make = size, make

    @cached_property
    def _made(self) -> Sequence[T]:
        return self._make()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._made)

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)
