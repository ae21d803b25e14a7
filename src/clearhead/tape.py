"""The tape: one forward pass of an unmodified network, written down as the steps relevance walks back.

`recording` runs the network's own forward under a torch function mode. Gradients stay with autograd; the tape
adds, for every call that depends on the input, the rule that carries relevance back through it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.attend import Masks, attend
from clearhead.errors import UnsupportedOperation
from clearhead.execution import frozen, plain_execution, uncollected
from clearhead.flow import MADE, Back, Flow, Kept, Recorded, Rule, Shares, depends
from clearhead.fused import DEVICES
from clearhead.rules import rule_for, unchanged

NODE = "_clearhead_node"
UNSEEN = (
    "An activation was made where it cannot be followed: by compiled or quantised code, or written in place "
    "through a view. Choose a method without relevance."
)


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


class Step(NamedTuple):
    """One call on the tape: which node it made, from which nodes, and how relevance goes back."""

    node: int
    parents: tuple[int, ...]
    back: Back


@dataclass
class AttentionMap:
    """A softmax that weights values: its result, and the hidden state before and after the block around it."""

    map: Tensor
    used: bool = False
    before: Tensor | None = None
    after: Tensor | None = None
    block: nn.Module | None = None
    argument: int | str | None = None


@dataclass
class Tape:
    """Steps in the order of the forward pass, the input leaf, and the attention maps met on the way."""

    steps: list[Step] = field(default_factory=list)
    maps: list[AttentionMap] = field(default_factory=list)
    leaf: Tensor | None = None
    patches: tuple[int, int] | None = None
    count: int = 0

    @property
    def blocks(self) -> list[AttentionMap]:
        """The maps around which a block of the network was seen."""
        return [found for found in self.maps if found.before is not None]

    def are_cuts(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all that is made after each of these activations depends on the input through it alone."""
        lowest, cuts = self.count, set()
        for step in reversed(self.steps):
            if lowest >= step.node:
                cuts.add(step.node)
            lowest = min((lowest, *step.parents)) if step.parents else 0
        return all(self.node(tensor) in cuts for tensor in tensors if tensor is not self.leaf)

    def node(self, tensor: Tensor) -> int | None:
        """The number of an activation; a tensor written in place gets a new one at each write."""
        known: dict[int, int] = tensor.__dict__.get(NODE, {})
        return known.get(tensor._version)

    def enter(self, tensor: Tensor) -> int:
        self.count += 1
        tensor.__dict__.setdefault(NODE, {})[tensor._version] = self.count
        return self.count

    def write(self, out: Tensor, activations: Sequence[Tensor], back: Back) -> None:
        known = tuple(parent for parent in map(self.node, activations) if parent is not None)
        back = back if len(known) == len(activations) else _refuse(UNSEEN)
        self.steps.append(Step(self.enter(out), known, back))


@cache
def plain_name(function: Callable[..., Any]) -> str:
    """'add' for torch.add, Tensor.add_, Tensor.__radd__ …; the property's name for a property."""
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        return str(getattr(function.__self__, "__name__", name))  # type: ignore[attr-defined]
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return name[1:] if name in ("radd", "rmul", "iadd", "isub", "imul", "itruediv") else name
    return name.rstrip("_")


