"""What a method is: a function from a trace to one relevance per token, registered with its paper as data."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.context import uncollected
from clearhead.engine.streams import Coming
from clearhead.engine.trace import Trace
from clearhead.registry import Registry
from clearhead.spec import defaults, parsed, settled


@dataclass(frozen=True)
class Scores:
    """What a method answers: relevance per token and, where it has them, per block and per pixel."""

    relevance_BT: Tensor
    layers_BLT: Tensor | None = None
    pixels_BPQ: Tensor | None = None
    diagnostics: Sequence[Mapping[str, Any]] = ()

    def coming(self) -> dict[str, Coming]:
        """The numbers by name, on their way to the CPU from wherever the method did its work: in float32 at least."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        return {name: Coming(one if one.dtype.itemsize >= 4 else one.float()) for name, one in tensors.items()}


@dataclass(frozen=True)
class Method:
    """A registered method; `signed` scores speak for or against the class, `class_specific` ones depend on it."""

    name: str
    compute: Callable[..., Scores]
    paper: str
    signed: bool
    class_specific: bool
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.compute) or "").split("\n\n")[0].replace("\n", " ")


METHODS: Registry[Method] = Registry(
    "method",
    modules=(
        "clearhead.attribution.activation",
        "clearhead.attribution.attention",
        "clearhead.attribution.random_baseline",
        "clearhead.attribution.decoded",
        "clearhead.attribution.deeplift",
        "clearhead.attribution.attention_flow",
        "clearhead.attribution.gradient",
        "clearhead.attribution.integrated",
        "clearhead.attribution.perturbation",
        "clearhead.attribution.relevance",
    ),
)


def methods() -> Registry[Method]:
    """Every method by name, with its paper."""
    return METHODS


def method(
    *, paper: str, signed: bool, class_specific: bool
) -> Callable[[Callable[..., Scores]], Callable[..., Scores]]:
    """Registers a function (trace, *, options) → Scores under the kebab-case of its name."""

    def register(compute: Callable[..., Scores]) -> Callable[..., Scores]:
        name = compute.__name__.replace("_", "-")
        METHODS.add(name, Method(name, compute, paper, signed, class_specific, defaults(compute)))
        return compute

    return register


@dataclass(frozen=True)
class Spelling:
    """A method with the options it was asked for, and the way that was written."""

    text: str
    method: Method
    options: Mapping[str, Any]

    def __call__(self, trace: Trace) -> Scores:
        """In the precision of the trace, whatever surrounds the call."""
        with uncollected(), torch.autocast(trace.logits.device.type, enabled=False):
            return self.method.compute(trace, **self.options)


def spelled(name: Any, **options: Any) -> Spelling:
    """'att-cat', 'decoded-gradcam:layer=7,top=3' or (name, {options}), with further options laid over."""
    if isinstance(name, Spelling):
        return name
    text, plain, given = parsed(name)
    found = METHODS[plain]
    return Spelling(text, found, settled(found.name, found.compute, {**given, **options}))
