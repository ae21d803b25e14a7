"""Checks of integers and numbers that users pass."""

import operator
import sys
from numbers import Integral, Real
from typing import Any

from clearhead.errors import Argument, BadOption


def require_integer(name: str, value: Any, least: int = 1, most: int | None = None, *, is_flag: bool = False) -> None:
    """Raise BadOption unless `value` is an integer in range; `is_flag` if the command line has a flag of that name."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if is_integer and value >= least and (most is None or value <= most):
        return
    argument = Argument(name, value) if is_flag else f"{name}={value!r}"
    allowed = f"at least {least}" if most is None else f"{least} to {most}"
    raise BadOption(argument, f" must be a whole number, {allowed}.")


def require_number(name: str, value: Any, least: float, most: float = sys.float_info.max) -> None:
    """Raise BadOption unless `value` is a finite number in range."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    # A NaN fails both comparisons, and infinity exceeds the largest float.
    if is_number and least <= value <= most:
        return
    is_open = most == sys.float_info.max
    allowed = f"at least {least:g}" if is_open else f"{least:g} to {most:g}"
    raise BadOption(f"{name}={value!r} must be a finite number, {allowed}.")


def as_integer(value: Any) -> int | None:
    """Convert an integer of Python, NumPy or torch; return None for anything else, also for booleans."""
    # A boolean tensor converts to an index as well, so the name of the type decides.
    type_name = str(getattr(value, "dtype", type(value).__name__))
    if "bool" in type_name or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
