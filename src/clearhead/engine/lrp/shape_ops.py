"""Rules of the functions that only move elements: relevance moves back with them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.context import Backward, RelevanceContext, Rule, RuleResult, Shares, is_activation
from clearhead.engine.lrp.saved import SavedTensors

# Indices that select every element at most once.
BASIC_INDICES = (int, slice, type(None), type(...))


def vjp(function: Callable[..., Tensor], *point: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Return the function's value at a point, and the product with its transposed Jacobian there."""
    return torch.func.vjp(function, *point)  # type: ignore[return-value]


@cache
def transpose_rule(function: Callable[..., Any], index: int | None) -> Rule:
    """Return the rule of a view, slice, copy or concatenation: relevance follows the elements.

    The backward function is the transpose of the function, which does not depend on values, so only shapes are saved.
    `index` picks one output of a function that returns several.
    """

    def rule(saved: SavedTensors, out: Tensor, *args: Any, **kwargs: Any) -> RuleResult:
        activations: list[Tensor] = []
        move = _Move(function, index, _take_out(args, activations), _take_out(kwargs, activations))
        return activations, _transpose_backward(move, [activation.shape for activation in activations])

    return rule


@dataclass(frozen=True)
class _Move:
    """A call that only moves elements, as a function of its activations."""

    function: Callable[..., Any]
    index: int | None
    args: Any
    kwargs: Any

    def __call__(self, *values: Tensor) -> Tensor:
        remaining = iter(values)
        # In the order in which they were taken out.
        args = _put_back(self.args, remaining)
        kwargs = _put_back(self.kwargs, remaining)
        result: Any = self.function(*args, **kwargs)
        output: Tensor = result if self.index is None else result[self.index]
        return output


def _transpose_backward(move: _Move, shapes: list[torch.Size]) -> Backward:
    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        # Moving elements is linear, so the point at which it is transposed does not matter.
        zeros = map(relevance.new_zeros, shapes)
        _, apply_transpose = vjp(move, *zeros)
        return apply_transpose(relevance)

    return backward


class _Placeholder:
    """Marks where an activation was among the arguments."""


def _take_out(value: Any, activations: list[Tensor]) -> Any:
    """Return arguments with placeholders for their activations, which are appended to the list."""
    if is_activation(value):
        activations.append(value)
        return _Placeholder
    # A parameter may require gradients again once the trace is over.
    if isinstance(value, Tensor):
        return value.detach()
    return _map_items(lambda item: _take_out(item, activations), value)


def _put_back(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return arguments with the next tensors in place of their placeholders."""
    if value is _Placeholder:
        return next(tensors)
    return _map_items(lambda item: _put_back(item, tensors), value)


def _map_items(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the items of a list, tuple or dict; return any other value as it is."""
    # Exact types: constructors of subclasses (torch.Size, named tuples) take other arguments.
    if type(value) in (list, tuple):
        return type(value)(map(function, value))
    if type(value) is dict:
        return {name: function(item) for name, item in value.items()}
    return value


def reshape(saved: SavedTensors, out: Tensor, input: Tensor, *_: Any, **__: Any) -> RuleResult:
    """The frequent case of `transpose_rule` that keeps the order of elements."""
    shape = input.shape
    return (input,), lambda relevance, context: (relevance.reshape(shape),)


def transpose(saved: SavedTensors, out: Tensor, input: Tensor, dim0: int, dim1: int) -> RuleResult:
    return (input,), lambda relevance, context: (relevance.transpose(dim0, dim1),)


def permute(saved: SavedTensors, out: Tensor, input: Tensor, *axes: Any, dims: Any = None) -> RuleResult:
    inverse = _invert(_axis_order(axes, dims))
    return (input,), lambda relevance, context: (relevance.permute(inverse),)


def _axis_order(axes: tuple[Any, ...], dims: Any) -> Any:
    """Return the order of axes, which may come by keyword, as one tuple or one by one."""
    order = axes if dims is None else (dims,)
    if len(order) == 1 and not isinstance(order[0], int):
        return order[0]
    return order


def _invert(order: Any) -> list[int]:
    # Axes may be counted from the end.
    return sorted(range(len(order)), key=lambda axis: order[axis] % len(order))


def getitem(saved: SavedTensors, out: Tensor, input: Tensor, index: Any) -> RuleResult:
    """The frequent case of `transpose_rule` that selects every element at most once."""
    if not _is_basic(index) or not is_activation(input):
        return transpose_rule(Tensor.__getitem__, None)(saved, out, input, index)
    shape = input.shape

    def backward(relevance: Tensor, context: RelevanceContext) -> Shares:
        share = relevance.new_zeros(shape)
        share[index] = relevance
        return (share,)

    return (input,), backward


def _is_basic(index: Any) -> bool:
    """Return whether an index selects every element at most once."""
    indices = index if type(index) is tuple else (index,)
    # Exact types: True is an int, but selects like a mask.
    return all(type(item) in BASIC_INDICES for item in indices)


def _by_name(names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(torch, name, None) or getattr(Tensor, name) for name in names.split()}


SHAPE_OPS: dict[str, Callable[..., Any]] = {
    **_by_name("cat concat concatenate stack split chunk unbind tensor_split narrow expand expand_as repeat roll flip"),
    **_by_name("gather index_select take_along_dim masked_fill where movedim moveaxis repeat_interleave t"),
    **_by_name("select tril triu diagonal broadcast_to tile rot90"),
    "pad": F.pad,
    "T": lambda tensor: tensor.T,
    "mT": lambda tensor: tensor.mT,
}
