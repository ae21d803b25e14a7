"""A mapping from names to things that answers a misspelling with a suggestion."""

import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import TypeVar

from clearhead.errors import UnknownName

T = TypeVar("T")


def unknown(kind: str, name: object, names: Mapping[str, object] | list[str]) -> UnknownName:
    """The error for a name that is not there: says what was meant, or what there is."""
    close = get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    hint = f"Did you mean '{close[0]}'?" if close else f"There is: {', '.join(names)}."
    return UnknownName(f"No {kind} is called '{name}'. {hint}")


class Registry(Mapping[str, T]):
    """Things by name, in the order they were added; `kind` is the word used in errors."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> None:
        if name in self._things:
            raise ValueError(f"The {self.kind} '{name}' is registered twice.")
        self._things[name] = thing

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str) or name not in self._things:
            raise unknown(self.kind, name, self._things)
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def __repr__(self) -> str:
        return f"{{{', '.join(self._things)}}}"


def answers(package: str, listing: Callable[[], object]) -> None:
    """Lets a package be called like a function: `clearhead.methods()` lists what `clearhead/methods/` holds."""
    module = sys.modules[package]
    module.__class__ = type("Catalogue", (ModuleType,), {"__call__": lambda self: listing()})
