"""The recording: a torch function mode that writes the calls of a forward pass onto a tape.

Gradients stay with autograd; the tape adds, for every call that depends on the input, the rule that carries relevance
back through it.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.engine.attention import Masks, decompose_attention
from clearhead.engine.lrp.context import MADE, Recorded, Rule, SavedTensor, is_activation
from clearhead.engine.lrp.kernels.dispatch import on_gpu
from clearhead.engine.lrp.rules import rule_for
from clearhead.engine.tape import NODE, AttentionMap, Step, Tape, refuse
from clearhead.errors import UnsupportedOperation

# What is asked of a tensor, all the time, without making another one.
FACTS = frozenset(
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

SEVERAL = (list, tuple)


@cache
def function_name(function: Callable[..., Any]) -> str:
    """'add' for torch.add, Tensor.add_, Tensor.__radd__ …; the property's name for a property."""
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        return str(getattr(function.__self__, "__name__", name))  # type: ignore[attr-defined]
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return name[1:] if name in ("radd", "rmul", "iadd", "isub", "imul", "itruediv") else name
    return name.rstrip("_")


class Recorder(TorchFunctionMode):
    """Writes every call that depends on the input onto a tape."""

    def __init__(self, tape: Tape, network: nn.Module, words: Tensor | None = None) -> None:
        super().__init__()
        self.tape, self.network, self.words = tape, network, words
        self.origin: dict[int, AttentionMap] = {}
        self.masks = Masks()
        self.paused = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(function)
        if name in FACTS:
            return function(*args, **kwargs)
        if name == "embedding" and self.tape.leaf is None and self._weight(args, kwargs) is self.words:
            return self.begin(function(*args, **kwargs))
        activations = [] if self.paused else _all_activations(args, kwargs)
        if not activations:
            return function(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            return decompose_attention(*args, **kwargs, masks=self.masks, call=self.call, copied=self.copied)
        if name == "softmax":
            kwargs = _keep_precision(args, kwargs)
        if is_in_place(function) and is_activation(args[0]):
            before = (_as_it_was(args[0]), *args[1:])
            activations = _all_activations(before, kwargs)
        else:
            before = args
        out = function(*args, **kwargs)
        if not isinstance(out, SEVERAL):
            self._write(name, rule_for(name, function), out, before, kwargs, activations)
            return out
        for index, tensor in enumerate(out):
            self._write(name, rule_for(name, function, index), tensor, before, kwargs, activations)
        return out

    def call(self, function: Callable[..., Tensor], *args: Any) -> Tensor:
        """One call, recorded as if the network had made it."""
        made: Tensor = self.__torch_function__(function, (), args)
        return made

    def copied(self, tensor: Tensor) -> Tensor:
        """An activation laid out in order: for the tape the same activation."""
        copy, node = tensor.contiguous(), self.tape.node(tensor)
        if copy is not tensor and node is not None:
            copy.__dict__[NODE] = {copy._version: node}
        return copy

    @staticmethod
    def _weight(args: Any, kwargs: Any) -> Any:
        return args[1] if len(args) > 1 else kwargs.get("weight")

    def begin(self, tensor: Tensor) -> Tensor:
        """Makes a tensor the leaf where dependence on the input starts."""
        leaf = tensor.detach().clone().requires_grad_()
        self.tape.leaf = leaf
        self.tape.enter(leaf)
        return leaf

    def _write(self, name: str, rule: Rule | None, out: Any, args: Any, kwargs: Any, present: Sequence[Tensor]) -> None:
        """Writes one result of a call that took part of the activations `present`, unless it is one of them."""
        if not is_activation(out) or self.tape.node(out) is not None:
            return
        activations, back = self._applied(name, rule, out, args, kwargs)
        if not _same_things(activations, present):
            activations, back = present, refuse(self._no_rule(name))
        self._follow_attention(name, out, args, self.tape.write(out, activations, back))
        if name in ("gelu", "silu") and args:
            mark_recomputable(out, lambda x: getattr(F, name)(x, *args[1:], **kwargs), args[0])
        if name == "conv2d" and args[0] is self.tape.leaf:
            self.tape.patches = (out.shape[-2], out.shape[-1])

    def _applied(self, name: str, rule: Rule | None, out: Tensor, args: Any, kwargs: Any) -> Recorded:
        """The rule's answer, or none where it has no word for arguments such as these."""
        if rule is None:
            return (), refuse(self._no_rule(name))
        try:
            return rule(out, *args, **kwargs)
        except UnsupportedOperation as error:
            return _all_activations(args, kwargs), refuse(f"{error} (in '{self._place}')")
        except TypeError:
            return (), refuse(self._no_rule(name))

    @property
    def _place(self) -> str:
        """The innermost module at work, as the calls under way tell."""
        names: dict[int, str] = {id(module): name for name, module in self.network.named_modules()}
        frame = inspect.currentframe()
        while frame is not None:
            name = names.get(id(frame.f_locals.get("self")))
            if name:
                return name
            frame = frame.f_back
        return type(self.network).__name__

    def _no_rule(self, name: str) -> str:
        return (
            f"No relevance rule for the operation '{name}' as used in '{self._place}'. Choose a method without "
            "relevance (att-cat, integrated-gradients, …) for this model."
        )

    def _follow_attention(self, name: str, out: Tensor, args: Any, step: Step) -> None:
        """A softmax over keys becomes an attention map once it stands on the left of a matrix product."""
        if name in ("softmax", "weigh") and out.dim() >= 3:
            self.origin[step.node] = AttentionMap(out)
        elif name in ("matmul", "bmm"):
            found = self.origin.get(self.tape.node(args[0]) or 0)
            if found is not None and not found.used:
                found.used = True
                self.tape.maps.append(found)
        elif len(step.parents) == 1 and step.parents[0] in self.origin:
            self.origin[step.node] = self.origin[step.parents[0]]


def mark_recomputable(out: Tensor, function: Callable[[Tensor], Tensor], source: Tensor) -> None:
    """On a GPU, says how an activation function's result is made anew, so that it need not be kept.

    Its argument stays in memory anyway, since the gradient needs it. Norms keep less than it costs to repeat them.
    """
    if on_gpu(out) and not type(getattr(function, "__self__", None)).__name__.endswith("Norm"):
        kept = SavedTensor(source)
        out.__dict__[MADE] = (out._version, lambda: function(kept.tensor))


def _same_things(some: Sequence[Any], others: Sequence[Any]) -> bool:
    if len(some) == len(others) == 1:
        return some[0] is others[0]
    return {id(one) for one in some} == {id(one) for one in others}


def _all_activations(args: Any, kwargs: Any) -> list[Tensor]:
    found = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, SEVERAL):
            found += [part for part in value if is_activation(part)]
    return found


def _keep_precision(args: Any, kwargs: Any) -> Any:
    """Some models ask for a float32 softmax even in float64; a trace never computes in less than it was given."""
    lower = kwargs.get("dtype") is not None and kwargs["dtype"].itemsize < args[0].dtype.itemsize
    return {**kwargs, "dtype": args[0].dtype} if lower else kwargs


@cache
def is_in_place(function: Callable[..., Any]) -> bool:
    """Whether a call writes its result into its first argument."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.startswith("_")


def _as_it_was(tensor: Tensor) -> Tensor:
    """A copy of an activation that is about to be overwritten, which stands for it on the tape."""
    copy = tensor.clone()
    copy.__dict__[NODE] = {0: tensor.__dict__.get(NODE, {}).get(tensor._version)}
    return copy
