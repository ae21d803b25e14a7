"""Specs such as 'name:key=value': parsed, and validated against the keyword arguments of a function."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from os import PathLike
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from clearhead.errors import BadOption
from clearhead.registry import unknown_name

# Read-only, because a default argument is shared by all calls.
NO_ALIASES: Mapping[str, str] = MappingProxyType({})
# YAML's words for booleans, which people write on command lines.
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}


class OptionType(NamedTuple):
    """The classes whose instances a type hint allows, and how messages call them."""

    classes: Any
    words: str


OPTION_TYPES: dict[Any, OptionType] = {
    bool: OptionType(bool, "true or false"),
    int: OptionType(Integral, "a whole number"),
    float: OptionType(Real, "a number"),
    str: OptionType((str, PathLike), "a word"),
    NoneType: OptionType(NoneType, "none"),
}


# A class of its own, because a string that is passed in Python is never parsed.
class RawText(str):
    """An option value as it was written, converted once the type of its option is known."""


def option_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a function, which are its keyword-only parameters, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}


def parse_spec(spec: Any) -> tuple[str, str, dict[str, Any]]:
    """Parse 'name:key=value,…' or (name, {options}) into the spec as text, the name, and the options."""
    if _is_pair(spec):
        return _parse_name_and_options(spec)
    return _parse_text(str(spec))


def _parse_name_and_options(spec: tuple[Any, Any]) -> tuple[str, str, dict[str, Any]]:
    _require_options(spec)
    name, options = spec
    return _format_spec(name, options), name.strip(), dict(options)


def _require_options(spec: tuple[Any, Any]) -> None:
    # A pair that is malformed gets an error of its own, instead of one about a method called "('x', 5)".
    if not _is_pair_with_options(spec):
        raise BadOption(f"{spec!r} is not a name with its options: write (name, {{option: value}}).")


def _format_spec(name: str, options: Mapping[str, Any]) -> str:
    if not options:
        return name
    return f"{name}:{_format_options(options)}"


def _format_options(options: Mapping[str, Any]) -> str:
    return ",".join(f"{option}={value}" for option, value in options.items())


def _parse_text(text: str) -> tuple[str, str, dict[str, Any]]:
    name, _, tail = text.partition(":")
    return text, name.strip(), _parse_options(tail, text)


def _parse_options(tail: str, text: str) -> dict[str, Any]:
    """Parse what follows the colon of a spec `text`."""
    options: dict[str, Any] = {}
    # Blank after a trailing comma, or if nothing follows the colon.
    for pair in filter(str.strip, tail.split(",")):
        option, value = _parse_pair(pair, text)
        if option in options:
            raise BadOption(f"'{text}' gives an option twice: write each once.")
        options[option] = value
    return options


def _parse_pair(pair: str, text: str) -> tuple[str, RawText]:
    """Parse 'option=value'; `text` is the spec that it is a part of."""
    option, equals, value = pair.partition("=")
    if not equals:
        raise BadOption(f"Options in '{text}' must be written name=value, separated by commas.")
    return option.strip(), RawText(value.strip())


def as_list(specs: Any) -> list[Any]:
    """Return methods or metrics as a list; a single one, with or without options, becomes a list of one."""
    if isinstance(specs, str) or _is_pair_with_options(specs):
        return [specs]
    _require_list(specs)
    return list(specs)


def _require_list(specs: Any) -> None:
    if not isinstance(specs, Iterable):
        raise BadOption(f"{specs!r} names neither methods nor metrics: give a name, or a list of names.")


def _is_pair_with_options(spec: Any) -> bool:
    """Whether a spec is (name, {options})."""
    return _is_pair(spec) and isinstance(spec[0], str) and isinstance(spec[1], Mapping)


def _is_pair(spec: Any) -> bool:
    return isinstance(spec, tuple) and len(spec) == 2


def parse_value(text: str) -> Any:
    """Parse a value as written on a command line: number, true, false, none, or text."""
    if text.casefold() in WORDS:
        return WORDS[text.casefold()]
    return _parse_number(text)


def _parse_number(text: str) -> Any:
    """Return an int or float; the text itself if it is no number."""
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text


def validate_options(
    name: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    aliases: Mapping[str, str] = NO_ALIASES,
) -> dict[str, Any]:
    """Return the options converted to the types that the function called `name` takes.

    Raise BadOption for options that it does not take, and for values of another type. `aliases` maps older option names
    to those that replaced them.
    """
    # First of all, so that messages and results know one name per option.
    options = _resolve_aliases(name, options, aliases)
    # All names before any value: a misspelt option is the more helpful thing to report.
    _check_names(name, options, option_defaults(function))
    hints = _type_hints(function)
    return {option: _convert(name, option, value, hints.get(option)) for option, value in options.items()}


def _check_names(name: str, options: Iterable[str], defaults: Mapping[str, Any]) -> None:
    for option in options:
        if option not in defaults:
            raise _unknown_option(name, option, defaults)


def _resolve_aliases(name: str, options: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Replace older option names by current ones; raise BadOption if an option is given by both."""
    resolved: dict[str, Any] = {}
    for option, value in options.items():
        current = aliases.get(option, option)
        if current in resolved:
            raise _given_twice(name, current, options, aliases)
        resolved[current] = value
    return resolved


