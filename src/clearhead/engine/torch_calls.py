"""Calls of torch functions as a torch function mode sees them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

REFLECTED_OPERATORS = ("radd", "rmul", "iadd", "isub", "imul", "itruediv")
# How torch functions call the argument that they write to.
FIRST_ARGUMENT_NAMES = ("input", "self", "tensor")


@cache
def function_name(function: Callable[..., Any]) -> str:
    """Return 'add' for torch.add, Tensor.add_, Tensor.__radd__ …; the property's name for a property."""
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        return str(getattr(function.__self__, "__name__", name))  # type: ignore[attr-defined]
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return name[1:] if name in REFLECTED_OPERATORS else name
    return name.rstrip("_")


@cache
def is_in_place(function: Callable[..., Any]) -> bool:
    """Return whether a function writes its result into its first argument."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.startswith("_")


@dataclass(slots=True)
class TorchCall:
    """A call of a torch function with the values that its arguments had before the call."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def first(self) -> Any:
        """The first argument, by position or by name."""
        if self.args:
            return self.args[0]
        return self.kwargs.get(_first_keyword(self.kwargs))

    def replace_first(self, value: Any) -> "TorchCall":
        """Return the call with another first argument."""
        if self.args:
            return replace(self, args=(value, *self.args[1:]))
        return replace(self, kwargs={**self.kwargs, _first_keyword(self.kwargs): value})


def _first_keyword(kwargs: dict[str, Any]) -> str:
    for keyword in FIRST_ARGUMENT_NAMES:
        if keyword in kwargs:
            return keyword
    return ""
