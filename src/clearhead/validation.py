"""TODO."""

import operator
import sys
from numbers import Integral, Real
from typing import Any

from clearhead.errors import Argument, BadOption


def require_integer(name: str, value: Any, least: int = 1, most: int | None = None, *, is_flag: bool = False) -> None:
    """Refuses an option that is no whole number of this range; `is_flag` where the command line has a flag for it."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        said = Argument(name, value) if is_flag else f"{name}={value!r}"
        raise BadOption(said, f" must be a whole number, {wanted}.")


def require_number(name: str, value: Any, least: float, most: float = sys.float_info.max) -> None:
    """Refuses an option that is no finite number of this range."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        wanted = f"at least {least:g}" if most == sys.float_info.max else f"{least:g} to {most:g}"
        raise BadOption(f"{name}={value!r} must be a finite number, {wanted}.")


def as_integer(value: Any) -> int | None:
    """A whole number of Python, NumPy or torch; None where it is none, as truth values are not."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "bool" in kind or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
