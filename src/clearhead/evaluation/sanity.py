"""Sanity: an explanation of a model must change when the model's weights do."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from clearhead.api import compare
from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.errors import BadOption
from clearhead.evaluation.confidence import tau
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, explanation_for, mean_curve, metric
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.validation import require_integer

CORRELATIONS = ("spearman", "kendall")
SEEDS = 2**63 - 1


def _cascade(records: Sequence[Record], weights_RN: Array) -> Curves:
    found = mean_curve(records, weights_RN, "correlations")
    steps = found.shape[1]
    return [step / steps for step in range(1, steps + 1)], found


@metric(paper="Sanity checks (Adebayo et al. 2018)", better="lower", curve=_cascade)
def randomisation(
    model: Model, cases: list[ExplainedExample], *, correlation: str = "spearman", absolute: bool = False, seed: int = 0
) -> list[Record]:
    """Rank correlation of the explanation before and after the weights are made random, from the output down.

    The head, then one block after the other, then the embeddings are redrawn in a copy of the model; the value is the
    mean over these stages. An explanation that stays the same (1) does not depend on what the model learned.
    """
    if correlation not in CORRELATIONS:
        raise BadOption(f"correlation={correlation!r} is not a choice. Use one of {', '.join(CORRELATIONS)}.")
    require_integer("seed", seed, 0, SEEDS)
    changed = replace(model, network=copy.deepcopy(model.network), copies={})
    generator = torch.Generator().manual_seed(seed)
    found: list[list[float]] = [[] for _ in cases]
    for parameters in parts_from_output(changed.network):
        redraw(parameters, generator)
        for place, after in enumerate(_again(changed, cases)):
            before = explanation_for(cases[place], "prediction")
            found[place].append(_correlated(before, after, correlation, absolute))
    return [{"randomisation": _mean(several), "correlations": several} for several in found]


def _mean(values: list[float]) -> float | None:
    real = [value for value in values if np.isfinite(value)]
    return float(np.mean(real)) if real else None


def parts_from_output(network: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of head, last block … first block, embeddings; shared ones once, in the part nearest the output.

    Blocks are the members of the longest list of modules.
    """
    lists = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        return [[one] for one in reversed(list(network.parameters()))]
    prefix, blocks = max(lists, key=lambda pair: len(pair[1]))
    names = [name for name, _ in network.named_parameters()]
    inside = [place for place, name in enumerate(names) if name.startswith(prefix + ".")]
    parts: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 2)]
    for place, (name, parameter) in enumerate(network.named_parameters()):
        parts[_part(name, prefix, place, inside, len(blocks))].append(parameter)
    return [part for part in parts if part]


def _part(name: str, prefix: str, place: int, inside: list[int], blocks: int) -> int:
    if name.startswith(prefix + "."):
        return blocks - int(name.removeprefix(prefix + ".").split(".")[0])
    return blocks + 1 if inside and place < inside[0] else 0


def redraw(parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
    """New values from a normal distribution with the parameter's own mean and deviation."""
    with torch.no_grad():
        for one in parameters:
            if one.is_floating_point():
                spread = float(one.double().std(correction=0))
                noise = torch.randn(one.shape, generator=generator, dtype=torch.float64)
                one.copy_((noise * spread + float(one.double().mean())).to(one))


def _again(model: Model, cases: Sequence[ExplainedExample]) -> list[Explanation]:
    """The same inputs and targets explained by the same methods on another model; methods share traces."""
    found: dict[int, Explanation] = {}
    for by_method in _together(cases):
        spellings = [spelling for spelling, _ in by_method]
        first = by_method[0][1]
        inputs: list[Any] = [cases[place].example.raw for place in first]
        targets = [explanation_for(cases[place], "prediction").target for place in first]
        after = compare(model, inputs, spellings, targets, long="truncate")
        for spelling, places in by_method:
            found.update(zip(places, after[spelling.text], strict=True))
    return [found[place] for place in range(len(cases))]


def _together(cases: Sequence[ExplainedExample]) -> list[list[tuple[MethodSpec, list[int]]]]:
    """Methods, with the places of their cases, that explained the same inputs for the same targets."""
    methods: dict[str, tuple[MethodSpec, list[int]]] = {}
    for place, case in enumerate(cases):
        known = explanation_for(case, "prediction")
        spelling = parse_method((known.method, known.options))
        methods.setdefault(spelling.text, (spelling, []))[1].append(place)
    groups: dict[Any, list[tuple[MethodSpec, list[int]]]] = {}
    for spelling, places in methods.values():
        key = tuple((cases[place].example.id, explanation_for(cases[place], "prediction").target) for place in places)
        groups.setdefault(key, []).append((spelling, places))
    return list(groups.values())


def _correlated(before: Explanation, after: Explanation, correlation: str, absolute: bool) -> float:
    first, second = (one.relevance[~before.special] for one in (before, after))
    if absolute:
        first, second = np.abs(first), np.abs(second)
    if len(first) < 2:
        return float("nan")
    return tau(first, second) if correlation == "kendall" else spearman(first, second)


def spearman(first: Array, second: Array) -> float:
    """Pearson's correlation of ranks, ties sharing their mean rank; no correlation where one is constant."""
    first, second = (_mean_ranks(one) - (len(one) - 1) / 2 for one in (first, second))
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale else 0.0


def _mean_ranks(values: Array) -> Array:
    _, again, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    found: Array = (ends - (sizes + 1) / 2)[again]
    return found
