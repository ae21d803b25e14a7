"""Sequences and lists whose items are computed when they are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partialmethod
from typing import Any, Self, SupportsIndex, TypeVar

from clearhead.arrays import Array

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


@dataclass(frozen=True, eq=False)
class Selection(Sequence[T]):
    """Some items of another sequence, read from there."""

    items: Sequence[T]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Selection(self.items, self.indices[index])
        return self.items[self.indices[index]]


@dataclass(frozen=True, eq=False)
class Interleaved(Sequence[T]):
    """The items of several sequences in another order: item i is item `rows[i]` of part `numbers[i]`."""

    parts: Sequence[Sequence[T]]
    numbers: Array
    rows: Array

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Selection(self, range(len(self))[index])
        return self.parts[self.numbers[index]][self.rows[index]]


class LazyList(list[T]):
    """A list whose items are read from a sequence whenever they are asked for, until the list is changed.

    A change reads all items and keeps them: from then on it is a list like any other.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(items)
        self._source: Sequence[T] | None = None

    @classmethod
    def read_from(cls, source: Sequence[T]) -> Self:
        """Return a list of the items of a sequence that is not changed any more."""
        lazy = cls()
        lazy._source = source
        return lazy

    def __len__(self) -> int:
        if self._source is None:
            return super().__len__()
        return len(self._source)

    def __iter__(self) -> Iterator[T]:
        if self._source is None:
            return super().__iter__()
        return iter(self._source)

    def __reversed__(self) -> Iterator[T]:
        for index in range(len(self) - 1, -1, -1):
            yield self[index]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._slice(index)
        if self._source is None:
            return super().__getitem__(index)
        return self._source[_locate(index, len(self))]

    def _slice(self, index: slice) -> Self:
        if self._source is None:
            return type(self)(super().__getitem__(index))
        return self.read_from(Selection(self._source, range(len(self))[index]))

    def copy(self) -> Self:
        return self._slice(slice(None))

    def __radd__(self, other: list[T]) -> list[T]:
        return other + list(self)

    def __reduce__(self) -> Any:
        return type(self), (list(self),)

    def _read_with(self, operation: str, *arguments: Any) -> Any:
        """Apply an operation of lists that reads many items and changes none."""
        # The implementation of lists looks at the items that a list keeps, and a lazy one keeps none.
        return getattr(list, operation)(list(self), *map(_keep_items, arguments))

    def _change_with(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Keep all items, then apply an operation of lists that changes them."""
        if self._source is not None:
            items = list(self._source)
            self._source = None
            super().extend(items)
        return getattr(super(), operation)(*map(_keep_items, arguments), **options)


def _locate(index: SupportsIndex, size: int) -> int:
    """Return the index from the first item; raise IndexError or TypeError as a list does."""
    try:
        return range(size)[index]
    except IndexError:
        raise IndexError("list index out of range") from None


def _keep_items(argument: Any) -> Any:
    return list(argument) if isinstance(argument, LazyList) else argument


READING = "__contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __mul__ __rmul__ __repr__ index count"
CHANGING = "__setitem__ __delitem__ __iadd__ __imul__ append extend insert remove pop clear sort reverse"
for _operation in READING.split():
    setattr(LazyList, _operation, partialmethod(LazyList._read_with, _operation))
for _operation in CHANGING.split():
    setattr(LazyList, _operation, partialmethod(LazyList._change_with, _operation))