class Recording(TorchFunctionMode):
    """Writes every call that depends on the input onto a tape."""

    def __init__(self, tape: Tape, words: Tensor | None) -> None:
        super().__init__()
        self.tape, self.words = tape, words
        self.modules: list[str] = []
        self.origin: dict[int, AttentionMap] = {}
        self.masks = Masks()
        self.paused = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = plain_name(function)
        if name in FACTS:
            return function(*args, **kwargs)
        if name == "embedding" and self.tape.leaf is None and self._weight(args, kwargs) is self.words:
            return self.begin(function(*args, **kwargs))
        if self.paused or not _all_activations(args, kwargs):
            return function(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            with self:
                return attend(*args, **{**kwargs, "masks": self.masks})
        if name == "softmax":
            kwargs = _keep_precision(args, kwargs)
        before = _values_before_write(function, args)
        out = function(*args, **kwargs)
        self._write(name, function, out, before, kwargs)
        return out

    @staticmethod
    def _weight(args: Any, kwargs: Any) -> Any:
        return args[1] if len(args) > 1 else kwargs.get("weight")

    def begin(self, tensor: Tensor) -> Tensor:
        """Makes a tensor the leaf where dependence on the input starts."""
        leaf = tensor.detach().clone().requires_grad_()
        self.tape.leaf = leaf
        self.tape.enter(leaf)
        return leaf

    def _write(self, name: str, function: Any, out: Any, args: Any, kwargs: Any) -> None:
        several = isinstance(out, list | tuple)
        for index, tensor in enumerate(out if several else [out]):
            if depends(tensor) and self.tape.node(tensor) is None:
                rule = rule_for(name, function, index if several else None)
                self._write_one(name, rule, tensor, args, kwargs)

    def _write_one(self, name: str, rule: Rule | None, out: Tensor, args: Any, kwargs: Any) -> None:
        present = _all_activations(args, kwargs)
        activations, back = self._applied(name, rule, out, args, kwargs)
        if not _same_things(activations, present):
            activations, back = present, _refuse(self._no_rule(name))
        self.tape.write(out, activations, back)
        self._follow_attention(name, out, activations, args)
        if name in ("gelu", "silu") and args:
            make_again(out, lambda x: getattr(F, name)(x, *args[1:], **kwargs), args[0])
        if name == "conv2d" and args[0] is self.tape.leaf:
            self.tape.patches = (out.shape[-2], out.shape[-1])

    def _applied(self, name: str, rule: Rule | None, out: Tensor, args: Any, kwargs: Any) -> Recorded:
        """The rule's answer, or none where it has no word for arguments such as these."""
        if rule is None:
            return (), _refuse(self._no_rule(name))
        try:
            return rule(out, *args, **kwargs)
        except UnsupportedOperation as error:
            return _all_activations(args, kwargs), _refuse(f"{error} (in '{self._place}')")
        except TypeError:
            return (), _refuse(self._no_rule(name))

    @property
    def _place(self) -> str:
        return self.modules[-1] if self.modules else "the network"

    def _no_rule(self, name: str) -> str:
        return (
            f"No relevance rule for the operation '{name}' as used in '{self._place}'. Choose a method without "
            "relevance (att-cat, integrated-gradients, …) for this model."
        )

    def _follow_attention(self, name: str, out: Tensor, activations: Any, args: Any) -> None:
        """A softmax over keys becomes an attention map once it stands on the left of a matrix product."""
        node = self.tape.count
        if name == "softmax" and out.dim() >= 3:
            self.origin[node] = AttentionMap(out)
        elif name in ("matmul", "bmm"):
            found = self.origin.get(self.tape.node(args[0]) or 0)
            if found is not None and not found.used:
                found.used = True
                self.tape.maps.append(found)
        elif len(activations) == 1:
            source = self.origin.get(self.tape.node(activations[0]) or 0)
            if source is not None:
                self.origin[node] = source


def make_again(out: Tensor, function: Callable[[Tensor], Tensor], source: Tensor) -> None:
    """On a GPU, says how an activation function's result is made anew, so that it need not be kept.

    Its argument stays in memory anyway, since the gradient needs it. Norms keep less than it costs to repeat them.
    """
    if out.device.type in DEVICES and not type(getattr(function, "__self__", None)).__name__.endswith("Norm"):
        kept = Kept(source)
        out.__dict__[MADE] = (out._version, lambda: function(kept.tensor))


def _refuse(message: str) -> Back:
    def back(relevance: Tensor, flow: Flow) -> Shares:
        raise UnsupportedOperation(message)

    return back


def _same_things(some: Sequence[Any], others: Sequence[Any]) -> bool:
    if len(some) == len(others) == 1:
        return some[0] is others[0]
    return {id(one) for one in some} == {id(one) for one in others}


def _all_activations(args: Any, kwargs: Any) -> list[Tensor]:
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, list | tuple):
            found += [part for part in value if depends(part)]
    return found


