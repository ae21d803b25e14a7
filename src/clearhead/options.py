"""Options of methods and metrics: the keyword arguments of a function, as written and as the function takes them."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Integral, Real
from os import PathLike
from types import NoneType
from typing import Any, get_args, get_type_hints

from clearhead.errors import BadOption
from clearhead.registry import unknown

WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: ((str, PathLike), "a word"),
    NoneType: (NoneType, "none"),
}


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The options that a function takes, with what they are unless they are given."""
    parameters = inspect.signature(function).parameters
    return {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def parsed(name: Any) -> tuple[str, str, dict[str, Any]]:
    """'name:key=value,…' or (name, {options}): the way it was written, the plain name, and the options."""
    if isinstance(name, tuple) and len(name) == 2:
        plain, given = name[0], dict(name[1])
        text = plain + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")
        return text, plain.strip(), given
    text, (plain, _, tail) = str(name), str(name).partition(":")
    pairs = [part.partition("=") for part in tail.split(",") if part.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise BadOption(f"Options in '{text}' must be written name=value, separated by commas.")
    return text, plain.strip(), {key.strip(): value_of(value.strip()) for key, _, value in pairs}


def value_of(text: str) -> Any:
    """A value as written on a command line: number, true, false, none, or text."""
    if text.casefold() in WORDS:
        return WORDS[text.casefold()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuses options that the function of this name does not take, and values of another kind than it takes."""
    taken, hints = defaults(function), _hints(function)
    for key, value in given.items():
        if key not in taken:
            raise _unknown(name, key, taken)
        kinds = [KINDS.get(kind) for kind in get_args(hints.get(key)) or (hints.get(key),)]
        known = [kind for kind in kinds if kind is not None]
        if len(known) == len(kinds) and not any(_is(value, kind) for kind, _ in known):
            wanted = " or ".join(words for _, words in known)
            raise BadOption(f"{key}={value!r} is not a choice of '{name}': it must be {wanted}.")


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind; true and false are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The kinds of value that a function says it takes, as far as they are known by name."""
    try:
        return get_type_hints(function)
    except NameError:
        return {}


def _unknown(name: str, key: str, taken: Mapping[str, Any]) -> BadOption:
    if not taken:
        return BadOption(f"'{name}' takes no options, so '{key}' cannot be given.")
    return BadOption(str(unknown(f"option of '{name}'", key, list(taken))))
