"""TODO."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from clearhead.engine.streams import Found


class LazySequence(Sequence[Found]):
    """A sequence that is made when somebody looks: the GPU is better fed first."""

    def __init__(self, size: int, make: Callable[[], Sequence[Found]]) -> None:
        self._size, self._make = size, make

    @cached_property
    def _made(self) -> Sequence[Found]:
        return self._make()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]

    def __iter__(self) -> Iterator[Found]:
        return iter(self._made)

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)
