"""Sanity: an explanation of a model must change when the model's weights do."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.api import compare
from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.evaluation.confidence import tau
from clearhead.evaluation.examples import explanation_for, focused_input, real_relevance
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.perturbation.ranking import spearman
from clearhead.validation import require_choice, require_integer

CORRELATIONS = ("spearman", "kendall")
MAX_SEED = 2**63 - 1

MethodCases = tuple[MethodSpec, list[int]]
"""A method and the indices of the examples that it explained."""


def _cascade_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    heights_RK = mean_curve(records, weights_RN, "correlations")
    stages = heights_RK.shape[1]
    return [stage / stages for stage in range(1, stages + 1)], heights_RK


@metric(paper="Sanity checks (Adebayo et al. 2018)", better="lower", curve=_cascade_curve)
def randomisation(
    model: Model, cases: list[ExplainedExample], *, correlation: str = "spearman", absolute: bool = False, seed: int = 0
) -> list[Record]:
    """Rank correlation of the explanation before and after the weights are made random, from the output down.

    The head, then one block after the other, then the embeddings are redrawn in a copy of the model; the value is the
    mean over these stages. An explanation that stays the same (1) does not depend on what the model learned.
    """
    require_choice("correlation", correlation, CORRELATIONS)
    require_integer("seed", seed, 0, MAX_SEED)
    stages = []
    for randomised in _randomise(model, seed):
        stages.append(_correlate_cases(randomised, cases, correlation, absolute))
    return [_correlation_record(list(values)) for values in zip(*stages, strict=True)]


def _randomise(model: Model, seed: int) -> Iterator[Model]:
    """Yield a copy of the model after each stage; it is the same copy, changed in place."""
    randomised = copy_model(model)
    # On the CPU, so that a seed gives the same weights on any device.
    generator = torch.Generator().manual_seed(seed)
    for parameters in parts_from_output(randomised.network):
        # Weights stay random: each stage adds to the ones before.
        redraw(parameters, generator)
        yield randomised


def copy_model(model: Model) -> Model:
    """Return the model with a copy of its network, whose weights may be changed."""
    # Without the model's cached copies in other dtypes, which would keep the trained weights.
    return replace(model, network=copy.deepcopy(model.network), copies={})


def _correlate_cases(model: Model, cases: Sequence[ExplainedExample], correlation: str, absolute: bool) -> list[float]:
    """Return for each example the correlation of its explanation with that of another model."""
    correlations = []
    for case, after in zip(cases, _explain_again(model, cases), strict=True):
        before = explanation_for(case, "prediction")
        correlations.append(_correlate(before, after, correlation, absolute))
    return correlations


def _correlation_record(correlations: list[float]) -> Record:
    """Return the mean over stages, None where the explanation has too few tokens to correlate."""
    return {"randomisation": _finite_mean(correlations), "correlations": correlations}


def _finite_mean(values: Sequence[float]) -> float | None:
    # NaN stands for a text of a single token, which has no order.
    finite = list(filter(math.isfinite, values))
    if not finite:
        return None
    return float(np.mean(finite))


def parts_from_output(network: nn.Module) -> list[list[nn.Parameter]]:
    """Return the parameters of head, last block … first block, embeddings; shared ones once, nearest the output.

    Blocks are the members of the longest list of modules; without any list every parameter is a stage.
    """
    list_name, blocks = _longest_list(network)
    if not blocks:
        return _single_parameters(network)
    stages = _group_by_stage(network, list_name, blocks)
    return [stages[stage] for stage in sorted(stages)]


def _single_parameters(network: nn.Module) -> list[list[nn.Parameter]]:
    # Reversed: parameters are listed from the input to the output.
    return [[parameter] for parameter in reversed(list(network.parameters()))]


def _group_by_stage(network: nn.Module, list_name: str, blocks: int) -> dict[int, list[nn.Parameter]]:
    """Return the parameters by stage: 0 the head, 1 the last block … `blocks` the first, then the embeddings."""
    stages: dict[int, list[nn.Parameter]] = {}
    # Parameters are listed in the order of the modules: embeddings before the blocks, the head after.
    stage_outside = blocks + 1
    for name, parameter in network.named_parameters():
        block = _block_number(name, list_name)
        if block is None:
            stages.setdefault(stage_outside, []).append(parameter)
        else:
            stages.setdefault(blocks - block, []).append(parameter)
            stage_outside = 0
    return stages


def _block_number(name: str, list_name: str) -> int | None:
    """Return the index of the block that holds a parameter, None outside the blocks."""
    prefix = list_name + "."
    if not name.startswith(prefix):
        return None
    return int(name.removeprefix(prefix).split(".")[0])


def _longest_list(network: nn.Module) -> tuple[str, int]:
    """Return name and length of the longest list of modules, the first of equal ones; length 0 without any."""
    longest = ("", 0)
    for name, module in network.named_modules():
        # Strictly longer: of an encoder and a decoder of equal depth the first is taken.
        if isinstance(module, nn.ModuleList) and len(module) > longest[1]:
            longest = (name, len(module))
    return longest


def redraw(parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
    """Fill parameters in place from a normal distribution with each one's own mean and deviation."""
    with torch.no_grad():
        for parameter in parameters:
            # Quantised or counted values (integers) have no deviation.
            if parameter.is_floating_point():
                parameter.copy_(_draw_like(parameter, generator))


