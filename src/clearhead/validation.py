"""Checks of integers, numbers and choices that users pass."""

import operator
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from clearhead.errors import Argument, BadOption


def require_integer(name: str, value: Any, least: int = 1, most: int | None = None, *, is_flag: bool = False) -> None:
    """Raise BadOption unless `value` is an integer in range; `is_flag` if the command line has a flag of that name."""
    if not _is_integer_within(value, least, most):
        argument = _name_argument(name, value, is_flag=is_flag)
        raise BadOption(argument, f" must be a whole number, {_format_range(least, most)}.")


def _is_integer_within(value: Any, least: int, most: int | None) -> bool:
    if not _is_number(value, Integral) or value < least:
        return False
    return most is None or value <= most


def _is_number(value: Any, number_type: type) -> bool:
    # For Python a bool is an integer, but True as a count is a mistake.
    return isinstance(value, number_type) and not isinstance(value, bool)


def _format_range(least: int | str, most: int | str | None) -> str:
    if most is None:
        return f"at least {least}"
    return f"{least} to {most}"


def _name_argument(name: str, value: Any, *, is_flag: bool) -> Argument | str:
    # Only an Argument is printed as a flag on the command line.
    if is_flag:
        return Argument(name, value)
    return f"{name}={value!r}"


def require_number(name: str, value: Any, least: float, most: float = sys.float_info.max) -> None:
    """Raise BadOption unless `value` is a finite number in range."""
    # A NaN fails both comparisons, and infinity exceeds the largest float.
    if not _is_number_within(value, least, most):
        limits = _format_range(f"{least:g}", _format_maximum(most))
        raise BadOption(f"{name}={value!r} must be a finite number, {limits}.")


def _is_number_within(value: Any, least: float, most: float) -> bool:
    # False for NaN, too.
    return _is_number(value, Real) and least <= value <= most


def _format_maximum(most: float) -> str | None:
    # The default is no limit that is worth a mention.
    if most == sys.float_info.max:
        return None
    return f"{most:g}"


def require_choice(name: str, value: Any, choices: Sequence[str], context: str = "") -> None:
    """Raise BadOption unless `value` is one of the choices; `context` says what they are for, such as " for 'lime'"."""
    if value not in choices:
        raise BadOption(f"Invalid {name}={value!r}{context}. Available: {', '.join(choices)}.")


def as_integer(value: Any) -> int | None:
    """Convert an integer of Python, NumPy or torch; return None for anything else, also for booleans."""
    if _is_boolean(value) or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _is_boolean(value: Any) -> bool:
    # A boolean tensor converts to an index as well, so the name of the type decides.
    return "bool" in str(getattr(value, "dtype", type(value).__name__))
