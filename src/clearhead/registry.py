"""A mapping from names to things that answers a misspelling with a suggestion."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from clearhead.errors import UnknownName

T = TypeVar("T")


def unknown_name(kind: str, name: object, names: Mapping[str, object] | list[str]) -> UnknownName:
    """The error for a name that is not there: says what was meant, or what there is."""
    close = get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    hint = f"Did you mean '{close[0]}'?" if close else f"There is: {', '.join(names)}."
    return UnknownName(f"No {kind} is called '{name}'. {hint}")


class Registry(Mapping[str, T]):
    """Things by name, in the order they were added; `kind` is the word used in errors.

    `modules` register their things when they are imported; that happens when the registry is first read, so that
    nobody has to import a module only for its side effect.
    """

    def __init__(self, kind: str, modules: Sequence[str] = ()) -> None:
        self.kind = kind
        self._modules = tuple(modules)
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> None:
        if name in self._things:
            raise ValueError(f"The {self.kind} '{name}' is registered twice.")
        self._things[name] = thing

    def _loaded(self) -> dict[str, T]:
        # Emptied first: a module that reads the registry while it is imported must not start over.
        modules, self._modules = self._modules, ()
        for module in modules:
            importlib.import_module(module)
        return self._things

    def __getitem__(self, name: str) -> T:
        things = self._loaded()
        if not isinstance(name, str) or name not in things:
            raise unknown_name(self.kind, name, things)
        return things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __repr__(self) -> str:
        return f"{{{', '.join(self._loaded())}}}"
