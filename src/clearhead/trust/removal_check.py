"""Check explanations by removal: hide the units that they call the strongest, or show nothing else."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.batch_sizes import Batch, select_rows
from clearhead.attribution.explain_inputs import MAX_KEPT_INPUTS
from clearhead.check import MIN_GROUPS, UNCHECKED
from clearhead.errors import ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.text_units import find_larger_unit
from clearhead.perturbation.run import perturbed_scores
from clearhead.trust.experiment import Experiment, plan_experiments
from clearhead.trust.units import group_units
from clearhead.validation import require_integer

MAX_TEXTS = MAX_KEPT_INPUTS
MAX_IMAGES = 4
SEED = 0
TOO_LONG = "The text is longer than the model takes: its windows have no common input to hide words in."

Rows = Sequence[Sequence[Explanation]]
"""The explanations of each input, all for the same target."""
Key = tuple[int, str]
"""The row of an input in the batch, and what is hidden of it as a whole (see `find_larger_unit`)."""
Experiments = Mapping[Key, Sequence[Experiment]]
"""The experiments of each input and kind of units."""


def validate_check(check: bool | int | None) -> None:
    """Raise BadOption unless the option `check` is None, a bool, or a number of groups."""
    if check is not None and not isinstance(check, bool):
        require_integer("check", check, MIN_GROUPS, is_flag=True)


def count_groups(check: bool | int | None, model: Model, inputs: int) -> int:
    """Return how many groups of units the option `check` asks for; 0 for no check.

    None checks up to 64 texts or 4 images of a call.
    """
    if check is None:
        limit = MAX_IMAGES if model.takes_images else MAX_TEXTS
        check = inputs <= limit
    if isinstance(check, bool):
        return MIN_GROUPS * check
    return check


def check_batches(model: Model, rows: Rows, batches: Iterator[Batch], groups: int) -> list[list[Explanation]]:
    """Return explanations with their checks, batch by batch; an input that is in no batch has none."""
    checked: dict[int, list[Explanation]] = {}
    for batch in batches:
        own_rows = [rows[index] for index in batch.indices]
        checked.update(zip(batch.indices, check_explanations(model, batch.inputs, own_rows, groups), strict=True))
    return [checked.get(index) or _note_reason(row, TOO_LONG) for index, row in enumerate(rows)]


def check_explanations(
    model: Model, inputs: Inputs, rows: Rows, groups: int = MIN_GROUPS, seed: int = SEED
) -> list[list[Explanation]]:
    """Return the explanations of each input of a batch with their checks.

    Units are divided into `groups` from the strongest to the weakest. An explanation that cannot be checked has the
    reason in its diagnostics.
    """
    with _default_cpu():
        return _check_rows(model, inputs, rows, groups, seed)


def _check_rows(model: Model, inputs: Inputs, rows: Rows, groups: int, seed: int) -> list[list[Explanation]]:
    checked: dict[Key, list[Explanation]] = {}
    experiments: dict[Key, list[Experiment]] = {}
    for key, explanations in _group_by_unit(rows).items():
        row, unit = key
        try:
            units = group_units(model, inputs, row, explanations[0].grid, unit)
            experiments[key] = plan_experiments(units, explanations, groups, seed)
        except ClearheadError as error:
            checked[key] = _note_reason(explanations, str(error))
    if experiments:
        checked.update(_try_experiments(model, inputs, experiments))
    return _restore_order(rows, checked)


def _group_by_unit(rows: Rows) -> dict[Key, list[Explanation]]:
    """Return the explanations of each input whose methods score the same kind of units."""
    groups: dict[Key, list[Explanation]] = defaultdict(list)
    for row, explanations in enumerate(rows):
        for explanation in explanations:
            groups[row, find_larger_unit(explanation)].append(explanation)
    return groups


def _restore_order(rows: Rows, checked: Mapping[Key, Sequence[Explanation]]) -> list[list[Explanation]]:
    """Return the checked explanations of each input in the order of the given ones."""
    remaining = {key: iter(group) for key, group in checked.items()}
    return [_take_row(remaining, row, explanations) for row, explanations in enumerate(rows)]


def _take_row(
    remaining: Mapping[Key, Iterator[Explanation]], row: int, explanations: Sequence[Explanation]
) -> list[Explanation]:
    return [next(remaining[row, unit]) for unit in map(find_larger_unit, explanations)]


def _try_experiments(model: Model, inputs: Inputs, experiments: Experiments) -> dict[Key, list[Explanation]]:
    """Return the checked explanations of each input; if the model refuses what is left of an input, with the reason."""
    try:
        return _run_experiments(model, inputs, experiments)
    # A custom network may fail without some of its tokens, and its explanation is not lost for that.
    except (ClearheadError, RuntimeError) as error:
        reason = str(error)
    unchecked = {}
    for key, group in experiments.items():
        unchecked[key] = _note_reason([own.explanation for own in group], reason)
    return unchecked


def _default_cpu() -> AbstractContextManager[Any]:
    """Make new tensors on the CPU, whatever torch takes for its default device."""
    if torch.get_default_device().type == "cpu":
        return nullcontext()
    return torch.device("cpu")


def _note_reason(explanations: Sequence[Explanation], reason: str) -> list[Explanation]:
    """Return explanations that say why they were not checked."""
    noted = []
    for explanation in explanations:
        noted.append(replace(explanation, diagnostics={**explanation.diagnostics, UNCHECKED: reason}))
    return noted


def _run_experiments(model: Model, inputs: Inputs, experiments: Experiments) -> dict[Key, list[Explanation]]:
    """Return the checked explanations of each input, from the passes of all inputs."""
    batch = select_rows(inputs, [row for row, _ in experiments])
    groups = list(experiments.values())
    checked = {}
    for key, group, scores in zip(experiments, groups, _score_masks(model, batch, groups), strict=True):
        checked[key] = list(map(_conclude, group, scores))
    return checked


def _conclude(experiment: Experiment, scores_S: Array) -> Explanation:
    return replace(experiment.explanation, check=experiment.conclude(scores_S))


def _score_masks(model: Model, batch: Inputs, groups: Sequence[Sequence[Experiment]]) -> list[list[Array]]:
    """Return the scores of each experiment of each input under its masks."""
    masks = list(map(_list_masks, groups))
    # All explanations of a group have the same units and target.
    first = [group[0] for group in groups]
    scores = perturbed_scores(
        model,
        batch,
        list(map(torch.cat, masks)),
        [experiment.target for experiment in first],
        [experiment.units.features for experiment in first],
        replacement=choose_replacement(model),
    )
    return list(map(_split_scores, scores, masks))


def _list_masks(group: Sequence[Experiment]) -> list[Tensor]:
    return [experiment.masks for experiment in group]


def _split_scores(scores_N: Tensor, masks: Sequence[Tensor]) -> list[Array]:
    pieces = scores_N.cpu().split_with_sizes(list(map(len, masks)))
    return [piece.numpy() for piece in pieces]


def choose_replacement(model: Model) -> str | None:
    """Return how units are removed: deleted from texts, whose rows become short; black, or [MASK] where
    deleting would move what is explained.
    """
    # Of prompts with pictures nothing can be deleted; the default knows which prompts have some.
    if model.takes_images or model.reads_pictures or model.reads_jointly or model.is_positional:
        return None
    return "delete"
