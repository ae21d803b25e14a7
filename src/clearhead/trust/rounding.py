"""Rounding errors of explanations: what is computed in float64 or twice, and a bound for everything else.

Errors are relative to the largest relevance of a word or patch. docs/decisions/precision.md tells how the numbers here
were measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from clearhead.attribution.method import MethodSpec
from clearhead.engine.memory import free_bytes
from clearhead.engine.product_types import find_product_type
from clearhead.engine.retrace import FLOAT64, PERTURBED
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.trust.relevances import relative_difference

STABLE_BOUNDS = {"float64": 1e-11, "float32": 1e-4, "tf32": 0.02, "float16": 0.02, "bfloat16": 0.1}
"""Bounds of methods that do not lose digits, by the type of the model's numbers."""
NORM_NAMES = ("RMSNorm", "LayerNorm")
TORCH_NORMS = (torch.nn.RMSNorm, torch.nn.LayerNorm)
HIDING_FACTOR = 3.0
"""How many times larger the bound of methods is that subtract the scores of inputs with and without a feature."""
LOSSY_FLOAT64_BOUND = 1e-6
SAFETY = 20.0
"""How many times larger than the change on perturbed weights a rounding error may be."""
LARGE_ERROR = 0.1
MAX_COPY_BYTES = 4 * 2**30
MAX_COPY_SHARE = 0.25
"""Share of the free memory that a float64 copy of the weights may take."""
FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""Compute capabilities of data-centre GPUs; on others float64 is 32 to 64 times slower than float32."""


@dataclass(frozen=True)
class RoundingPlan:
    """The methods as they are computed: in the model's precision or in float64, and some a second time.

    `specs` holds every method once, then those that are `repeated` (by index) on perturbed weights.
    """

    model: Model
    specs: list[MethodSpec]
    repeated: list[int]

    @property
    def count(self) -> int:
        """The number of methods."""
        return len(self.specs) - len(self.repeated)

    @property
    def uses_float64(self) -> bool:
        return any(spec.rounding == FLOAT64 for spec in self.specs)

    def estimate(self, explanations: Sequence[Explanation]) -> list[float | None]:
        """Return the rounding error of one input by each method, from its explanations in the order of `specs`."""
        count = self.count
        errors = list(map(self._bound, self.specs[:count], explanations))
        for index, second in zip(self.repeated, explanations[count:], strict=True):
            errors[index] = self._compare(explanations[index], second)
        return errors

    def _bound(self, spec: MethodSpec, explanation: Explanation) -> float | None:
        if spec.method.loses_digits and explanation.diagnostics["precision"] == FLOAT64:
            return LOSSY_FLOAT64_BOUND
        bound = self._find_stable_bound(explanation)
        if bound is not None and spec.method.shares_passes:
            return HIDING_FACTOR * bound
        return bound

    def _find_stable_bound(self, explanation: Explanation) -> float | None:
        """Return the bound of methods that do not lose digits, None for types that were not measured."""
        precision = explanation.diagnostics["precision"]
        if precision == FLOAT64 and self._has_float32_norms:
            precision = "float32"
        if precision == "float32":
            precision = self._product_type or precision
        return STABLE_BOUNDS.get(precision)

    @cached_property
    def _has_float32_norms(self) -> bool:
        return has_float32_norms(self.model)

    @cached_property
    def _product_type(self) -> str | None:
        # Once per call: it looks through the modules of the network.
        return find_product_type(self.model)

    def _compare(self, first: Explanation, second: Explanation) -> float:
        least = self._find_stable_bound(first) or 0.0
        return max(least, SAFETY * relative_difference(first, second))


def plan_rounding(model: Model, specs: Sequence[MethodSpec], *, allow_float64: bool) -> RoundingPlan:
    """Compute methods that lose digits in float64 if that is allowed and cheap, else twice."""
    lossy = _find_lossy(model, specs)
    # To look for memory takes longer than to find that no method needs it.
    if not lossy:
        return RoundingPlan(model, list(specs), [])
    # A network that rounds to float32 on the way gains nothing in float64.
    if allow_float64 and not has_float32_norms(model) and affords_float64(model):
        return RoundingPlan(model, _replace_specs(specs, lossy), [])
    return RoundingPlan(model, [*specs, *_perturb_specs(specs, lossy)], lossy)


def _find_lossy(model: Model, specs: Sequence[MethodSpec]) -> list[int]:
    """Return the indices of the methods that lose digits in the precision of a model."""
    if model.dtype is torch.float64 and not has_float32_norms(model):
        return []
    return _list_lossy(specs)


def _list_lossy(specs: Sequence[MethodSpec]) -> list[int]:
    return [index for index, spec in enumerate(specs) if spec.method.loses_digits]


def _replace_specs(specs: Sequence[MethodSpec], lossy: Sequence[int]) -> list[MethodSpec]:
    """Return all methods, of which some are computed in float64."""
    planned = list(specs)
    for index in lossy:
        planned[index] = replace(specs[index], rounding=FLOAT64)
    return planned


def _perturb_specs(specs: Sequence[MethodSpec], lossy: Sequence[int]) -> list[MethodSpec]:
    """Return some methods, to be computed on perturbed weights."""
    return [replace(specs[index], rounding=PERTURBED) for index in lossy]


def has_float32_norms(model: Model) -> bool:
    """Return whether a network normalises in float32 whatever its type, as Transformers' own modules for it do.

    These are RMSNorm modules, among them T5LayerNorm, and the LayerNorm modules of DeBERTa, OLMo and Cohere.
    """
    return any(map(_is_float32_norm, model.network.modules()))


def _is_float32_norm(module: torch.nn.Module) -> bool:
    # Those of torch compute in the type of their input.
    return type(module).__name__.endswith(NORM_NAMES) and not isinstance(module, TORCH_NORMS)


def affords_float64(model: Model) -> bool:
    """Return whether the device computes quickly in float64 and has room for a copy of the weights."""
    return _is_fast_in_float64(model.device) and _copy_bytes(model) <= _usable_bytes(model.device)


def _is_fast_in_float64(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) in FAST_FLOAT64
    # Other accelerators have no float64, or a slow one.
    return device.type == "cpu"


def _copy_bytes(model: Model) -> int:
    return _count_numbers(model) * torch.float64.itemsize


def _count_numbers(model: Model) -> int:
    """Return how many numbers the weights of a model have."""
    numbers: int = sum(weight.numel() for weight in model.network.parameters())
    return numbers


def _usable_bytes(device: torch.device) -> float:
    return min(MAX_COPY_BYTES, MAX_COPY_SHARE * free_bytes(device))
