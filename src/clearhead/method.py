"""What a method is: a function from a trace to one relevance per token, registered with its paper as data."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from clearhead.beside import Coming
from clearhead.errors import BadOption
from clearhead.execution import uncollected
from clearhead.registry import Registry, unknown
from clearhead.trace import Trace


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


METHODS: Registry[Method] = Registry("method")


def method(
    *, paper: str, signed: bool, class_specific: bool
) -> Callable[[Callable[..., Scores]], Callable[..., Scores]]:
    """Registers a function (trace, *, options) → Scores under the kebab-case of its name."""

    def register(compute: Callable[..., Scores]) -> Callable[..., Scores]:
        name = compute.__name__.replace("_", "-")
        options = {
            key: parameter.default
            for key, parameter in inspect.signature(compute).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        METHODS.add(name, Method(name, compute, paper, signed, class_specific, options))
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
    text, plain, given = parsed_options(name)
    found = METHODS[plain]
    merged = {**given, **options}
    for key in merged:
        if key not in found.options:
            raise _bad_option(found, key)
    return Spelling(text, found, merged)


def parsed_options(name: Any) -> tuple[str, str, dict[str, Any]]:
    """The way a name with options was written, the plain name, and the options."""
    if isinstance(name, tuple) and len(name) == 2:
        plain, given = name[0], dict(name[1])
        text = plain + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")
        return text, plain.strip(), given
    text, (plain, _, tail) = str(name), str(name).partition(":")
    return text, plain.strip(), _parsed(tail, text)


def _bad_option(found: Method, key: str) -> BadOption:
    if not found.options:
        return BadOption(f"'{found.name}' takes no options, so '{key}' cannot be given.")
    return BadOption(str(unknown(f"option of '{found.name}'", key, list(found.options))))


def _parsed(tail: str, text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in tail.split(",") if part.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise BadOption(f"Options in '{text}' must be written name=value, separated by commas.")
    return {key.strip(): value_of(value.strip()) for key, _, value in pairs}


def value_of(text: str) -> Any:
    """A value as written on a command line: number, true, false, none, or text."""
    words = {"true": True, "false": False, "none": None}
    if text.casefold() in words:
        return words[text.casefold()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