def _keep_precision(args: Any, kwargs: Any) -> Any:
    """Some models ask for a float32 softmax even in float64; a trace never computes in less than it was given."""
    lower = kwargs.get("dtype") is not None and kwargs["dtype"].itemsize < args[0].dtype.itemsize
    return {**kwargs, "dtype": args[0].dtype} if lower else kwargs


def _values_before_write(function: Any, args: Any) -> Any:
    """For a call that overwrites its first argument, a copy of that argument which stands for it on the tape."""
    name = getattr(function, "__name__", "")
    if not name.endswith("_") or name.startswith("_") or not depends(args[0]):
        return args
    copy = args[0].clone()
    copy.__dict__[NODE] = {0: args[0].__dict__.get(NODE, {}).get(args[0]._version)}
    return (copy, *args[1:])


# --- modules -------------------------------------------------------------------------------------------------


def is_one_operation(module: nn.Module) -> bool:
    """Norms and activation functions that are written out in elementary steps but pass relevance as a whole."""
    kind = type(module)
    if kind in (nn.Softmax, nn.MultiheadAttention):
        return False
    return kind.__name__.endswith("Norm") or kind.__module__ in (
        "transformers.activations",
        "torch.nn.modules.activation",
    )


def is_one_call(module: nn.Module) -> bool:
    """torch's own layers that make one call, which the recording sees anyway: they need no hooks."""
    kind = type(module)
    if not kind.__module__.startswith("torch.nn.modules") or next(module.children(), None) is not None:
        return False
    return kind is nn.LayerNorm or not is_one_operation(module)


@contextmanager
def watching(network: nn.Module, mode: Recording) -> Iterator[None]:
    """Hooks that tell the recording which module it is in and where the blocks begin and end."""
    with ExitStack() as stack:
        for name, module in network.named_modules():
            if is_one_call(module):
                continue
            before, after = _watch(mode, name or type(network).__name__, is_one_operation(module))
            stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield


def _watch(mode: Recording, name: str, whole: bool) -> tuple[Any, Any]:
    opened: list[int] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        mode.modules.append(name)
        opened.append(len(mode.tape.maps))
        mode.paused += whole

    def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        mode.modules.pop()
        mode.paused -= whole
        inside = mode.tape.maps[opened.pop() :]
        source, result = first_tensor([*args, *kwargs.values()]), first_tensor([out])
        if whole and not mode.paused and depends(result) and mode.tape.node(result) is None:
            mode.tape.write(result, *unchanged(result, source))
            if len(module._forward_hooks) == len(module._forward_pre_hooks) == 1:
                make_again(result, module.forward, source)
        if len(inside) == 1 and _same_tokens(source, result):
            inside[0].before, inside[0].after, inside[0].block = source, result, module
            inside[0].argument = next((at for at, one in (*enumerate(args), *kwargs.items()) if one is source), None)

    return before, after


def first_tensor(values: Any) -> Any:
    for value in values:
        if depends(value):
            return value
        if isinstance(value, list | tuple):
            found = first_tensor(value)
            if found is not None:
                return found
    return None


def _same_tokens(source: Any, result: Any) -> bool:
    return source is not None and result is not None and source.dim() == 3 and source.shape == result.shape


def record(
    network: nn.Module,
    tensors: dict[str, Tensor],
    words: Tensor | None,
    leaf: str | None,
    head: Callable[[Any], Tensor],
) -> tuple[Tape, Tensor]:
    """Runs the network once; `head` takes the logits out of what it returns.

    `leaf` names the float input, or None where dependence starts at the word table `words`.
    """
    tape = Tape()
    mode = Recording(tape, words)
    device = next(iter(tensors.values())).device
    with uncollected(), plain_execution(device), frozen(network), watching(network, mode):
        inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        if leaf is not None:
            inputs[leaf] = mode.begin(inputs[leaf])
        with mode:
            return tape, head(network(**inputs))
