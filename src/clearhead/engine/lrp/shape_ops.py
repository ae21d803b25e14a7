"""Rules of the functions that only move elements: relevance moves with them."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.context import Recorded, RelevanceContext, Rule, Shares, is_activation


def transposed(
    function: Callable[..., Tensor], *point: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """The function's value, and the transpose of its derivative."""
    return torch.func.vjp(function, *point)  # type: ignore[return-value]


def elements(function: Callable[..., Any], index: int | None) -> Rule:
    """Relevance follows the elements that a view, slice, copy or concatenation moves.

    The way back is the function's own transpose, which does not depend on values: only shapes are kept.
    `index` picks one result of a function that returns several.
    """

    def rule(out: Tensor, *args: Any, **kwargs: Any) -> Recorded:
        activations: list[Tensor] = []
        holes, named = _with_holes((args, kwargs), activations)
        shapes = [activation.shape for activation in activations]

        def moved(*values: Tensor) -> Tensor:
            left = iter(values)
            result: Any = function(*_filled(holes, left), **_filled(named, left))
            picked: Tensor = result if index is None else result[index]
            return picked

        def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
            blanks = [relevance.new_zeros(shape) for shape in shapes]
            return transposed(moved, *blanks)[1](relevance)

        return activations, back

    return rule


class _Hole:
    """Stands where an activation stood among the arguments."""


def _with_holes(args: Any, found: list[Tensor]) -> Any:
    if is_activation(args):
        found.append(args)
        return _Hole
    if type(args) in (list, tuple):
        return type(args)(_with_holes(part, found) for part in args)
    if type(args) is dict:
        return {name: _with_holes(part, found) for name, part in args.items()}
    return args.detach() if isinstance(args, Tensor) else args


def _filled(args: Any, values: Any) -> Any:
    if args is _Hole:
        return next(values)
    if type(args) in (list, tuple):
        return type(args)([_filled(part, values) for part in args])
    if type(args) is dict:
        return {name: _filled(part, values) for name, part in args.items()}
    return args


def reshape(out: Tensor, input: Tensor, *_: Any, **__: Any) -> Recorded:
    """The frequent case of `elements` where order does not change."""
    shape = input.shape
    return (input,), lambda relevance, flow: (relevance.reshape(shape),)


def transpose(out: Tensor, input: Tensor, dim0: int, dim1: int) -> Recorded:
    return (input,), lambda relevance, flow: (relevance.transpose(dim0, dim1),)


def permute(out: Tensor, input: Tensor, *places: Any, dims: Any = None) -> Recorded:
    given = places if dims is None else (dims,)
    order = given[0] if len(given) == 1 and not isinstance(given[0], int) else given
    inverse = sorted(range(len(order)), key=lambda place: order[place] % len(order))
    return (input,), lambda relevance, flow: (relevance.permute(inverse),)


def getitem(out: Tensor, input: Tensor, index: Any) -> Recorded:
    """The frequent case of `elements` that names its elements by numbers and slices, each of them once."""
    parts = index if type(index) is tuple else (index,)
    if not is_activation(input) or any(type(part) not in PLAIN for part in parts):
        return elements(Tensor.__getitem__, None)(out, input, index)
    shape = input.shape

    def back(relevance: Tensor, flow: RelevanceContext) -> Shares:
        whole = relevance.new_zeros(shape)
        whole[index] = relevance
        return (whole,)

    return (input,), back


PLAIN = (int, slice, type(None), type(...))


def _moving(names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(torch, name, None) or getattr(Tensor, name) for name in names.split()}


MOVING: dict[str, Callable[..., Any]] = {
    **_moving("cat concat stack split chunk unbind tensor_split narrow expand expand_as repeat roll flip"),
    **_moving("gather index_select take_along_dim masked_fill where movedim moveaxis repeat_interleave t"),
    **_moving("select tril triu diagonal broadcast_to tile rot90"),
    "pad": F.pad,
    "T": lambda tensor: tensor.T,
    "mT": lambda tensor: tensor.mT,
}
