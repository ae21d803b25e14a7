"""auto: of all methods that one trace serves, the one whose strongest units matter most on this input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.assemble import collect_refusal, explain_attribution
from clearhead.attribution.batch_sizes import select_rows
from clearhead.attribution.method import Attribution, MethodSpec, fill_diagnostics, method, parse_method
from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.check import MIN_GROUPS
from clearhead.engine.step_trace import StepTrace
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.target import Target, shift_span
from clearhead.perturbation.ranking import removal_counts, sort_descending
from clearhead.perturbation.run import perturbed_scores
from clearhead.trust.removal_check import choose_replacement
from clearhead.trust.units import Units, group_units

# The check takes smaller groups of units, one after the other: what was chosen by is not what is checked.
TEXT_SHARES = (0.3, 0.5)
# An image costs as much as a long text, whatever is hidden.
IMAGE_SHARES = (0.3,)
NAMED_RUNNERS_UP = 2


@method(
    paper="chosen on each input by removal",
    signed=True,
    class_specific=True,
    needs=("attention", "gradients", "relevance"),
    loses_digits=True,
)
def auto(trace: Trace) -> Attribution:
    """Choose, on each input, the method whose strongest units matter most: shown alone, or hidden.

    All methods share one trace. The score with only the strongest 30 and 50 % shown, less the score with them hidden,
    decides; a check of the explanation hides another number of units.
    """
    _refuse_steps(trace)
    candidates = _attribute(trace)
    trials = _plan_trials(trace, candidates)
    ranked = [dict.fromkeys(candidates, 0.0)] * len(trace.targets)
    for row, scores_N in _score_trials(trace, trials).items():
        ranked[row] = _rank(trials[row], scores_N)
    return _assemble(candidates, ranked)


def _refuse_steps(trace: Trace) -> None:
    if isinstance(trace, StepTrace):
        raise BadOption("auto chooses one method for a whole answer: to explain every step, name a method.")


@dataclass(frozen=True, eq=False)
class _Candidate:
    """What one method computed of a trace, and the explanations that follow from it."""

    attribution: Attribution
    explanations: list[Explanation]

    def diagnostics(self, row: int) -> Mapping[str, Any]:
        return fill_diagnostics(self.attribution.diagnostics, len(self.explanations))[row]


@dataclass(frozen=True, eq=False)
class _Trial:
    """The units of one input, and the sets of strongest units that each method names (S,U)."""

    units: Units
    target: Target
    sets: dict[str, Array]

    @property
    def masks(self) -> Tensor:
        """The units that are present: of each method, first with its sets shown alone, then with them hidden."""
        masks = []
        for sets_SU in self.sets.values():
            masks += [sets_SU, ~sets_SU]
        return torch.from_numpy(np.concatenate(masks))


def _attribute(trace: Trace) -> dict[str, _Candidate]:
    """Run every method on the trace; those that refuse the model are left out."""
    refused: dict[str, str] = {}
    candidates = {}
    for spec in map(parse_method, ONE_TRACE_METHODS):
        with collect_refusal(spec, refused):
            candidates[spec.text] = _make_candidate(trace, spec)
    if not candidates:
        raise UnsupportedModel(f"No method explains {trace.model.name} from one trace, so that none can be chosen.")
    return candidates


def _make_candidate(trace: Trace, spec: MethodSpec) -> _Candidate:
    attribution = spec(trace)
    return _Candidate(attribution, explain_attribution(trace, spec, attribution))


def _plan_trials(trace: Trace, candidates: Mapping[str, _Candidate]) -> dict[int, _Trial]:
    """Return the trial of every input that has units to choose by; a text of one word has none."""
    trials = {}
    for row in range(len(trace.targets)):
        explanations = {name: candidate.explanations[row] for name, candidate in candidates.items()}
        try:
            trials[row] = _plan_trial(trace, row, explanations)
        except BadInput:
            continue
    return trials


def _plan_trial(trace: Trace, row: int, explanations: Mapping[str, Explanation]) -> _Trial:
    first = next(iter(explanations.values()))
    units = group_units(trace.model, trace.inputs, row, first.grid)
    sizes = choose_sizes(units, IMAGE_SHARES if trace.is_image else TEXT_SHARES)
    sets = {name: _mark_strongest(units, explanation, sizes) for name, explanation in explanations.items()}
    target = shift_span(first.target, dict(enumerate(units.positions)))
    return _Trial(units, target, sets)


def _mark_strongest(units: Units, explanation: Explanation, sizes: Sequence[int]) -> Array:
    """Return the strongest units as sets of these sizes (S,U)."""
    order_U = sort_descending(units.relevance(explanation))
    sets_SU = np.zeros((len(sizes), units.count), dtype=bool)
    for set_U, size in zip(sets_SU, sizes, strict=True):
        set_U[order_U[:size]] = True
    return sets_SU


def choose_sizes(units: Units, shares: Sequence[float]) -> list[int]:
    """Return how many of the strongest units are hidden and shown: never as many as a group of the check has."""
    checked = max(1, units.count // MIN_GROUPS)
    sizes = set(removal_counts(list(shares), units.count)) - {checked}
    # Of very few units all shares may be the same number.
    return sorted(sizes) or [_neighbour(checked, units.count)]


def _neighbour(size: int, count: int) -> int:
    if size + 1 < count:
        return size + 1
    return max(1, size - 1)


def _score_trials(trace: Trace, trials: Mapping[int, _Trial]) -> dict[int, Array]:
    """Return the scores of each input under the masks of its trial, from passes that all of them share."""
    if not trials:
        return {}
    planned = list(trials.values())
    scores = perturbed_scores(
        trace.model,
        select_rows(trace.inputs, list(trials)),
        [trial.masks for trial in planned],
        [trial.target for trial in planned],
        [trial.units.features for trial in planned],
        replacement=choose_replacement(trace.model),
    )
    return {row: row_scores.cpu().numpy() for row, row_scores in zip(trials, scores, strict=True)}


def _rank(trial: _Trial, scores_N: Array) -> dict[str, float]:
    """Return by method, the best first, the mean score of what it shows less that of what it hides."""
    scores_M2S = scores_N.reshape(len(trial.sets), 2, -1).mean(2)
    effects = dict(zip(trial.sets, (scores_M2S[:, 0] - scores_M2S[:, 1]).tolist(), strict=True))
    # Sorting is stable: of equal methods the first of the list, the default, is chosen.
    return dict(sorted(effects.items(), key=lambda entry: -entry[1]))


def _assemble(candidates: Mapping[str, _Candidate], ranked: Sequence[Mapping[str, float]]) -> Attribution:
    relevance = []
    diagnostics = []
    for row, effects in enumerate(ranked):
        candidate = candidates[next(iter(effects))]
        relevance.append(candidate.attribution.relevance_BT[row])
        diagnostics.append({**candidate.diagnostics(row), "auto": _describe(list(effects)), "auto_scores": effects})
    # Some methods sum in a wider type than others.
    dtype = reduce(torch.promote_types, [row_T.dtype for row_T in relevance])
    return Attribution(torch.stack([row_T.to(dtype) for row_T in relevance]), diagnostics=diagnostics)


def _describe(names: Sequence[str]) -> str:
    """Return the chosen method, and those that came next."""
    chosen, *others = names
    if not others:
        return chosen
    return f"{chosen} before {' and '.join(others[:NAMED_RUNNERS_UP])}"
