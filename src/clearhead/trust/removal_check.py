"""Check explanations by removal: hide the units that they call the strongest, or show nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.batch import Batch, select_rows
from clearhead.errors import ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.perturbation.run import perturbed_scores
from clearhead.trust.experiment import MIN_SETS, Draw, Experiment, plan_experiments
from clearhead.validation import require_integer

MAX_TEXTS = 64
MAX_IMAGES = 4
SEED = 0
UNCHECKED = "unchecked"
"""The diagnostic that says why an explanation has no check."""
TOO_LONG = "The text is longer than the model takes: its windows have no common input to hide words in."

Rows = Sequence[Sequence[Explanation]]
"""The explanations of each input, all for the same target."""


def validate_check(check: bool | int | None) -> None:
    """Raise BadOption unless the option `check` is None, a bool, or enough random sets for a rank of 5 %."""
    if check is not None and not isinstance(check, bool):
        require_integer("check", check, MIN_SETS, is_flag=True)


def count_sets(check: bool | int | None, model: Model, inputs: int) -> int:
    """Return how many random sets the option `check` asks for; 0 for no check.

    None checks up to 64 texts or 4 images of a call.
    """
    if check is None:
        limit = MAX_IMAGES if model.takes_images else MAX_TEXTS
        check = inputs <= limit
    if isinstance(check, bool):
        return MIN_SETS * check
    return check


def check_batches(
    model: Model, rows: Rows, batches: Iterator[Batch], sets: int, seed: int = SEED
) -> list[list[Explanation]]:
    """Return explanations with their checks, batch by batch; an input that is in no batch has none."""
    checked = {}
    for batch in batches:
        own_rows = [rows[index] for index in batch.indices]
        checked.update(zip(batch.indices, check_explanations(model, batch.inputs, own_rows, sets, seed), strict=True))
    return [checked.get(index) or _note_reason(row, TOO_LONG) for index, row in enumerate(rows)]


def check_explanations(
    model: Model, inputs: Inputs, rows: Rows, sets: int = MIN_SETS, seed: int = SEED
) -> list[list[Explanation]]:
    """Return the explanations of each input of a batch with their checks.

    Explanations of one input share `sets` random sets of units. An explanation that cannot be checked has the reason in
    its diagnostics.
    """
    checked: dict[int, list[Explanation]] = {}
    experiments: dict[int, list[Experiment]] = {}
    for row, explanations in enumerate(rows):
        try:
            experiments[row] = plan_experiments(model, inputs, row, explanations, Draw(sets, seed))
        except ClearheadError as error:
            checked[row] = _note_reason(explanations, str(error))
    if experiments:
        checked.update(_run_experiments(model, inputs, experiments))
    return [checked[row] for row in range(len(rows))]


def _note_reason(explanations: Sequence[Explanation], reason: str) -> list[Explanation]:
    """Return explanations that say why they were not checked."""
    noted = []
    for explanation in explanations:
        noted.append(replace(explanation, diagnostics={**explanation.diagnostics, UNCHECKED: reason}))
    return noted


def _run_experiments(
    model: Model, inputs: Inputs, experiments: Mapping[int, Sequence[Experiment]]
) -> dict[int, list[Explanation]]:
    """Return the checked explanations of each input, from the passes of all inputs."""
    batch = select_rows(inputs, list(experiments))
    groups = list(experiments.values())
    # Apart from each other: a batch is as wide as its longest row, and what is shown alone is short.
    shown = _score_masks(model, batch, groups, attrgetter("shown_masks"))
    hidden = _score_masks(model, batch, groups, attrgetter("hidden_masks"))
    checked = {}
    for row, *results in zip(experiments, groups, shown, hidden, strict=True):
        checked[row] = list(map(_conclude, *results))
    return checked


def _conclude(experiment: Experiment, shown_S: Array, hidden_S: Array) -> Explanation:
    return replace(experiment.explanation, check=experiment.conclude(shown_S, hidden_S))


def _score_masks(
    model: Model, batch: Inputs, groups: Sequence[Sequence[Experiment]], get_masks: Callable[[Experiment], Tensor]
) -> list[list[Array]]:
    """Return the scores of each experiment of each input under its masks."""
    masks = [list(map(get_masks, group)) for group in groups]
    # All explanations of an input have its units and its target.
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


def _split_scores(scores_N: Tensor, masks: Sequence[Tensor]) -> list[Array]:
    pieces = scores_N.cpu().split_with_sizes(list(map(len, masks)))
    return [piece.numpy() for piece in pieces]


def choose_replacement(model: Model) -> str | None:
    """Return how units are removed: deleted from texts, whose rows become short; black, or [MASK] around a span."""
    if model.takes_images or model.problem == "span":
        return None
    return "delete"
