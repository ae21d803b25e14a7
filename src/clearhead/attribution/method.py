"""What a method is: a function from a trace to one relevance per token, registered with its paper as data."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.context import gc_paused
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.registry import Registry
from clearhead.spec import option_defaults, parse_spec, validate_options


@dataclass(frozen=True)
class Attribution:
    """What a method answers: relevance per token and, where it has them, per block and per pixel."""

    relevance_BT: Tensor
    layers_BLT: Tensor | None = None
    pixels_BPQ: Tensor | None = None
    diagnostics: Sequence[Mapping[str, Any]] = ()

    def coming(self) -> dict[str, HostCopy]:
        """The numbers by name, on their way to the CPU from wherever the method did its work: in float32 at least."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        return {name: HostCopy(one if one.dtype.itemsize >= 4 else one.float()) for name, one in tensors.items()}


@dataclass(frozen=True)
class Method:
    """A registered method; `signed` scores speak for or against the class, `class_specific` ones depend on it."""

    name: str
    compute: Callable[..., Attribution]
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
) -> Callable[[Callable[..., Attribution]], Callable[..., Attribution]]:
    """Registers a function (trace, *, options) → Attribution under the kebab-case of its name."""

    def register(compute: Callable[..., Attribution]) -> Callable[..., Attribution]:
        name = compute.__name__.replace("_", "-")
        METHODS.add(name, Method(name, compute, paper, signed, class_specific, option_defaults(compute)))
        return compute

    return register


@dataclass(frozen=True)
class MethodSpec:
    """A method with the options it was asked for, and the way that was written."""

    text: str
    method: Method
    options: Mapping[str, Any]

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options that differ from the method's defaults, in the order of its signature."""
        defaults = self.method.options
        options = {**defaults, **self.options}
        return {name: value for name, value in options.items() if defaults.get(name) != value}

    def __call__(self, trace: Trace) -> Attribution:
        """In the precision of the trace, whatever surrounds the call."""
        with gc_paused(), torch.autocast(trace.logits.device.type, enabled=False):
            return self.method.compute(trace, **self.options)


def parse_method(name: Any, **options: Any) -> MethodSpec:
    """'att-cat', 'decoded-gradcam:layer=7,top=3' or (name, {options}), with further options laid over."""
    if isinstance(name, MethodSpec):
        return name
    text, plain, given = parse_spec(name)
    found = METHODS[plain]
    return MethodSpec(text, found, validate_options(found.name, found.compute, {**given, **options}))
