"""Attribution methods: functions from a trace to relevance per token, registered with their papers."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.choices import find_choice
from clearhead.attribution.names import (
    CONVOLUTIONAL_TYPES,
    DEFAULT,
    DEFAULT_ANSWER_METHOD,
    DEFAULT_FUNCTION_METHOD,
    DEFAULT_INPUT_METHOD,
    DEFAULT_METHOD,
    DEFAULT_PIXEL_METHOD,
    RELATED_METHODS,
    TYPES_WITHOUT_BLOCKS,
)
from clearhead.engine.context import gc_paused
from clearhead.engine.retrace import retrace
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.errors import UnknownName
from clearhead.model.model import Model
from clearhead.registry import Registry
from clearhead.spec import option_defaults, parse_spec, validate_options

TRACE_PARTS = ("attention", "gradients", "relevance")
DEFAULT_NEEDS = ("attention", "gradients")


@dataclass(frozen=True)
class Attribution:
    """The result of a method for a batch: relevance per token and, if it has them, per block, pixel and head."""

    relevance_BT: Tensor
    layers_BLT: Tensor | None = None
    pixels_BPQ: Tensor | None = None
    diagnostics: Sequence[Mapping[str, Any]] = ()
    heads_BLH: Tensor | None = None

    def start_host_copies(self) -> dict[str, HostCopy]:
        """Start copying the tensors to the CPU, in float32 or wider, and return the copies by field name."""
        copies = {}
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if isinstance(value, Tensor):
                copies[attribute.name] = HostCopy(widen(value))
        return copies


def fill_diagnostics(diagnostics: Sequence[Mapping[str, Any]], count: int) -> Sequence[Mapping[str, Any]]:
    """Return the diagnostics of an attribution, or nothing for each of `count` inputs."""
    # Most methods report nothing, and leave the sequence empty.
    return diagnostics or [{}] * count


def widen(tensor: Tensor) -> Tensor:
    """Return a tensor in float32 or wider."""
    # NumPy has no bfloat16, and explanations should not depend on the half-precision type of a model.
    if tensor.dtype.itemsize < 4:
        return tensor.float()
    return tensor


def never(options: Mapping[str, Any]) -> bool:
    """Return False: the method needs a whole trace."""
    return False


def always(options: Mapping[str, Any]) -> bool:
    """Return True: a block-by-block trace is enough whatever the options."""
    return True


def without_heads(options: Mapping[str, Any]) -> bool:
    """Return whether a block-by-block trace is enough: the relevance of heads needs attention maps."""
    return not options["heads"]


@dataclass(frozen=True)
class Method:
    """A registered method and its capabilities.

    `signed` relevance is for or against the target; `class_specific` relevance depends on the target.
    `needs` names what the method reads of a trace besides inputs and outputs: some of TRACE_PARTS.
    `blockwise` returns, given all options, whether a block-by-block trace is enough.
    `shares_passes` means that all targets of an input are scored by the same passes through the network.
    `is_control` marks noise that other methods are compared with; a table averages `seeds` seeds of a method.
    `aliases` maps former option names to current ones.
    `loses_digits` means that rounding errors are amplified without a bound, so that float32 may not be enough.
    `divides_products` means that the relevance of a product is divided among its factors, such as two embeddings.
    """

    name: str
    compute: Callable[..., Attribution]
    paper: str
    signed: bool
    class_specific: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset(DEFAULT_NEEDS)
    blockwise: Callable[[Mapping[str, Any]], bool] = never
    shares_passes: bool = False
    is_control: bool = False
    seeds: int = 1
    aliases: Mapping[str, str] = field(default_factory=dict)
    loses_digits: bool = False
    divides_products: bool = False

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return (inspect.getdoc(self.compute) or "").split("\n\n")[0].replace("\n", " ")


METHODS: Registry[Method] = Registry(
    "method",
    modules=(
        "clearhead.attribution.attention",
        "clearhead.attribution.activation",
        "clearhead.attribution.random_baseline",
        "clearhead.attribution.decoded",
        "clearhead.attribution.gradient",
        "clearhead.attribution.smoothgrad",
        "clearhead.attribution.deeplift",
        "clearhead.attribution.attention_flow",
        "clearhead.attribution.balanced",
        "clearhead.attribution.integrated",
        "clearhead.attribution.perturbation",
        "clearhead.attribution.context_cite",
        "clearhead.attribution.relevance",
        "clearhead.trust.auto",
    ),
)


def methods() -> Registry[Method]:
    """Return every method by name, with its paper."""
    return METHODS


def method(
    *,
    paper: str,
    signed: bool,
    class_specific: bool,
    needs: Collection[str] = DEFAULT_NEEDS,
    blockwise: Callable[[Mapping[str, Any]], bool] = never,
    shares_passes: bool = False,
    is_control: bool = False,
    seeds: int = 1,
    aliases: Mapping[str, str] | None = None,
    loses_digits: bool = False,
    divides_products: bool = False,
) -> Callable[[Callable[..., Attribution]], Callable[..., Attribution]]:
    """Register a function (trace, *, options) → Attribution under the kebab-case of its name.

    The arguments are the fields of Method.
    """
    _check_needs(needs)

    def register(compute: Callable[..., Attribution]) -> Callable[..., Attribution]:
        name = compute.__name__.replace("_", "-")
        registered = Method(
            name,
            compute,
            paper,
            signed,
            class_specific,
            options=option_defaults(compute),
            needs=frozenset(needs),
            blockwise=blockwise,
            shares_passes=shares_passes,
            is_control=is_control,
            seeds=seeds,
            aliases=dict(aliases or {}),
            loses_digits=loses_digits,
            divides_products=divides_products,
        )
        METHODS.add(name, registered, compute.__module__)
        return compute

    return register


def _check_needs(needs: Collection[str]) -> None:
    unknown = set(needs).difference(TRACE_PARTS)
    if unknown:
        raise ValueError(f"Invalid needs: {', '.join(sorted(unknown))}. Available: {', '.join(TRACE_PARTS)}.")


@dataclass(frozen=True)
class MethodSpec:
    """A method, the options it was given, and the original spec string.

    `rounding` names the copy of the model that the method is computed on, see `retrace`; None for the model itself.
    `note` says how the method was chosen, if not by the user.
    """

    text: str
    method: Method
    options: Mapping[str, Any]
    rounding: str | None = None
    note: str = ""

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What explanations by this method say about its choice, and about digits that it loses."""
        notes: dict[str, Any] = {}
        if self.note:
            notes["chosen"] = self.note
        # The method "auto" tells of the one that it chooses.
        if self.method.loses_digits and self.rounding is None:
            notes["loses_digits"] = True
        return notes

    @property
    def all_options(self) -> dict[str, Any]:
        """The given options and the defaults of the others."""
        return {**self.method.options, **self.options}

    @property
    def needs(self) -> frozenset[str]:
        """What the method reads of a trace with these options: the relevance of heads needs attention maps."""
        if self.all_options.get("heads"):
            return self.method.needs | {"attention"}
        return self.method.needs

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options that differ from the method's defaults, in the order of its signature."""
        defaults = self.method.options
        return {name: value for name, value in self.all_options.items() if defaults.get(name) != value}

    def __call__(self, trace: Trace) -> Attribution:
        """Run the method in the precision of the trace, or of the copy that `rounding` names."""
        if self.rounding is not None:
            trace = retrace(trace, self.rounding)
        # A caller's autocast would mix half-precision types into the method's own products.
        with gc_paused(), torch.autocast(trace.logits.device.type, enabled=False):
            return self.method.compute(trace, **self.options)


