"""Registries: mappings from names to objects that suggest a name for a misspelling."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from clearhead.errors import UnknownName

T = TypeVar("T")


def unknown_name(noun: str, name: object, names: Mapping[str, object] | list[str]) -> UnknownName:
    """Return the error for an unknown name, with the closest match or all names; `noun` says what is named."""
    available = f"Available: {', '.join(names)}."
    matches = get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    hint = f"Did you mean '{matches[0]}'?" if matches else available
    return UnknownName(f"No {noun} is called '{name}'. {hint}")


class Registry(Mapping[str, T]):
    """Objects by name, in the order they were added; `noun` names them in error messages.

    `modules` add their objects when they are imported. The registry imports them when it is first read, so that nobody
    has to import a module only for its side effect.
    """

    def __init__(self, noun: str, modules: Sequence[str] = ()) -> None:
        self.noun = noun
        self._modules = tuple(modules)
        self._objects: dict[str, T] = {}

    def add(self, name: str, value: T) -> None:
        """Register an object; raise ValueError if the name is already registered."""
        if name in self._objects:
            raise ValueError(f"The {self.noun} '{name}' is registered twice.")
        self._objects[name] = value

    def _load(self) -> dict[str, T]:
        """Import the modules that have not been imported yet, and return all objects."""
        modules = self._modules
        # Cleared first: a module that reads the registry while it is being imported must not start over.
        self._modules = ()
        for module in modules:
            importlib.import_module(module)
        return self._objects

    def __getitem__(self, name: str) -> T:
        objects = self._load()
        if not isinstance(name, str) or name not in objects:
            raise unknown_name(self.noun, name, objects)
        return objects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def __repr__(self) -> str:
        return f"{{{', '.join(self._load())}}}"