def _draw_like(parameter: Tensor, generator: torch.Generator) -> Tensor:
    # In float64: low precision would distort mean and deviation of large matrices.
    values = parameter.double()
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    # Without Bessel's correction, which is NaN for a parameter of one value.
    deviation = float(values.std(correction=0))
    return (noise * deviation + float(values.mean())).to(parameter)


def _explain_again(model: Model, cases: Sequence[ExplainedExample]) -> list[Explanation]:
    """Explain the same inputs and targets by the same methods on another model; methods share traces."""
    explanations: dict[int, Explanation] = {}
    for group in group_methods(cases):
        # All methods of a group explained the same, so the first one's examples stand for all.
        examples = _select(cases, group[0][1])
        after = _compare_methods(model, examples, [spec for spec, _ in group])
        for spec, indices in group:
            explanations.update(zip(indices, after[spec.text], strict=True))
    return [explanations[index] for index in range(len(cases))]


def _compare_methods(model: Model, cases: Sequence[ExplainedExample], specs: list[MethodSpec]) -> Any:
    """Explain some examples again, for the targets that they were explained for before."""
    inputs = [focused_input(case.example) for case in cases]
    # The targets of the trained model: a randomised one would predict something else.
    targets = list(map(_explained_target, cases))
    return compare(model, inputs, specs, targets, long="truncate", check=False)


def _explained_target(case: ExplainedExample) -> Target:
    return explanation_for(case, "prediction").target


def _select(cases: Sequence[ExplainedExample], indices: Sequence[int]) -> list[ExplainedExample]:
    return [cases[index] for index in indices]


def group_methods(cases: Sequence[ExplainedExample]) -> list[list[MethodCases]]:
    """Group the methods that explained the same inputs for the same targets."""
    groups: dict[Any, list[MethodCases]] = {}
    for spec, indices in _cases_by_method(cases):
        groups.setdefault(_questions(cases, indices), []).append((spec, indices))
    return list(groups.values())


def _questions(cases: Sequence[ExplainedExample], indices: Sequence[int]) -> tuple[Any, ...]:
    return tuple(map(_question, _select(cases, indices)))


def _cases_by_method(cases: Sequence[ExplainedExample]) -> list[MethodCases]:
    methods: dict[str, MethodCases] = {}
    for index, case in enumerate(cases):
        spec = _method_of(case)
        methods.setdefault(spec.text, (spec, []))[1].append(index)
    return list(methods.values())


def _method_of(case: ExplainedExample) -> MethodSpec:
    # Options are part of a method: two settings of one method are explained apart.
    explanation = explanation_for(case, "prediction")
    return parse_method((explanation.method, explanation.options))


def _question(case: ExplainedExample) -> Any:
    """Return what was explained: equal for equal examples and targets."""
    return case.example.id, _explained_target(case)


def _correlate(before: Explanation, after: Explanation, correlation: str, absolute: bool) -> float:
    first = _compared_relevance(before, absolute)
    second = _compared_relevance(after, absolute)
    # One token has no order.
    if len(first) < 2:
        return float("nan")
    if correlation == "kendall":
        return tau(first, second)
    return spearman(first, second)


def _compared_relevance(explanation: Explanation, absolute: bool) -> Array:
    # With `absolute` a change of sign alone does not count.
    relevance = real_relevance(explanation)
    if absolute:
        return np.abs(relevance)
    return relevance