def default_method(model: Model) -> str:
    """Return the method that explains a model unless another is named: the one chosen for it, or the library's."""
    choice = find_choice(model)
    if choice is None:
        return library_default(model)
    return choice.method


def library_default(model: Model) -> str:
    """Return the method that explains a model for which none was chosen."""
    if model.is_function:
        return DEFAULT_FUNCTION_METHOD
    if model.writes:
        return DEFAULT_ANSWER_METHOD
    if getattr(model.config, "model_type", "") in CONVOLUTIONAL_TYPES:
        return DEFAULT_PIXEL_METHOD
    # Not read at the blocks: their tokens are not those of the input.
    return DEFAULT_INPUT_METHOD if _has_other_blocks(model) else DEFAULT_METHOD


def _has_other_blocks(model: Model) -> bool:
    if model.reads_jointly and model.network.has_bridges:
        return True
    is_encoder_decoder = getattr(model.config, "is_encoder_decoder", False)
    return is_encoder_decoder or getattr(model.config, "model_type", "") in TYPES_WITHOUT_BLOCKS


def resolve_method(model: Model, name: Any, **options: Any) -> MethodSpec:
    """Parse a method for a model: None is the one chosen for it or the library's, "default" always the library's."""
    if name is None:
        return _resolve_default(model, options)
    if name == DEFAULT:
        name = library_default(model)
    return parse_method(name, **options)


def _resolve_default(model: Model, options: Mapping[str, Any]) -> MethodSpec:
    choice = find_choice(model)
    if choice is None:
        return parse_method(library_default(model), **options)
    return replace(parse_method(choice.method, **options), note=choice.note)


def parse_method(name: Any, **options: Any) -> MethodSpec:
    """Parse 'att-cat', 'decoded-gradcam:layer=7,top=3' or (name, {options}); keyword options override."""
    # Specs that are parsed already pass, so that every function takes either.
    if isinstance(name, MethodSpec):
        return name
    text, method_name, written_options = parse_spec(name)
    if method_name in RELATED_METHODS and method_name not in METHODS:
        raise UnknownName(f"No method is called '{method_name}'. {RELATED_METHODS[method_name]}")
    parsed = METHODS[method_name]
    validated = validate_options(parsed.name, parsed.compute, {**written_options, **options}, parsed.aliases)
    return MethodSpec(text, parsed, validated)
