"""Options of methods and metrics: the keyword arguments of a function, as written and as the function takes them."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from clearhead.errors import BadOption
from clearhead.registry import unknown_name

WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: ((str, PathLike), "a word"),
    NoneType: (NoneType, "none"),
}


def option_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The options that a function takes, with what they are unless they are given."""
    parameters = inspect.signature(function).parameters
    return {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


class RawText(str):
    """A value as it was written: what it stands for depends on the option that it is given to."""


def parse_spec(name: Any) -> tuple[str, str, dict[str, Any]]:
    """'name:key=value,…' or (name, {options}): the way it was written, the plain name, and the options."""
    if isinstance(name, tuple) and len(name) == 2:
        if not _has_options(name):
            raise BadOption(f"{name!r} is not a name with its options: write (name, {{option: value}}).")
        plain, given = name[0], dict(name[1])
        text = plain + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")
        return text, plain.strip(), given
    text, (plain, _, tail) = str(name), str(name).partition(":")
    pairs = [part.partition("=") for part in tail.split(",") if part.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise BadOption(f"Options in '{text}' must be written name=value, separated by commas.")
    given = {key.strip(): RawText(value.strip()) for key, _, value in pairs}
    if len(given) < len(pairs):
        raise BadOption(f"'{text}' gives an option twice: write each once.")
    return text, plain.strip(), given


def as_list(given: Any) -> list[Any]:
    """Methods or metrics as a list; one by itself, with or without options, is a list of one."""
    if isinstance(given, str) or _has_options(given):
        return [given]
    if not isinstance(given, Iterable):
        raise BadOption(f"{given!r} names neither methods nor metrics: give a name, or a list of names.")
    return list(given)


def _has_options(name: Any) -> bool:
    """Whether this is (name, {options})."""
    return isinstance(name, tuple) and len(name) == 2 and isinstance(name[0], str) and isinstance(name[1], Mapping)


def parse_value(text: str) -> Any:
    """A value as written on a command line: number, true, false, none, or text."""
    if text.casefold() in WORDS:
        return WORDS[text.casefold()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def validate_options(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the function of this name takes them.

    Refuses those that it does not take, and values of another kind than it takes.
    """
    taken, hints = option_defaults(function), _hints(function)
    for key in given:
        if key not in taken:
            raise _unknown(name, key, taken)
    return {key: _value(name, key, value, _kinds(hints.get(key))) for key, value in given.items()}


def _kinds(hint: Any) -> list[tuple[Any, str]]:
    """The kinds of value that a hint allows; none where it allows others than are known here."""
    several = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    found = [KINDS[kind] for kind in several if isinstance(kind, type) and kind in KINDS]
    return found if len(found) == len(several) else []


def _value(name: str, key: str, value: Any, kinds: list[tuple[Any, str]]) -> Any:
    choices = [parse_value(value), str(value)] if isinstance(value, RawText) else [_plain(value)]
    for choice in choices:
        if not kinds or any(_is(choice, kind) for kind, _ in kinds):
            return _float(name, key, choice) if KINDS[float] in kinds and isinstance(choice, Real) else choice
    wanted = " or ".join(words for _, words in kinds)
    raise BadOption(f"{key}={choices[0]!r} is not a choice of '{name}': it must be {wanted}.")


def _float(name: str, key: str, value: Real) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise BadOption(f"{key}={value!r} is not a choice of '{name}': it must be finite.")
    return found


def _plain(value: Any) -> Any:
    """A number of numpy's as one of Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind; true, false and nan are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) and value == value


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
    return BadOption(str(unknown_name(f"option of '{name}'", key, list(taken))))
