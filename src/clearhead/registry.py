"""Registries: mappings from names to objects that suggest a name for a misspelling."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from clearhead.errors import UnknownName

T = TypeVar("T")


def unknown_name(noun: str, name: object, names: Mapping[str, object] | list[str]) -> UnknownName:
    """Return the error for an unknown name, with the closest match or all names; `noun` says what is named."""
    return UnknownName(f"No {noun} is called '{name}'. {_suggest(str(name), list(names))}")


def _suggest(name: str, names: list[str]) -> str:
    # Below difflib's default of 0.6, so that half a name is enough: 'smooth' leads to 'smooth-gradient'.
    matches = get_close_matches(name, names, n=1, cutoff=0.5)
    if matches:
        return f"Did you mean '{matches[0]}'?"
    return f"Available: {', '.join(names)}."


class Registry(Mapping[str, T]):
    """Objects by name; `noun` names them in error messages.

    `modules` add their objects when they are imported. The registry imports them when it is first read, so that nobody
    has to import a module only for its side effect. Objects are in the order of their modules, whichever of them was
    imported first; those of other modules follow in the order they were added.
    """

    def __init__(self, noun: str, modules: Sequence[str] = ()) -> None:
        self.noun = noun
        self._modules = tuple(modules)
        self._is_loaded = False
        self._objects: dict[str, T] = {}
        self._module_of: dict[str, str] = {}

    def add(self, name: str, value: T, module: str = "") -> None:
        """Register an object defined in `module`; raise ValueError if the name is already registered."""
        self._refuse_second(name)
        self._objects[name] = value
        self._module_of[name] = module

    def _refuse_second(self, name: str) -> None:
        # A mistake of the programmer, not of the user: no ClearheadError.
        if name in self._objects:
            raise ValueError(f"The {self.noun} '{name}' is registered twice.")

    def _load(self) -> dict[str, T]:
        """Import the modules on the first call, and return all objects."""
        if not self._is_loaded:
            # Set first: a module that reads the registry while it is being imported must not start over.
            self._is_loaded = True
            self._import_modules()
        return self._objects

    def _import_modules(self) -> None:
        for module in self._modules:
            importlib.import_module(module)
        self._sort()

    def _sort(self) -> None:
        # A module may have been imported on its own before, but the order decides, for example, which reader of files
        # is tried first: it must not depend on what else the process has done.
        names = sorted(self._objects, key=self._rank)
        self._objects = {name: self._objects[name] for name in names}

    def _rank(self, name: str) -> int:
        module = self._module_of[name]
        if module in self._modules:
            return self._modules.index(module)
        return len(self._modules)

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
