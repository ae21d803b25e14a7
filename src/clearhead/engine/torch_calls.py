"""Calls of torch functions as a torch function mode sees them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from torch import Tensor
from torch._C import DisableTorchFunction

from clearhead.engine.lrp.context import is_activation

REFLECTED_OPERATORS = ("radd", "rmul", "iadd", "isub", "imul", "itruediv")
WRITE = "__setitem__"
"""x[index] = y, which returns nothing."""
# How torch functions call the argument that they write to.
FIRST_ARGUMENT_NAMES = ("input", "self", "tensor")
LINEAR_ORIGINS = ("Copy", "IndexPut", "AsStrided", "Clone", "Linear", "MatMul")
"""In autograd's names: writes into a constant, and layers with quantised weights."""
# Properties of tensors that networks read all the time; none of them makes a new tensor.
METADATA = frozenset(
    [
        "shape",
        "size",
        "dim",
        "ndim",
        "dtype",
        "device",
        "is_cuda",
        "layout",
        "requires_grad",
        "numel",
        "stride",
        "_version",
    ]
)
PATTERNS = frozenset({"type_as", "view_as", "reshape_as", "expand_as"})
"""Operations that take the shape or the type of their second argument, not its values."""


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
    if name == WRITE:
        return True
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


def name_origin(tensor: Tensor) -> str | None:
    """Return what computed a tensor, as autograd names it; None if it is linear, or nothing did."""
    if tensor.grad_fn is None:
        return None
    name = tensor.grad_fn.name()
    if any(origin in name for origin in LINEAR_ORIGINS):
        return None
    return name.removesuffix("0").removesuffix("Backward")


def find_activations(args: Any, kwargs: Any) -> list[Tensor]:
    """Return the activations among the arguments of a call, and in lists among them."""
    values = (*args, *kwargs.values()) if kwargs else args
    activations = []
    for value in values:
        # Written out instead of calling `is_activation`: this runs for every argument of every call.
        if isinstance(value, Tensor):
            if value.requires_grad:
                activations.append(value)
        elif isinstance(value, (list, tuple)):
            activations += filter(is_activation, value)
    return activations


def replace_activations(value: Any, replacements: Iterator[Tensor]) -> Any:
    """Return arguments with the next tensors in place of what `find_activations` finds in them."""
    if is_activation(value):
        return next(replacements)
    # Exact types: constructors of subclasses (torch.Size, named tuples) take other arguments.
    if type(value) in (list, tuple):
        return type(value)([replace_activations(item, replacements) for item in value])
    if type(value) is dict:
        return {name: replace_activations(item, replacements) for name, item in value.items()}
    return value


def detach_pattern(name: str, args: Any) -> Any:
    """Return arguments whose second is no activation if an operation does not read its values."""
    if name not in PATTERNS or len(args) < 2:
        return args
    # Without recording it: `detach` would be a call of its own.
    with DisableTorchFunction():
        return (args[0], args[1].detach())


def keep_precision(call: TorchCall) -> TorchCall:
    """Undo a softmax's cast to a lower precision: some models ask for float32 even if they run in float64."""
    dtype = call.kwargs.get("dtype")
    if dtype is None or dtype.itemsize >= call.first.dtype.itemsize:
        return call
    return replace(call, kwargs={**call.kwargs, "dtype": call.first.dtype})