def _given_twice(name: str, current: str, options: Mapping[str, Any], aliases: Mapping[str, str]) -> BadOption:
    older = _older_names(current, aliases) & options.keys()
    return BadOption(f"'{min(older)}' is an older name of the option '{current}' of '{name}': give one of them.")


def _older_names(current: str, aliases: Mapping[str, str]) -> set[str]:
    return {alias for alias, option in aliases.items() if option == current}


def _convert(name: str, option: str, value: Any, hint: Any) -> Any:
    """Convert a value to a type that the hint allows, or raise BadOption."""
    types = _option_types(hint)
    readings = _readings(value)
    # The first reading that fits wins, so that "1" is a number unless the option takes words only.
    for reading in readings:
        if _is_allowed(reading, types):
            return _as_float_if_taken(name, option, reading, types)
    raise BadOption(f"Invalid {option}={readings[0]!r} for '{name}': it must be {_list_types(types)}.")


def _as_float_if_taken(name: str, option: str, value: Any, types: list[OptionType]) -> Any:
    # 1 and "1" are floats for an option that takes floats.
    if OPTION_TYPES[float] in types and isinstance(value, Real):
        return _finite_float(name, option, value)
    return value


def _list_types(types: list[OptionType]) -> str:
    return " or ".join(option_type.words for option_type in types)


def _option_types(hint: Any) -> list[OptionType]:
    """Return the types that a hint allows; an empty list, which allows everything, for hints not in OPTION_TYPES."""
    members = _union_members(hint)
    if not all(map(_is_option_type, members)):
        return []
    return [OPTION_TYPES[member] for member in members]


def _is_option_type(member: Any) -> bool:
    # Hints such as list[int] are no types, and may not even be hashable.
    return isinstance(member, type) and member in OPTION_TYPES


def _union_members(hint: Any) -> tuple[Any, ...]:
    # `int | None` and `Optional[int]` are objects of different classes.
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return get_args(hint)
    return (hint,)


def _readings(value: Any) -> list[Any]:
    """Return what a value may stand for: written text is a parsed value first, and text where that does not fit."""
    if isinstance(value, RawText):
        return [parse_value(value), str(value)]
    if isinstance(value, np.generic):
        return [value.item()]
    return [value]


def _is_allowed(value: Any, types: list[OptionType]) -> bool:
    if not types:
        return True
    return any(_is_instance(value, option_type.classes) for option_type in types)


def _is_instance(value: Any, classes: Any) -> bool:
    """Whether a value is an instance; neither booleans nor NaN count as numbers."""
    # For Python a bool is an int.
    if isinstance(value, bool) and classes is not bool:
        return False
    # Only NaN differs from itself.
    return isinstance(value, classes) and value == value


def _finite_float(name: str, option: str, value: Real) -> float:
    converted = _to_float(value)
    if not math.isfinite(converted):
        raise BadOption(f"Invalid {option}={value!r} for '{name}': it must be finite.")
    return converted


def _to_float(value: Real) -> float:
    try:
        return float(value)
    # Python integers may be larger than every float.
    except OverflowError:
        return math.inf


# Cached, because evaluating hints takes longer than the rest of the validation.
@cache
def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type hints of a function; none if a hint names something that is not imported."""
    try:
        return get_type_hints(function)
    except NameError:
        return {}


def _unknown_option(name: str, option: str, defaults: Mapping[str, Any]) -> BadOption:
    if not defaults:
        return BadOption(f"'{name}' takes no options, so '{option}' cannot be given.")
    return BadOption(str(unknown_name(f"option of '{name}'", option, list(defaults))))
